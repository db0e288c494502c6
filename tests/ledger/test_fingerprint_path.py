"""Reports without placements are confirmed by fingerprint, at the earliest position that agrees,
and never by name alone.
"""

from __future__ import annotations

from shared.domain.pod import Pod
from shared.events import streams
from shared.events.scheduling_events import NodeMarkedDirty, NodeReconciled
from shared.kubelet.fingerprint import fingerprint
from shared.ledger.charging import HISTORY_LIMIT
from shared.ledger.fingerprints import match, would_confirm
from tests.ledger.given import History, container, pod, zone


def told(
    history: History, *names: str, free0: int = 8, free1: int = 8, at: int = 1, method: str = "all"
) -> None:
    """Append a report like RTE's: availability and a fingerprint of names, without placements."""
    print_of = fingerprint([("ns", name) for name in names])
    zones = (zone(0, 8, free0), zone(1, 8, free1))
    history.report(*zones, at=at, placements=None, fingerprint=print_of, fingerprint_method=method)


def reconcile(history: History) -> int | None:
    """Reconcile a dirty node as a scheduler does, and return the confirmed position."""
    node = history.n1
    matched = match(history.ledger, node)
    if matched is None:
        return None
    event = NodeReconciled("n1", "fingerprint", node.report_version, matched.position, "")
    history.tell(streams.node("n1"), event)
    return matched.position


def charged(*pods: Pod) -> History:
    history = History()
    told(history)
    for made in pods:
        history.reserve(made)
    return history


def test_a_match_confirms_the_charges_up_to_its_position() -> None:
    history = charged(pod("a", cpus=6))
    told(history, "a", free0=2, at=2)
    assert reconcile(history) is not None
    assert (history.free(0), history.free(1)) == (2, 8)


def test_a_later_charge_is_not_confirmed_by_an_earlier_match() -> None:
    history = charged(pod("a", cpus=6))
    told(history, "a", free0=2, at=2)
    history.reserve(pod("b", cpus=2))
    assert reconcile(history) is not None
    assert (history.free(0), history.free(1)) == (0, 6)


def test_a_report_that_shows_less_in_use_than_its_pods_demand_is_no_match() -> None:
    history = charged(pod("a", cpus=6))
    told(history, "a", at=2)
    assert reconcile(history) is None


def test_what_a_pod_that_has_ended_still_holds_does_not_pass_for_what_another_has_yet_to_get() -> (
    None
):
    """The kubelet lists `b` before it allocates for it; `a` has ended, and is listed as before: the
    names agree, and as much is in use as `b` alone demands."""
    ended, coming = pod("a", cpus=6), pod("b", cpus=6)
    history = charged(ended, coming)
    history.end(ended)
    told(history, "a", "b", free0=2, at=2)
    assert reconcile(history) is None
    told(history, "a", "b", free0=2, free1=2, at=3)
    assert reconcile(history) is not None


def test_a_pod_that_left_too_long_ago_to_be_known_lets_nothing_match() -> None:
    ended, coming = pod("a", cpus=6), pod("b", cpus=2)
    history = charged(ended, coming)
    history.end(ended)
    history.n1.departed.clear()
    told(history, "a", "b", free0=2, free1=2, at=2)
    assert reconcile(history) is None


def test_a_match_forgets_pods_that_left_earlier() -> None:
    ended, coming = pod("a", cpus=6), pod("b", cpus=6)
    history = charged(ended, coming)
    history.end(ended)
    told(history, "b", free0=2, at=2)
    assert reconcile(history) is not None
    assert history.n1.departed == {}


def test_a_recreated_name_matches_only_its_predecessors_position() -> None:
    first, second = pod("a", cpus=6), pod("a", cpus=6, uid="uid-second")
    history = charged(first)
    history.end(first)
    history.reserve(second)
    told(history, "a", free0=2, at=2)
    settled = reconcile(history)
    assert settled is None or settled < history.charge(second).charged_at
    assert history.free(1) == 2


def test_a_recreated_name_is_confirmed_after_a_report_without_it() -> None:
    first, second = pod("a", cpus=6), pod("a", cpus=6, uid="uid-second")
    history = charged(first)
    told(history, "a", free0=2, at=2)
    reconcile(history)
    history.end(first)
    told(history, at=3)
    reconcile(history)
    history.reserve(second)
    told(history, "a", free0=2, at=4)
    assert reconcile(history) is not None
    assert (history.free(0), history.free(1)) == (2, 8)


def test_only_pods_with_exclusive_resources_are_expected_by_that_method() -> None:
    pod_spec = pod("a", cpus=6)
    shared = Pod("uid-s", "ns", "s", "Burstable", (container("c", cpus=1),))
    history = charged(pod_spec, shared)
    told(history, "a", free0=2, at=2, method="with-exclusive-resources")
    assert reconcile(history) is not None
    assert history.free(1) == 8


def test_an_empty_node_matches_the_empty_fingerprint() -> None:
    pod_spec = pod("a", cpus=6)
    history = charged(pod_spec)
    told(history, "a", free0=2, at=2)
    reconcile(history)
    history.end(pod_spec)
    assert history.free(0) == 2, "without placements nothing is added back"
    told(history, at=3)
    assert reconcile(history) is not None
    assert (history.free(0), history.free(1)) == (8, 8)


def test_an_end_widens_where_no_listing_says_what_was_freed() -> None:
    old, new = pod("old", cpus=6), pod("new", cpus=6)
    history = charged(old)
    told(history, "old", free0=2, at=2)
    reconcile(history)
    history.reserve(new)
    assert history.charge(new).possible == {"c": (1,)}
    history.end(old)
    assert history.charge(new).possible == {"c": (0, 1)}


def test_a_new_boot_charges_every_pod_again() -> None:
    history = charged(pod("a", cpus=6))
    told(history, "a", free0=2, at=2)
    reconcile(history)
    zones = (zone(0, 8), zone(1, 8))
    history.report(
        *zones, boot="boot-2", placements=None, fingerprint="x", fingerprint_method="all"
    )
    assert (history.free(0), history.free(1)) == (2, 2)


def test_a_match_of_an_older_report_confirms_nothing() -> None:
    history = charged(pod("a", cpus=6))
    told(history, "a", free0=2, at=2)
    version = history.n1.report_version
    told(history, "a", "late", free0=1, at=3)
    history.tell(
        streams.node("n1"),
        NodeReconciled("n1", "fingerprint", version, history.ledger.position, ""),
    )
    assert history.free(1) == 2


def dirty(history: History) -> str:
    history.tell(streams.node("n1"), NodeMarkedDirty("n1", "rejections", 3))
    return history.n1.dirty


def test_a_match_that_confirms_everything_ends_the_dirty_mark() -> None:
    history = charged(pod("a", cpus=6))
    assert dirty(history)
    told(history, "a", free0=2, at=2)
    reconcile(history)
    assert history.n1.dirty == ""


def test_a_match_before_the_newest_charge_leaves_the_node_dirty_for_the_next_report() -> None:
    history = charged(pod("a", cpus=6))
    history.reserve(pod("b", cpus=2))
    assert dirty(history)
    told(history, "a", free0=2, at=2)
    reconcile(history)
    assert history.n1.dirty == "rejections"
    assert history.free(1) == 6
    told(history, "a", "b", free0=0, at=3)
    reconcile(history)
    assert history.n1.dirty == ""
    assert history.free(1) == 8


def test_a_match_of_a_replaced_report_leaves_the_node_dirty() -> None:
    history = charged(pod("a", cpus=6))
    assert dirty(history)
    told(history, "a", free0=2, at=2)
    version = history.n1.report_version
    told(history, "a", "late", free0=1, at=3)
    history.tell(
        streams.node("n1"),
        NodeReconciled("n1", "fingerprint", version, history.ledger.position, ""),
    )
    assert history.n1.dirty == "rejections"


def test_only_a_match_that_changes_something_is_worth_a_event() -> None:
    history = charged(pod("a", cpus=6))
    matched = match(history.ledger, history.n1)
    assert matched is not None, "the report agrees with the time before the charge"
    assert not would_confirm(history.n1, matched.position)
    told(history, "a", free0=2, at=2)
    assert would_confirm(history.n1, history.charge(pod("a", cpus=6)).charged_at)


def test_a_match_keeps_what_ended_after_its_position_possibly_free() -> None:
    """The report was made while `b` ran. `b` has ended since, which may have freed its zone
    although the fingerprint matches.
    """
    history = charged(pod("a", cpus=6), pod("b", cpus=5))
    told(history, "a", "b", free0=2, free1=3, at=2)
    history.end(pod("b", cpus=5))
    assert reconcile(history) is not None
    assert (history.at_best(0), history.at_best(1)) == (7, 8)
    history.reserve(pod("new", cpus=2))
    assert history.charge(pod("new", cpus=2)).possible == {"c": (0, 1)}


def test_the_next_match_takes_over_what_the_report_shows_as_free() -> None:
    history = charged(pod("a", cpus=6), pod("b", cpus=5))
    told(history, "a", "b", free0=2, free1=3, at=2)
    history.end(pod("b", cpus=5))
    reconcile(history)
    told(history, "a", free0=2, free1=8, at=3)
    assert reconcile(history) is not None
    assert history.n1.freed == []
    assert (history.free(0), history.free(1)) == (2, 8)


def test_many_ends_without_a_match_stay_bounded_and_lose_nothing() -> None:
    history = charged()
    for number in range(HISTORY_LIMIT + 20):
        pod_spec = pod(f"p{number}", cpus=1)
        history.reserve(pod_spec)
        history.end(pod_spec)
    assert len(history.n1.freed) == HISTORY_LIMIT
    assert sum(freed.zones[0]["cpu"] for freed in history.n1.freed) == (HISTORY_LIMIT + 20) * 1000
