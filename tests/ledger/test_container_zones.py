"""Reports that have the zone of each container, but not its name: pods are confirmed one by one,
and a list that does not fit confirms nothing."""

from __future__ import annotations

from typing import Any

from shared.domain.pod import Pod
from shared.events import streams
from shared.events.report_events import NodeReleased, NodeReportChanged
from shared.events.scheduling_events import NodeReconciled
from shared.kubelet.fingerprint import container_hash, fingerprint
from shared.ledger.fingerprints import match
from shared.ledger.what_if import holdings
from tests.ledger.given import History, container, pod, zone


def container_zones(zone_of: dict[str, int], *, of: str = "c") -> tuple[int, ...]:
    by_hash = {container_hash("ns", name, of): zone for name, zone in zone_of.items()}
    return tuple(by_hash[key] for key in sorted(by_hash))


def told(
    history: History, zone_of: dict[str, int], free0: int, free1: int, at: int, **fields: Any
) -> None:
    """Append a report like that of RTE 0.25 about pods of one container."""
    history.report(
        zone(0, 8, free0),
        zone(1, 8, free1),
        at=at,
        placements=None,
        fingerprint=fingerprint([("ns", name) for name in zone_of]),
        fingerprint_method="with-exclusive-resources",
        **{"container_zones": container_zones(zone_of), **fields},
    )


def two_pods() -> tuple[History, Pod, Pod]:
    history = History()
    told(history, {}, 8, 8, at=1)
    first, second = pod("a", cpus=6), pod("b", cpus=4)
    history.reserve(first)
    history.reserve(second)
    return history, first, second


def test_each_pod_is_confirmed_in_its_zone_by_the_report_alone() -> None:
    history, first, second = two_pods()
    assert (history.free(0), history.free(1)) == (-2, -2)
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    assert (history.free(0), history.free(1)) == (4, 2)
    charges = history.n1.charges
    assert charges[first.uid].confirmed_zones == {1: {"cpu": 6000}}
    assert holdings(history.n1, charges[second.uid]) == {0: {"cpu": 4000}}


def test_a_pod_that_came_later_stays_charged_everywhere() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 0}, 2, 8, at=2)
    assert history.n1.charges[first.uid].confirmed
    assert not history.n1.charges["uid-b"].confirmed
    assert (history.free(0), history.free(1)) == (-2, 4)


def test_the_end_of_a_confirmed_pod_frees_its_zone() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    history.end(first)
    assert (history.free(0), history.free(1)) == (4, 8)
    told(history, {"b": 0}, 4, 8, at=3)
    assert (history.free(0), history.free(1)) == (4, 8)
    assert history.n1.ended == {}


def test_a_report_that_fits_no_expectation_changes_nothing() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    told(history, {"a": 1, "b": 0, "unknown": 1}, 4, 0, at=3)
    assert (history.free(0), history.free(1)) == (4, 2)
    assert history.n1.charges[first.uid].confirmed
    told(history, {"a": 1, "b": 0}, 4, 2, at=4)
    assert history.n1.basis is history.n1.report


def test_another_number_of_containers_confirms_nothing() -> None:
    history, _, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2, container_zones=(0, 1, 1))
    assert history.n1.listed == {}
    assert (history.free(0), history.free(1)) == (-2, -2)


def test_zones_in_which_less_is_used_confirm_nothing() -> None:
    """By the amounts, 6 CPUs are used in zone 1. The list says that they are in zone 0."""
    history, _, _ = two_pods()
    told(history, {"a": 0, "b": 1}, 4, 2, at=2)
    assert history.n1.listed == {}
    assert not any(charge.confirmed for charge in history.n1.charges.values())


def test_a_delta_of_the_report_brings_the_new_zones() -> None:
    history, first, second = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    history.end(second)
    change = NodeReportChanged(
        "n1",
        "boot-1",
        3,
        available={0: {"cpu": 8000}},
        fingerprint=fingerprint([("ns", "a")]),
        container_zones=container_zones({"a": 1}),
    )
    history.tell(streams.report("n1"), change)
    assert list(history.n1.listed or {}) == ["ns/a"]
    assert (history.free(0), history.free(1)) == (8, 2)
    assert history.n1.charges[first.uid].confirmed


def test_a_reconciliation_lists_the_containers_too() -> None:
    """The report came before the log knew of the pods."""
    history = History()
    told(history, {"a": 1}, 8, 2, at=1)
    made = pod("a", cpus=6)
    history.reserve(made)
    assert not history.n1.charges[made.uid].confirmed
    matched = match(history.ledger, history.n1)
    assert matched is not None
    version = history.n1.report_version
    event = NodeReconciled("n1", "fingerprint", version, matched.position, "")
    history.tell(streams.node("n1"), event)
    assert history.n1.charges[made.uid].confirmed_zones == {1: {"cpu": 6000}}


def test_a_new_pod_of_the_same_name_is_not_confirmed_by_the_old_ones_zone() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    history.end(first)
    again = pod("a", cpus=6, uid="again")
    history.reserve(again)
    told(history, {"a": 1, "b": 0}, 4, 2, at=3)
    assert not history.n1.charges["again"].confirmed
    told(history, {"b": 0}, 4, 8, at=4)
    told(history, {"a": 1, "b": 0}, 4, 2, at=5)
    assert history.n1.charges["again"].confirmed


def test_init_containers_are_not_counted_and_sidecars_are() -> None:
    history = History()
    told(history, {}, 8, 8, at=1)
    made = pod(
        "a",
        container("i", cpus=2, kind="init"),
        container("s", cpus=1, kind="sidecar"),
        container("m", cpus=3),
    )
    history.reserve(made)
    zones = {container_hash("ns", "a", "s"): 1, container_hash("ns", "a", "m"): 1}
    told(history, {"a": 1}, 8, 4, at=2, container_zones=tuple(zones[k] for k in sorted(zones)))
    assert history.n1.charges[made.uid].confirmed


def test_another_policy_ends_the_listing_until_a_report_matches() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    told(history, {"a": 1}, 4, 2, at=3, scope="pod")
    assert history.n1.listed is None
    assert not history.n1.charges[first.uid].confirmed
    told(history, {"a": 1, "b": 0}, 4, 2, at=4, scope="pod")
    assert history.n1.charges[first.uid].confirmed


def test_a_release_ends_the_listing_until_a_report_matches() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    history.tell(streams.report("n1"), NodeReleased("n1"))
    told(history, {"a": 1}, 4, 2, at=3)
    assert history.n1.listed is None
    assert not history.n1.charges[first.uid].confirmed


def test_an_exporter_without_zones_of_containers_ends_the_listing() -> None:
    history, first, _ = two_pods()
    told(history, {"a": 1, "b": 0}, 4, 2, at=2)
    told(history, {"a": 1, "b": 0}, 4, 2, at=3, container_zones=None)
    assert history.n1.listed is None
    assert history.n1.charges[first.uid].confirmed
