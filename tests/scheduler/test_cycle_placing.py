"""Placing pods on small clusters: passing pods, refusals, and their messages."""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Constraints, NodeSelectorTerm, Pod, Toleration
from shared.domain.refusal import Reason
from shared.events.cluster_events import Taint
from tests.scheduler.cycle_worlds import GPU, World, amounts, container, guaranteed, zone


def test_a_pod_goes_where_one_zone_holds_it() -> None:
    world = World()
    world.node("small", zone(0, amounts(4, 8)), zone(1, amounts(4, 8)))
    world.node("large", zone(0, amounts(4, 8)), zone(1, amounts(8, 16)))
    placed = world.cluster.place(guaranteed("p", container("c", amounts(6, 8))))
    assert isinstance(placed, Placed)
    assert (placed.node, placed.predicted) == ("large", {"c": (1,)})


def test_a_reservation_is_charged_at_once_and_again_by_the_fold_without_a_difference() -> None:
    world = World()
    world.node("n", zone(0, amounts(8, 8)), zone(1, amounts(4, 8)))
    pod = guaranteed("p", container("c", amounts(6, 4)))
    placed = world.cluster.place(pod)
    assert isinstance(placed, Placed)
    charged = world.cluster.assume(placed, pod)
    node_info = world.cluster.node("n")
    assert node_info is not None
    ahead = {number: dict(held) for number, held in node_info.free_min.items()}
    world.bound(pod, "n")
    assert charged == world.ledger.nodes["n"].charges["p"].zones
    assert node_info.free_min == ahead == world.ledger.nodes["n"].free_min
    assert isinstance(
        world.cluster.place(guaranteed("q", container("c", amounts(6, 4)))), Unplaceable
    )


def test_more_room_can_be_worse_so_that_every_branch_counts() -> None:
    """Zone 0 has 8 CPUs and a GPU, zone 1 has 14 CPUs. The unconfirmed pod A of 6 CPUs is in
    either. Container c1 of 7 CPUs may take the zone that c2 needs.
    """
    world = World()
    world.node("n", zone(0, amounts(8, gpu=1)), zone(1, amounts(14), amounts(14, gpu=1)))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    pod = guaranteed("p", container("c1", amounts(7)), container("c2", amounts(2, gpu=1)))
    assert isinstance(world.cluster.place(pod), Unplaceable)
    refusal = world.cluster.verdict(pod, "n")
    assert refusal is not None
    assert refusal.reason is Reason.NOT_ON_EVERY_BRANCH


def test_an_unconfirmed_pod_in_one_of_two_zones_leaves_the_other_whole() -> None:
    world = World()
    world.node("n", zone(0, amounts(8)), zone(1, amounts(8)))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    assert isinstance(world.cluster.place(guaranteed("p", container("c", amounts(8)))), Placed)
    world.bound(guaranteed("b", container("c", amounts(2))), "n")
    assert isinstance(world.cluster.place(guaranteed("q", container("c", amounts(8)))), Placed)
    world.bound(guaranteed("d", container("c", amounts(1))), "n")
    assert isinstance(world.cluster.place(guaranteed("q", container("c", amounts(8)))), Unplaceable)


def test_the_event_line_counts_reasons_and_names_the_nearest_zone() -> None:
    world = World()
    world.node("n1", zone(0, amounts(4, 8), amounts(16, 8)), zone(1, amounts(6, 8), amounts(16, 8)))
    world.node("n2", zone(0, amounts(5, 8), amounts(16, 8)))
    world.node("n3", zone(0, amounts(16, 8)), allocatable=amounts(16, 4, pods=110))
    refused = world.cluster.place(guaranteed("p", container("c", amounts(8, 6))))
    assert isinstance(refused, Unplaceable)
    assert refused.message == (
        "0/3 nodes are available: 2 node(s) had no NUMA zone with 8 "
        "free cpu (best: 6 on n1/zone 1), 1 Insufficient memory."
    )
    assert refused.counts == {
        "node(s) had no NUMA zone with 8 free cpu": 2,
        "Insufficient memory": 1,
    }
    assert refused.detail[0]["node"] == "n1"
    assert (
        refused.detail[0]["remedy"]
        == "request at most 6 cpu in container c; otherwise necessary: 2 more free cpu in zone 1"
    )


def test_a_refusal_names_the_holders_of_the_zone() -> None:
    world = World()
    world.node("n", zone(0, amounts(8)))
    world.bound(guaranteed("holder", container("c", amounts(6))), "n")
    refusal = world.cluster.verdict(guaranteed("p", container("c", amounts(4))), "n")
    assert refusal is not None
    state = refusal.zones[0]
    assert (state.free, state.possibly_free, state.holders) == (2000, 8000, ("holder",))


def test_a_refusal_names_five_holders_and_counts_the_others() -> None:
    world = World()
    world.node("n", zone(0, amounts(8)))
    for number in range(7):
        world.bound(guaranteed(f"holder-{number}", container("c", amounts(1))), "n")
    refusal = world.cluster.verdict(guaranteed("p", container("c", amounts(4))), "n")
    assert refusal is not None
    state = refusal.zones[0]
    assert state.holders == tuple(f"holder-{number}" for number in range(5))
    assert state.more_holders == 2


def test_predicates_of_the_node_come_before_its_zones() -> None:
    world = World()
    room = zone(0, amounts(8, 8))
    world.node("tainted", room, taints=(Taint("gpu", "yes", "NoSchedule"),))
    world.node("cordoned", room, unschedulable=True)
    world.node("broken", room, ready=False)
    world.node("labelled", room, labels={"disk": "ssd"})
    holder = container("c", amounts(1, 1))
    chosen = world.cluster.place(
        guaranteed("p", holder, constraints=Constraints(node_selector={"disk": "ssd"}))
    )
    assert isinstance(chosen, Placed)
    assert chosen.node == "labelled"
    tolerant = Constraints(tolerations=(Toleration("gpu", "Exists"),), required_affinity=())
    reasons = {
        name: world.cluster.verdict(guaranteed("q", holder), name)
        for name in ("tainted", "cordoned", "broken")
    }
    assert [each.reason if each else None for each in reasons.values()] == [
        Reason.TAINT,
        Reason.UNSCHEDULABLE,
        Reason.NOT_READY,
    ]
    assert world.cluster.verdict(guaranteed("r", holder, constraints=tolerant), "tainted") is None


@pytest.mark.parametrize(
    ("key", "effect", "passes"),
    [
        ("node.kubernetes.io/not-ready", "", True),
        ("node.kubernetes.io/unreachable", "NoSchedule", True),
        ("", "", True),
        ("node.kubernetes.io/not-ready", "NoExecute", False),
        ("gpu", "", False),
    ],
)
def test_a_node_that_is_not_ready_takes_a_pod_that_tolerates_its_taint(
    key: str, effect: str, passes: bool
) -> None:
    """This concerns pods that make a node ready, such as network plugins. kube-scheduler (1.36)
    decides by the taint alone.
    """
    world = World()
    world.node("broken", zone(0, amounts(8, 8)), ready=False)
    tolerant = Constraints(tolerations=(Toleration(key, "Exists", "", effect),))
    pod = guaranteed("p", container("c", amounts(1, 1)), constraints=tolerant)
    assert isinstance(world.cluster.place(pod), Placed) is passes


@pytest.mark.parametrize(
    ("operator", "value", "taint", "passes"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "950", "950", False),
        ("Lt", "950", "900", True),
        ("Lt", "-5", "-10", True),
        ("Lt", "10", "9", True),
        ("Gt", "0900", "950", False),
        ("Gt", "900", "+950", False),
        ("Gt", "900", "high", False),
        ("Lt", "9223372036854775808", "1", False),
        ("Gt", "-0", "1", False),
        ("Ge", "900", "900", False),
    ],
)
def test_a_taint_may_be_tolerated_by_comparison(
    operator: str, value: str, taint: str, passes: bool
) -> None:
    """Values are decimal numbers within 64 bits (KEP-5471)."""
    world = World()
    world.node("n", zone(0, amounts(8, 8)), taints=(Taint("sla", taint, "NoSchedule"),))
    tolerant = Constraints(tolerations=(Toleration("sla", operator, value),))
    pod = guaranteed("p", container("c", amounts(1, 1)), constraints=tolerant)
    assert isinstance(world.cluster.place(pod), Placed) is passes


@pytest.mark.parametrize(
    ("label", "passes"),
    [
        ("17", True),
        ("017", True),
        ("16", False),
        ("1_7", False),
        ("9223372036854775808", False),
        ("", False),
    ],
)
def test_a_label_is_compared_as_go_reads_numbers(label: str, passes: bool) -> None:
    world = World()
    world.node("n", zone(0, amounts(8, 8)), labels={"cores": label})
    term = NodeSelectorTerm((("cores", "Gt", ("16",)),))
    pod = guaranteed(
        "p", container("c", amounts(1, 1)), constraints=Constraints(required_affinity=(term,))
    )
    assert isinstance(world.cluster.place(pod), Placed) is passes


def test_a_constraint_that_is_not_implemented_is_named() -> None:
    world = World()
    world.node("n", zone(0, amounts(8, 8)))
    pod = guaranteed(
        "p",
        container("c", amounts(1)),
        constraints=Constraints(unsupported=("spec.resourceClaims",)),
    )
    refused = world.cluster.place(pod)
    assert isinstance(refused, Unplaceable)
    assert refused.message == "unsupported constraint: spec.resourceClaims"


def test_a_best_effort_pod_needs_no_report_and_no_zone() -> None:
    world = World()
    world.observe("n")
    assert isinstance(world.cluster.place(Pod(uid="p", namespace="ns", name="p")), Placed)
    refused = world.cluster.place(guaranteed("q", container("c", amounts(1))))
    assert isinstance(refused, Unplaceable)
    assert refused.message == "0/1 nodes are available: 1 node(s) had no topology report."


def test_a_burstable_pod_with_a_device_is_aligned_by_the_device_alone() -> None:
    world = World()
    world.node(
        "n", zone(0, amounts(8), amounts(8, gpu=1)), zone(1, amounts(1, gpu=1), amounts(8, gpu=1))
    )
    pod = Pod(
        uid="p",
        namespace="ns",
        name="p",
        qos="Burstable",
        containers=(container("c", amounts(4, gpu=1)),),
    )
    placed = world.cluster.place(pod)
    assert isinstance(placed, Placed)
    assert placed.predicted == {"c": (1,)}
    assert GPU in amounts(gpu=1)
