"""The ledger's promises, one behaviour a test: charge, widening, proof, aliases, release,
restarts.
"""

from __future__ import annotations

from shared.domain.pod import Container, Pod
from shared.domain.report import Placement, Zone, ZonedAmount
from shared.events import streams
from shared.events.binding_events import BindRefused
from shared.events.cluster_events import NodeEnded
from shared.events.report_events import NodeReportChanged
from shared.events.scheduling_events import NominationWithdrawn, PodNominated, ReservationWithdrawn
from shared.ledger.view import compute_free_max, compute_free_min
from tests.ledger.given import History, container, cpu, held, listed_empty, pod, report, zone


def two_zones(free0: int = 8, free1: int = 8) -> tuple[Zone, Zone]:
    return (zone(0, 8, free0), zone(1, 8, free1))


def test_a_pod_that_fits_one_zone_only_is_charged_there_only() -> None:
    history = History()
    history.report(*two_zones(free0=2))
    history.reserve(pod("a", cpus=4))
    assert (history.free(0), history.free(1)) == (2, 4)


def test_a_pod_that_fits_several_zones_is_charged_in_all_of_them() -> None:
    history = History()
    history.report(*two_zones())
    history.reserve(pod("a", cpus=6))
    assert (history.free(0), history.free(1)) == (2, 2)
    assert (history.at_best(0), history.at_best(1)) == (8, 8)


def test_the_charge_is_computed_from_what_could_be_free_not_from_the_pessimistic_view() -> None:
    history = History()
    history.report(*two_zones())
    history.reserve(pod("a", cpus=6))
    second = pod("b", cpus=6)
    history.reserve(second)
    assert history.charge(second).possible == {"c": (0, 1)}


def test_a_report_that_covers_the_demand_proves_the_pod_and_ends_the_other_zones_charge() -> None:
    history = History()
    history.report(*two_zones())
    history.reserve(pod("a", cpus=6))
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    assert (history.free(0), history.free(1)) == (2, 8)


def test_a_pod_listed_before_its_admission_is_not_confirmed() -> None:
    history = History()
    history.report(*two_zones())
    history.reserve(pod("a", cpus=6))
    history.report(*two_zones(), at=2, placements=(listed_empty("a"),))
    assert (history.free(0), history.free(1)) == (2, 2)


def test_a_half_admitted_pod_keeps_its_charge_where_it_shows_up() -> None:
    history = History()
    pod_spec = pod("a", container("c", cpus=6, gpus=1))
    zones = (zone(0, 8, 8, gpus=1), zone(1, 8, 8, gpus=1))
    history.report(*zones)
    history.reserve(pod_spec)
    torn = (zone(0, 8, 2, gpus=1), zone(1, 8, 8, gpus=1))
    history.report(*torn, at=2, placements=(held("a", 0, 6),))
    assert not history.charge(pod_spec).confirmed
    assert history.charge(pod_spec).possible == {"c": (0, 1)}
    assert history.free(0, "vendor.com/gpu") == 0


def test_a_first_torn_report_still_charges_the_zone_that_the_pod_shows_up_in() -> None:
    history = History()
    pod_spec = pod("a", container("c", cpus=6, gpus=1))
    history.seen(pod_spec, node="n1")
    history.report(zone(0, 8, 2, gpus=1), zone(1, 8, 8, gpus=1), placements=(held("a", 0, 6),))
    assert history.charge(pod_spec).possible == {"c": (0, 1)}
    assert history.free(0, "vendor.com/gpu") == 0


def test_a_release_widens_the_charge_of_an_unconfirmed_pod() -> None:
    history = History()
    old, new = pod("old", cpus=6), pod("new", cpus=6)
    history.seen(old, node="n1")
    history.report(*two_zones(free0=2), placements=(held("old", 0, 6),))
    history.reserve(new)
    assert history.charge(new).possible == {"c": (1,)}
    history.end(old)
    assert history.charge(new).possible == {"c": (0, 1)}
    assert history.free(0) == 2


def test_a_report_with_more_room_widens_and_one_with_less_never_narrows() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones(free0=2))
    history.reserve(pod_spec)
    history.report(*two_zones(), at=2)
    assert history.charge(pod_spec).possible == {"c": (0, 1)}
    history.report(*two_zones(free0=2), at=3)
    assert history.charge(pod_spec).possible == {"c": (0, 1)}


def test_a_change_of_policy_charges_every_zone_again() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones())
    history.reserve(pod_spec)
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    assert history.charge(pod_spec).confirmed
    history.report(*two_zones(), at=3, policy="restricted")
    assert not history.charge(pod_spec).confirmed
    assert (history.free(0), history.free(1)) == (2, 2)


def test_a_report_after_a_kubelet_restart_that_shows_less_charges_the_last_confirmed_zone() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones())
    history.reserve(pod_spec)
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    history.report(*two_zones(), at=3, placements=(listed_empty("a"),))
    assert (history.free(0), history.free(1)) == (2, 8)


def test_after_a_reboot_a_pod_may_stand_in_every_zone() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones())
    history.reserve(pod_spec)
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    history.report(*two_zones(), at=1, boot="boot-2")
    assert (history.free(0), history.free(1)) == (2, 2)


def test_an_ended_pods_listed_placements_are_free_again_before_the_next_report() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.reserve(pod_spec)
    history.report(*two_zones(free0=2), placements=(held("a", 0, 6),))
    history.end(pod_spec)
    assert (history.free(0), history.free(1)) == (8, 8)


def test_a_late_report_that_still_lists_an_ended_pod_does_not_take_its_room_back() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones())
    history.reserve(pod_spec)
    history.end(pod_spec)
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    assert (history.free(0), history.free(1)) == (8, 8)


def a_pod_and_its_namesake(listed: Placement) -> tuple[History, Pod]:
    """Return a history in which a pod of 6 CPUs was listed and ended, and another pod of its name
    was then reserved.
    """
    history = History()
    first, second = pod("a", cpus=6), pod("a", cpus=6, uid="uid-second")
    history.reserve(first)
    history.report(*two_zones(free0=2), placements=(listed,))
    history.end(first)
    history.reserve(second)
    return history, second


def test_a_recreated_pod_is_not_confirmed_by_its_predecessors_listing() -> None:
    history, second = a_pod_and_its_namesake(held("a", 0, 6))
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    assert not history.charge(second).confirmed
    history.report(*two_zones(), at=3)
    history.report(*two_zones(free0=2), at=4, placements=(held("a", 0, 6),))
    assert history.charge(second).confirmed


def test_other_complete_placements_prove_a_recreated_pod() -> None:
    history, second = a_pod_and_its_namesake(held("a", 0, 6))
    history.report(*two_zones(free1=2), at=2, placements=(held("a", 1, 6),))
    assert history.charge(second).confirmed


def test_a_uid_in_the_kubelets_checkpoint_identifies_the_pod_of_a_name() -> None:
    history, second = a_pod_and_its_namesake(held("a", 0, 6, uid="uid-a"))
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6, uid="uid-second"),))
    assert history.charge(second).confirmed


def test_what_is_listed_for_a_name_is_not_given_back_once_a_live_pod_bears_it() -> None:
    """The ledger remembers the end of a pod of this name, but the report lists the new pod, so both
    bounds count the amounts as held.
    """
    history, _ = a_pod_and_its_namesake(held("a", 0, 6))
    assert history.at_best(0) == 8
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6, uid="uid-second"),))
    assert "ns/a" in history.n1.ended
    assert (history.free(0), history.at_best(0)) == (2, 2)
    assert (history.free(1), history.at_best(1)) == (8, 8)


def ended_beside(*, sent_later: bool) -> History:
    """Return a history in which a pod came and went since the first report, and another pod was
    bound after its end, or before.
    """
    history, went, namesake = History(), pod("went", cpus=6), pod("other", cpus=2)
    history.report(*two_zones())
    for entry in (went, namesake) if sent_later else (namesake, went):
        history.reserve(entry)
        if entry is went:
            history.end(went)
    return history


def test_a_pod_that_ended_before_a_listed_pod_was_sent_is_forgotten() -> None:
    """The report was made after the listed pod was sent, and so after the end of the other."""
    history = ended_beside(sent_later=True)
    assert "ns/went" in history.n1.ended
    history.report(*two_zones(free0=6), at=2, placements=(held("other", 0, 2),))
    assert "ns/went" not in history.n1.ended


def test_a_pod_that_ended_after_a_listed_pod_was_sent_may_have_come_after_the_report() -> None:
    history = ended_beside(sent_later=False)
    for number in (2, 3):
        history.report(*two_zones(free0=6), at=number, placements=(held("other", 0, 2),))
        assert "ns/went" in history.n1.ended, "the report may have been on its way for long"
    history.report(*two_zones(free0=6), at=4, placements=(held("other", 0, 2),))
    assert "ns/went" not in history.n1.ended, "three reports without it are taken for evidence"


def test_a_listed_name_of_two_pods_does_not_date_the_report() -> None:
    history = ended_beside(sent_later=False)
    history.end(pod("other", cpus=2))
    history.reserve(pod("other", cpus=2, uid="uid-second"))
    history.report(*two_zones(free0=6), at=2, placements=(held("other", 0, 2),))
    assert "ns/went" in history.n1.ended


def test_a_pod_without_exclusive_demand_is_charged_nothing_and_counted_on_the_node() -> None:
    history = History()
    history.report(*two_zones())
    pod_spec = pod("a", cpus=4)
    burstable = type(pod_spec)(pod_spec.uid, "ns", "a", "Burstable", pod_spec.containers)
    history.reserve(burstable)
    assert (history.free(0), history.free(1)) == (8, 8)
    assert history.n1.requested == {**cpu(4), "pods": 1}


def test_an_ordinary_init_containers_cpus_stay_charged_after_proof() -> None:
    history = History()
    pod_spec = pod("a", container("setup", cpus=2, kind="init"), container("c", cpus=4))
    history.report(*two_zones())
    history.reserve(pod_spec)
    assert history.free(0) == 2
    history.report(*two_zones(free0=4), at=2, placements=(held("a", 0, 4),))
    assert history.charge(pod_spec).confirmed
    assert (history.free(0), history.free(1)) == (2, 8)


def test_only_a_later_container_draws_an_init_container_to_its_zone() -> None:
    """The sidecar came first, and the app pins no CPUs: the init container's two may be in either
    zone.
    """
    history = History()
    app = Container("c", "app", {"cpu": 500}, {"cpu": 500})
    pod_spec = pod(
        "a", container("side", cpus=1, kind="sidecar"), container("setup", cpus=2, kind="init"), app
    )
    history.report(*two_zones())
    history.reserve(pod_spec)
    listing = (held("a", 0, 1, container_name="side"), listed_empty("a"))
    history.report(*two_zones(free0=7), at=2, placements=listing)
    assert history.charge(pod_spec).confirmed
    assert (history.free(0), history.free(1)) == (5, 6)


def test_a_pod_known_by_uid_only_is_charged_what_the_checkpoint_shows() -> None:
    """The app holds nothing by which the exporter could recognise the pod, but the ledger knows the
    uid.
    """
    history = History()
    app = Container("c", "app", {"cpu": 500}, {"cpu": 500})
    pod_spec = pod("a", container("setup", cpus=2, kind="init"), app)
    history.report(*two_zones())
    history.reserve(pod_spec)
    unmatched = Placement("", "", "setup", (ZonedAmount("cpu", (1,), 2000),), pod_spec.uid)
    read = {"checkpoints": ("cpu",), "hidden": (unmatched,)}
    history.report(*two_zones(), at=2, placements=(listed_empty("a"),), **read)
    assert (history.free(0), history.free(1)) == (8, 6)


def test_init_cpus_in_the_checkpoint_need_no_further_charge() -> None:
    history = History()
    pod_spec = pod("a", container("setup", cpus=2, kind="init"), container("c", cpus=4))
    history.report(*two_zones())
    history.reserve(pod_spec)
    shown = (held("a", 0, 4), held("a", 0, 2, container_name="setup"))
    history.report(*two_zones(free0=2), at=2, placements=shown)
    assert (history.free(0), history.free(1)) == (2, 8)


def test_an_init_containers_device_that_no_later_container_wants_may_stand_in_another_zone() -> (
    None
):
    history = History()
    pod_spec = pod("a", container("setup", gpus=1, kind="init"), container("c", cpus=4))
    zones = (zone(0, 8, 8, gpus=1), zone(1, 8, 8, gpus=1))
    history.report(*zones)
    history.reserve(pod_spec)
    shown = (zone(0, 8, 4, gpus=1), zone(1, 8, 8, gpus=1))
    history.report(*shown, at=2, placements=(held("a", 0, 4),))
    assert history.charge(pod_spec).confirmed
    assert (history.free(0, "vendor.com/gpu"), history.free(1, "vendor.com/gpu")) == (0, 0)


def test_the_cpu_checkpoint_shows_no_devices_of_init_containers() -> None:
    history = History()
    pod_spec = pod("a", container("setup", cpus=2, gpus=1, kind="init"), container("c", cpus=4))
    history.report(zone(0, 8, 8, gpus=1), zone(1, 8, 8, gpus=1))
    history.reserve(pod_spec)
    listing = (held("a", 0, 4), held("a", 0, 2, container_name="setup"))
    history.report(zone(0, 8, 2, gpus=1), zone(1, 8, 8, gpus=1), at=2, placements=listing)
    assert history.charge(pod_spec).confirmed
    assert history.free(0) == 2
    assert history.free(0, "vendor.com/gpu") == 0


def test_pod_scope_charges_the_whole_pod_in_every_zone_that_could_hold_it() -> None:
    history = History()
    pod_spec = pod("a", container("c1", cpus=2), container("c2", cpus=3))
    history.report(*two_zones(free0=4), scope="pod")
    history.reserve(pod_spec)
    assert history.charge(pod_spec).possible == {"": (1,)}
    assert (history.free(0), history.free(1)) == (4, 3)


def test_a_vanished_zone_takes_its_charge_with_it() -> None:
    history = History()
    history.report(*two_zones())
    history.reserve(pod("a", cpus=6))
    history.report(zone(0, 8), at=2)
    assert set(history.n1.free_min) == {0}
    assert history.free(0) == 2


def test_an_unhealthy_device_is_not_free_even_if_an_ended_pod_held_it() -> None:
    history = History()
    pod_spec = pod("a", container("c", gpus=2))
    history.reserve(pod_spec)
    history.report(zone(0, 8, gpus=2, free_gpus=0), placements=(held("a", 0, 0, gpus=2),))
    history.report(zone(0, 8, gpus=1, free_gpus=0), at=2, placements=(held("a", 0, 0, gpus=2),))
    history.end(pod_spec)
    assert history.free(0, "vendor.com/gpu") == 1


def test_a_refused_bind_and_a_withdrawal_free_the_charge() -> None:
    history = History()
    first, second = pod("a", cpus=6), pod("b", cpus=2)
    history.report(*two_zones())
    history.reserve(first)
    history.reserve(second)
    history.tell(streams.pod(first.uid), BindRefused(first.uid, "n1", "other_node", ""))
    history.tell(streams.pod(second.uid), ReservationWithdrawn(second.uid, "n1", "node_ended"))
    assert (history.free(0), history.free(1)) == (8, 8)
    assert history.ledger.pods[first.uid].stage == "pending"


def test_a_pod_that_terminates_unbound_holds_nothing_before_the_observer_sees_it() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones())
    history.reserve(pod_spec)
    history.tell(streams.pod(pod_spec.uid), BindRefused(pod_spec.uid, "n1", "terminating", ""))
    assert (history.free(0), history.free(1)) == (8, 8)
    assert (
        history.ledger.pods[pod_spec.uid].stage,
        history.ledger.pods[pod_spec.uid].terminating,
    ) == (
        "pending",
        True,
    )


def test_a_foreign_pod_is_charged_from_the_event_that_shows_it_bound() -> None:
    history = History()
    history.report(*two_zones())
    history.seen(pod("foreign", cpus=6), node="n1")
    assert (history.free(0), history.free(1)) == (2, 2)


def test_a_node_that_comes_back_with_another_uid_keeps_its_live_pods() -> None:
    """Pods outlive the Node object, and some may have been bound to the new one before it was
    observed.
    """
    history = History()
    history.node()
    history.report(*two_zones())
    pod_spec = pod("a", cpus=6)
    history.reserve(pod_spec)
    history.node(uid="node-uid-2")
    assert (history.free(0), history.free(1)) == (2, 2)
    history.end(pod_spec)
    assert (history.free(0), history.free(1)) == (8, 8)
    assert pod_spec.uid not in history.ledger.pods


def test_a_node_that_is_gone_keeps_its_charges_until_each_pod_ends() -> None:
    history = History()
    history.node()
    pod_spec = pod("a", cpus=6)
    history.reserve(pod_spec)
    history.tell(streams.node("n1"), NodeEnded("n1", "node-uid-1", "deleted"))
    assert list(history.n1.charges) == [pod_spec.uid]
    history.end(pod_spec)
    assert history.ledger.nodes == {}
    assert history.ledger.pods == {}


def test_an_end_of_another_incarnation_of_the_node_is_ignored() -> None:
    history = History()
    history.node(uid="node-uid-2")
    history.report(*two_zones())
    history.reserve(pod("a", cpus=6))
    history.tell(streams.node("n1"), NodeEnded("n1", "node-uid-1", "deleted"))
    assert len(history.n1.charges) == 1


def test_with_no_live_pods_the_ledger_is_drained() -> None:
    history = History()
    pods = [pod(f"p{i}", cpus=2) for i in range(3)]
    history.report(*two_zones())
    for made in pods:
        history.reserve(made)
    for made in pods:
        history.end(made)
    assert history.n1.charges == {}
    assert all(amount == 0 for amount in history.n1.requested.values())
    assert (history.free(0), history.free(1)) == (8, 8)


def test_a_nominees_claim_charges_the_zones_until_it_is_withdrawn() -> None:
    history = History()
    pod_spec = pod("a", cpus=6)
    history.report(*two_zones())
    history.seen(pod_spec)
    history.tell(
        streams.pod(pod_spec.uid), PodNominated(pod_spec.uid, "n1", ("victim",), {0: cpu(6)})
    )
    assert (history.free(0), history.free(1)) == (2, 8)
    history.tell(
        streams.pod(pod_spec.uid), NominationWithdrawn(pod_spec.uid, "n1", "placed elsewhere")
    )
    assert history.free(0) == 8


def test_a_report_without_placements_confirms_nothing_by_itself() -> None:
    history = History()
    history.report(
        *two_zones(),
        placements=None,
        fingerprint="pfp0v001ef46db3751d8e999",
        fingerprint_method="all",
    )
    history.reserve(pod("a", cpus=6))
    history.report(
        *two_zones(free0=2), at=2, placements=None, fingerprint="x", fingerprint_method="all"
    )
    assert (history.free(0), history.free(1)) == (2, 2)


def test_reports_keep_their_value() -> None:
    assert report(*two_zones()) == report(*two_zones())


def test_the_end_of_a_pod_without_demand_gives_back_what_is_listed_for_its_ended_namesake() -> None:
    """While the namesake lives, the listing counts as its own; bounds kept step by step stay those
    computed again.
    """
    history = History()
    history.report(*two_zones())
    first = pod("a", cpus=6)
    history.reserve(first)
    history.report(*two_zones(free0=2), at=2, placements=(held("a", 0, 6),))
    history.end(first)
    second = pod("a", container("c", cpus=0), uid="uid-a-2")
    history.reserve(second)
    history.report(*two_zones(free0=2), at=3, placements=(held("a", 0, 6, uid="uid-a-2"),))
    history.end(second)
    assert history.n1.free_max == compute_free_max(history.n1)
    assert history.n1.free_min == compute_free_min(history.n1)


def test_a_rejected_pod_leaves_nothing_that_it_may_have_held() -> None:
    history = History()
    history.node()
    history.report(*two_zones())
    rejected, deleted = pod("a", cpus=2), pod("b", cpus=2)
    for ended, cause in ((rejected, "rejected"), (deleted, "deleted")):
        history.reserve(ended)
        history.end(ended, cause)
    lives = {name: ended.lives for name, ended in history.n1.ended.items()}
    assert lives["ns/a"] == ()
    assert len(lives["ns/b"] or ()) == 1


def test_zones_of_another_boot_are_no_longer_charged_alone() -> None:
    """A delta of a new boot leaves the pod out: it may be in every zone again."""
    history = History()
    history.node()
    running_pod = pod("a", cpus=2)
    history.reserve(running_pod)
    history.report(zone(0, 4, 2), zone(1, 4), placements=(held("a", 0, 2),))
    assert (history.free(0), history.free(1)) == (2, 4)
    change = NodeReportChanged("n1", "boot-2", 3, available={0: {"cpu": 4000}}, unlisted=("ns/a",))
    history.tell(streams.report("n1"), change)
    assert (history.free(0), history.free(1)) == (2, 2)
