"""Compat mode on events: the plugin gets them as its informers, watch and hooks would deliver
them.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.driver import Driver
from plugins.upstream_compat.pod import from_domain
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events.binding_events import BindRefused, PodBound
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from shared.kubelet.fingerprint import fingerprint
from tests.fixtures.examples import examples
from tests.ledger.given import pod, report, zone

OVERRESERVE = Arguments(cache_resync_period_s=5, foreign_pods_detect="All")
A, B = pod("a", cpus=6), pod("b", cpus=6)
AGENT = fingerprint([("kube-system", "agent")])


def told(*names: str, free: int = 8, at: int = 1) -> Report:
    """A report without placements that says these pods are there."""
    computed = fingerprint([("ns", name) for name in names])
    return report(
        zone(0, 8, free), at=at, placements=None, fingerprint=computed, fingerprint_method="all"
    )


def driver(arguments: Arguments = OVERRESERVE, *pods: Pod) -> Driver:
    """A started driver with one node n1 of one zone of 8 CPUs, and these pods observed."""
    made = Driver(A.scheduler_name, arguments)
    made.evolve(NodeObserved("n1", "node-uid", allocatable={"cpu": 8000, "pods": 110}))
    made.evolve(NodeReported(told()))
    made.start()
    for new_pod in pods:
        made.evolve(PodObserved(new_pod))
    return made


@pytest.mark.parametrize(
    "arguments", [Arguments(), Arguments(discard_reserved_nodes=True), OVERRESERVE]
)
def test_every_cache_places_a_pod_on_a_free_node(arguments: Arguments) -> None:
    assert driver(arguments, A).passing(A, ["n1", "n2"]) == [(25, "n1")]


def test_a_reservation_counts_from_its_event_until_it_is_withdrawn() -> None:
    tested = driver(OVERRESERVE, A, B)
    tested.evolve(PodReserved(A.uid, "n1"))
    assert tested.verdict(B, "n1").message == "cannot align container"
    tested.evolve(ReservationWithdrawn(A.uid, "n1", "node_ended"))
    assert tested.verdict(B, "n1").passes


def test_a_refused_bind_ends_the_reservation() -> None:
    tested = driver(OVERRESERVE, A, B)
    tested.evolve(PodReserved(A.uid, "n1"))
    tested.evolve(BindRefused(A.uid, "n1", "other_node", ""))
    assert tested.verdict(B, "n1").passes


def test_discardreserved_opens_the_node_with_the_bind() -> None:
    tested = driver(Arguments(discard_reserved_nodes=True), A, B)
    tested.evolve(PodReserved(A.uid, "n1"))
    assert tested.verdict(B, "n1").message == "invalid node topology data"
    tested.evolve(PodBound(A.uid, "n1"))
    assert tested.verdict(B, "n1").passes


@pytest.mark.parametrize("arguments", [Arguments(discard_reserved_nodes=True), OVERRESERVE])
@pytest.mark.parametrize("told_of_it", [[], [BindRefused(A.uid, "n1", "gone", "")]])
def test_a_pod_that_ends_before_it_is_bound_leaves_its_node_open(
    arguments: Arguments, told_of_it: list[BindRefused]
) -> None:
    """In the original the binding cycle then fails, and Unreserve is called with the pod
    (`reserve.go`).
    """
    tested = driver(arguments, A, B)
    tested.evolve(PodReserved(A.uid, "n1"))
    assert not tested.verdict(B, "n1").passes
    tested.evolve(PodEnded(A.uid, "deleted"))
    for refused in told_of_it:
        tested.evolve(refused)
    assert tested.verdict(B, "n1").passes


def test_a_pod_that_ends_on_its_node_before_its_binding_is_reported_was_bound() -> None:
    """PostBind opens the node of DiscardReserved; OverReserve keeps the reservation until a
    flush.
    """
    for arguments, passes in ((Arguments(discard_reserved_nodes=True), True), (OVERRESERVE, False)):
        tested = driver(arguments, A, B)
        tested.evolve(PodReserved(A.uid, "n1"))
        tested.evolve(PodEnded(A.uid, "succeeded", node="n1"))
        tested.evolve(PodBound(A.uid, "n1"))
        assert tested.verdict(B, "n1").passes is passes


def test_a_tick_believes_a_report_whose_fingerprint_agrees_with_the_running_pods() -> None:
    tested = driver(OVERRESERVE, A, B)
    tested.evolve(PodReserved(A.uid, "n1"))
    assert not tested.verdict(B, "n1").passes
    tested.evolve(PodRunning(A.uid, "n1"))
    tested.tick()
    tested.evolve(NodeReported(told("a", free=7, at=2)))
    tested.tick()
    assert tested.verdict(B, "n1").passes


def test_passthrough_sees_a_changed_report_at_once() -> None:
    tested = driver(Arguments(), A)
    tested.evolve(NodeReportChanged("n1", "boot-1", 2, available={0: {"cpu": 2000}}))
    assert not tested.verdict(A, "n1").passes


def test_a_foreign_pod_closes_the_node() -> None:
    tested = driver(OVERRESERVE, A)
    foreign = Pod("uid-f", "kube-system", "agent")
    tested.evolve(PodObserved(foreign, node="n1", phase="Running"))
    assert tested.verdict(A, "n1").message == "invalid node topology data"


def test_ended_pods_and_nodes_leave_the_lister_and_the_api() -> None:
    tested = driver(OVERRESERVE, A, B)
    tested.evolve(PodEnded(A.uid, "deleted"))
    tested.evolve(PodRunning(B.uid, "n1"))
    tested.evolve(NodeEnded("n1", "node-uid", "deleted"))
    assert (tested.mirror.lister(), tested.mirror.nodes(), tested.mirror.live("n1")) == (
        [],
        [],
        None,
    )
    assert tested.verdict(A, "n1").message == "node not found"


def test_events_about_unknown_pods_and_nodes_are_harmless() -> None:
    tested = driver()
    for event in (
        PodEnded("x", "deleted"),
        PodRunning("x", "n9"),
        PodReserved("x", "n9"),
        PodBound("x", "n9"),
    ):
        tested.evolve(event)
    tested.evolve(NodeReportChanged("n9", "boot", 1))
    tested.tick()
    assert tested.mirror.lister() == []


def test_a_restart_forgets_what_the_original_would_forget() -> None:
    tested = driver(OVERRESERVE, A, B)
    tested.evolve(PodReserved(A.uid, "n1"))
    tested.start()
    assert tested.verdict(B, "n1").passes


def test_a_start_hears_of_every_foreign_pod_that_is_there() -> None:
    """client-go's AddEventHandler hands over what the informer holds already, and the plugin takes
    each for news.
    """
    tested = driver(OVERRESERVE, A)
    tested.evolve(PodObserved(Pod("uid-f", "kube-system", "agent"), node="n1", phase="Running"))
    tested.start()
    assert tested.verdict(A, "n1").message == "invalid node topology data"
    tested.evolve(
        NodeReported(
            report(
                zone(0, 8, 8), at=3, placements=None, fingerprint=AGENT, fingerprint_method="all"
            )
        )
    )
    tested.tick()
    assert tested.verdict(A, "n1").passes


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "withdraw", "report", "foreign", "tick", "place"]),
            st.integers(0, 3),
        ),
        max_size=25,
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_kept_judgements_equal_fresh_ones_whatever_happened_between(
    story: list[tuple[str, int]],
) -> None:
    pods = [pod(f"p{at}", cpus=2 + at) for at in range(4)]
    tested = driver(OVERRESERVE, *pods)
    for number, (step, time_s) in enumerate(story):
        match step:
            case "reserve":
                tested.evolve(PodReserved(pods[time_s].uid, "n1"))
            case "withdraw":
                tested.evolve(ReservationWithdrawn(pods[time_s].uid, "n1", "node_ended"))
            case "report":
                tested.evolve(NodeReported(told("f", free=2 * time_s, at=2 + number)))
            case "foreign":
                tested.evolve(
                    PodObserved(
                        Pod("uid-f", "ns", "f", scheduler_name="other"), node="n1", phase="Running"
                    )
                )
            case "tick":
                tested.tick()
            case _:
                tested.passing(pods[time_s], ["n1"])
        for new_pod in pods:
            passes, kept = tested.verdict(new_pod, "n1").passes, tested.passing(new_pod, ["n1"])
            fresh = tested.plugin.score(from_domain(new_pod), "n1", tested.mirror.live)
            assert kept == ([(fresh, "n1")] if passes else [])
