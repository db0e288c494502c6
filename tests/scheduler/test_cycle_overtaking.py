"""Pending pods of a node reach its kubelet in any order: no new pod may take a zone that one of
them needs.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.comparison.truth import TrueNode
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.simulator.cluster import GPU, NodeShape, Policies, lay_out
from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.refusal import Reason
from shared.domain.report import Placement, Zone, ZonedAmount
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.kubelet import admission
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone
from tests.scheduler.test_cycle_soundness import RULES

GIB = 1 << 30


def test_a_pod_that_could_take_the_only_zone_of_one_on_its_way_waits_for_it() -> None:
    """Zone 0 has 6 CPUs, zone 1 has 4. A of 6 CPUs is pending and needs zone 0. B of 4 would take
    zone 0 if its kubelet admitted it first.
    """
    world = World()
    world.node("n", zone(0, amounts(6)), zone(1, amounts(4)))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    newcomer = guaranteed("b", container("c", amounts(4)))
    assert isinstance(world.cluster.place(newcomer), Unplaceable)
    refusal = world.cluster.verdict(newcomer, "n")
    assert refusal is not None
    assert (refusal.reason, refusal.subject) == (
        Reason.NOT_ON_EVERY_BRANCH,
        "it could take zones that pending pods need",
    )


def test_a_zone_without_the_devices_that_one_on_its_way_asks_for_is_none_that_it_keeps() -> None:
    """Only zone 0 has two GPUs, which A asks for; zone 1 has none, and B takes the lowest zone with
    CPUs.
    """
    world = World()
    zones = zone(0, amounts(6, gpu=2)), zone(1, amounts(8)), zone(2, amounts(8, gpu=1))
    world.node("n", *zones, policy="restricted")
    world.bound(guaranteed("a", container("c", amounts(6, gpu=2))), "n")
    refusal = world.cluster.verdict(guaranteed("b", container("c", amounts(2))), "n")
    assert refusal is not None
    assert refusal.subject == "it could take zones that pending pods need"


def with_sidecar(name: str) -> Pod:
    """5 CPUs next to a sidecar with 3 GiB of hugepages, which no app requests."""
    huge = amounts(1, 1, **{"hugepages-2Mi": 3 * GIB})
    return guaranteed(name, container("s", huge, "sidecar"), container("c", amounts(5, 1)))


@pytest.mark.parametrize(("first", "passes"), [(3, True), (2, False)])
def test_scope_pod_may_choose_a_zone_without_memory_that_no_app_asks_for(
    first: int, passes: bool
) -> None:
    """The hint for the whole pod is made without that memory: zone 0 is taken, and if it lacks some
    the pod is refused there.
    """
    world = huge_world(huge_zone(0, 8, first), huge_zone(1, 8, 4))
    assert isinstance(world.cluster.place(with_sidecar("p")), Placed) is passes


def test_a_newcomer_does_not_send_one_on_its_way_to_a_zone_without_such_memory() -> None:
    """A takes zone 0. If B took it first, A would be sent to zone 1, which has no hugepages left;
    that zone 2 has is no help.
    """
    world = huge_world(huge_zone(0, 6, 3), huge_zone(1, 8, 0), huge_zone(2, 10, 4))
    world.bound(with_sidecar("a"), "n")
    refusal = world.cluster.verdict(guaranteed("b", container("c", amounts(4, 1))), "n")
    assert refusal is not None
    assert refusal.subject == "it could take zones that pending pods need"


def huge_world(*zones: Zone) -> World:
    """Return a world with one node that also tracks hugepages, under scope pod."""
    world, tracked = World(), ("cpu", "memory", "hugepages-2Mi")
    world.observe("n", allocatable=dict.fromkeys((*tracked, "pods"), 1 << 50))
    world.report(report("n", zones, scope="pod", tracked=tracked))
    return world


def huge_zone(number: int, cpus: int, free_gib: int) -> Zone:
    """Return a zone with these CPUs, and so much free of 4 GiB of hugepages."""
    free, size = ({"hugepages-2Mi": each * GIB} for each in (free_gib, 4))
    return zone(number, amounts(cpus, 64, **free), amounts(cpus, 64, **size))


def test_it_passes_as_soon_as_the_other_is_known_to_run() -> None:
    world = World()
    world.node("n", zone(0, amounts(6)), zone(1, amounts(4)))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    newcomer = guaranteed("b", container("c", amounts(4)))
    assert not world.cluster.waiting_could_fit(newcomer, ["n"])
    world.fold("pod/a", PodRunning("a", "n"))
    assert world.cluster.waiting_could_fit(newcomer, ["n"])
    assert isinstance(world.cluster.place(newcomer), Placed)


def test_a_pod_sent_because_of_an_end_is_protected_while_the_report_lists_the_ended_pod() -> None:
    """A takes the place of an ended pod. A kubelet that does not know of the end yet would refuse
    A, but this is no reason to let B take the only zone of A."""
    world = World()
    world.node("n", zone(0, amounts(6)), zone(1, amounts(4)))
    old = guaranteed("old", container("c", amounts(5)))
    world.bound(old, "n")
    listed = Placement("ns", "old", "c", (ZonedAmount("cpu", (0,), 5000),))
    full = report(
        "n", (zone(0, amounts(1), amounts(6)), zone(1, amounts(4))), placements=(listed,), time_ms=2
    )
    world.report(full)
    world.fold("pod/old", PodEnded("old", "deleted"))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    refusal = world.cluster.verdict(guaranteed("b", container("c", amounts(4))), "n")
    assert refusal is not None
    assert refusal.subject == "it could take zones that pending pods need"


def test_assumed_pods_are_pending_too() -> None:
    world = World()
    world.node("n", zone(0, amounts(6)), zone(1, amounts(4)))
    first = guaranteed("a", container("c", amounts(6)))
    placed = world.cluster.place(first)
    assert isinstance(placed, Placed)
    world.cluster.assume(placed, first)
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(4)))), Unplaceable)


def test_another_node_is_taken_instead() -> None:
    world = World()
    world.node("n", zone(0, amounts(6)), zone(1, amounts(4)))
    world.node("m", zone(0, amounts(4)))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    placed = world.cluster.place(guaranteed("b", container("c", amounts(4))))
    assert isinstance(placed, Placed)
    assert placed.node == "m"


def test_what_an_init_container_may_keep_counts_for_the_pods_on_their_way() -> None:
    """The node has 11 CPUs, and A of 7 is pending. B needs 4, because later containers reuse the
    CPU of its init container. But if B is admitted first, it may hold 5.
    """
    world = World()
    world.node("n", zone(0, amounts(11)))
    world.bound(guaranteed("a", container("c", amounts(7))), "n")
    parts = container("i", amounts(1), "init"), container("c", amounts(4))
    assert isinstance(world.cluster.place(guaranteed("b", *parts)), Unplaceable)
    assert isinstance(world.cluster.place(guaranteed("c", container("c", amounts(4)))), Placed)


@pytest.mark.parametrize(("steps", "expected"), [(256, Placed), (1, Unplaceable)])
def test_a_pod_waits_if_a_search_reaches_its_budget(steps: int, expected: type) -> None:
    """Three zones hold one large pod each, and three have to find them. Whatever the order, zone 3
    is left to the last of them, and the new pod finds zone 1; with fewer steps that cannot be
    seen. Next to an ended pod a step is eight admissions, with and without the kernel."""
    world = World(CycleConfig(steps_node=steps, steps_last_resort=steps, steps_pod=steps))
    free = amounts(8, 64), amounts(11, 64), amounts(5, 64, 2), amounts(11, 64, 2)
    world.node("n", *(zone(number, each) for number, each in enumerate(free)))
    for name, holding in (
        ("g1", amounts(3, 3, 2)),
        ("w1", amounts(7, 7)),
        ("w2", amounts(8, 8)),
        ("g2", amounts(3, 3, 2)),
    ):
        world.bound(guaranteed(name, container("c", holding)), "n")
        world.fold(f"pod/{name}", PodRunning(name, "n"))
    world.bound(guaranteed("ended", container("c", amounts(1, 1))), "n")
    world.fold("pod/ended", PodEnded("ended", "succeeded", "n"))
    earlier = guaranteed("p", container("c", amounts(8, 8)))
    placed = world.cluster.place(earlier)
    assert isinstance(placed, expected)
    if not isinstance(placed, Placed):
        return
    world.cluster.assume(placed, earlier)
    newcomer = guaranteed("q", container("i", amounts(2, 2), "init"), container("c", amounts(3, 3)))
    assert isinstance(world.cluster.place(newcomer), Placed)


def test_two_pods_that_fit_each_others_leavings_pass_in_either_order() -> None:
    world = World()
    world.node("n", zone(0, amounts(8)), zone(1, amounts(8)))
    world.bound(guaranteed("a", container("c", amounts(6))), "n")
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(8)))), Placed)


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_also_where_no_zone_can_be_taken_the_cpus_of_init_containers_count(policy: str) -> None:
    """The node has 10 CPUs, and A of 3 is pending. B needs 3 at any time, but keeps the CPUs of its
    init containers, so it may hold 6.
    """
    world = World()
    world.node("n", zone(0, amounts(5)), zone(1, amounts(5)), policy=policy)
    world.bound(guaranteed("a", container("c", amounts(3))), "n")
    world.bound(guaranteed("other", container("c", amounts(3))), "n")
    parts = (
        container("i0", amounts(3), "init"),
        container("i1", amounts(1), "init"),
        container("c0", amounts(1)),
    )
    keeping = guaranteed("b", *parts, container("c1", amounts(2)))
    assert isinstance(world.cluster.place(keeping), Unplaceable)
    refusal = world.cluster.verdict(keeping, "n")
    assert refusal is not None
    assert (refusal.reason, refusal.subject) == (
        Reason.NOT_ON_EVERY_BRANCH,
        "it could take zones that pending pods need",
    )
    assert isinstance(world.cluster.place(guaranteed("c", container("c", amounts(4)))), Placed)
    for uid in ("a", "other"):
        world.fold(f"pod/{uid}", PodRunning(uid, "n"))
    assert isinstance(world.cluster.place(keeping), Placed)


def test_memory_is_left_to_one_on_its_way_whichever_zone_best_effort_chooses() -> None:
    """A's two containers need 4 GiB. B of 6 GiB takes zone 0 of 10, in either order; of 16 GiB it
    needs both zones, so that A coming first would keep it out.
    """
    world = World()
    world.node("n", zone(0, amounts(8, 10)), zone(1, amounts(8, 8)), policy="best-effort")
    world.bound(guaranteed("a", container("c", amounts(1, 2)), container("d", amounts(1, 2))), "n")
    assert isinstance(
        world.cluster.place(guaranteed("b", container("c", amounts(1, 16)))), Unplaceable
    )
    assert isinstance(world.cluster.place(guaranteed("c", container("c", amounts(1, 6)))), Placed)


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_pending_pods_are_all_admitted_in_any_order(policy: str, scope: str) -> None:
    @settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        _arrive_in_any_order(seed, Policies(policy, scope))

    check()


def _arrive_in_any_order(seed: int, policies: Policies) -> None:
    chance = random.Random(seed)
    zones = chance.choice((2, 2, 3, 4))
    shape = NodeShape(
        zones,
        2 * chance.randint(2, 5) * zones,
        64 * GIB * zones,
        {GPU: chance.choice((0, zones, 2 * zones))},
    )
    node = TrueNode(lay_out("n", shape, policies))
    world = World()
    world.observe("n", allocatable=node.simulated.allocatable())
    for number in range(chance.randint(0, 3)):
        old = _random_pod(chance, f"old{number}")
        node.assigned(old)
        node.begin(old.uid)
        if node.conclude(old, 0.0).verdict.admitted:
            world.fold(f"pod/{old.uid}", PodObserved(old, node="n", phase="Running"))
    world.report(node.report(0.0))
    coming = []
    for number in range(6):
        newcomer = _random_pod(chance, f"new{number}")
        if isinstance(world.cluster.place(newcomer), Placed):
            world.bound(newcomer, "n")
            coming.append(newcomer)
    for _ in range(8):
        chance.shuffle(coming)
        state = node.kubelet.state
        for arriving in coming:
            verdict = admission.admit(state, arriving)
            assert verdict.admitted, (
                verdict.reason,
                arriving.name,
                [other.name for other in coming],
            )
            state = verdict.state


def _random_pod(chance: random.Random, name: str) -> Pod:
    first: tuple[ContainerKind, ...] = chance.choice(((), (), ("init",), ("sidecar",)))
    second: tuple[ContainerKind, ...] = chance.choice((("app",), ("app",), ("app", "app")))
    parts = []
    for number, kind in enumerate((*first, *second)):
        asked = {
            "cpu": chance.randint(1, 5) * 1000,
            "memory": chance.choice((1, 1, 1, 12, 24, 40)) * GIB,
        }
        if chance.random() < 0.3:
            asked[GPU] = 1
        parts.append(Container(f"c{number}", kind, asked, asked))
    return Pod(name, "ns", name, "Guaranteed", tuple(parts))
