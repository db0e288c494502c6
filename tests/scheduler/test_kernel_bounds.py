"""The kernel's bounds of many nodes are the plain bounds of each, under every policy and scope."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.filter.topology import predict
from services.scheduler.filter.topology.bounds import PlanBounds
from services.scheduler.snapshot import kernel
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.ledger import charge
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

WHOLE = amounts(16, 64, 4)
FREE = st.tuples(st.integers(0, 16), st.integers(0, 64), st.integers(0, 4))
NODES = st.lists(
    st.tuples(
        st.sampled_from((SINGLE_NUMA_NODE, RESTRICTED, BEST_EFFORT, NONE)),
        st.sampled_from(("container", "pod")),
        st.lists(FREE, min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
)
PART = st.tuples(st.integers(1, 12), st.integers(1, 40), st.integers(0, 2))
PODS = st.lists(
    st.lists(st.tuples(st.booleans(), PART), min_size=1, max_size=3), min_size=1, max_size=8
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(NODES, PODS)
def test_bounds_of_many_nodes_are_those_of_each(nodes: list[Any], pods: list[Any]) -> None:
    world = World(CycleConfig())
    for number, (policy, scope, zones) in enumerate(nodes):
        listed = [zone(at, amounts(*free), WHOLE) for at, free in enumerate(zones)]
        world.node(f"n{number}", *listed, policy=policy, scope=scope)
    for number, parts in enumerate(pods):
        containers = [
            container(f"c{at}", amounts(*part), kind="init" if is_init and at else "app")
            for at, (is_init, part) in enumerate(parts)
        ]
        pod = guaranteed(f"p{number}", *containers)
        placed = world.cluster.place(pod)
        compare(world, pod)
        if isinstance(placed, Placed):
            world.cluster.assume(placed, pod)
            compare_arrays(world)
            compare(world, pod)
            compare_zones(world, pod)


def compare_arrays(world: World) -> None:
    """What a reservation was subtracted from is what the nodes have."""
    arrays = world.cluster._arrays
    names = "free_min", "free_max", "free", "totals", "is_open"
    subtracted = [getattr(arrays, name).copy() for name in names]
    stale = set(arrays.stale)
    for node_info in world.cluster.nodes():
        if node_info.slot not in stale:
            arrays.changed(node_info)
    arrays.refresh()
    for name, earlier in zip(names, subtracted, strict=True):
        fresh = [slot for slot in range(arrays.size) if slot not in stale]
        assert earlier[..., fresh].tolist() == getattr(arrays, name)[..., fresh].tolist(), name


def compare_zones(world: World, pod: Any) -> None:
    """The kernel's zones of a class lead to the landing and the places that the plain forms say."""
    cluster = world.cluster
    pod_class = cluster.evaluator.pod_class(pod)
    for node_info in cluster.nodes():
        plan, _ = cluster.evaluator.plan(pod_class, node_info)
        report, free_max = node_info.report, node_info.free_max
        assert report is not None
        demand = pod_class.kind.demand_on(report)
        charge._landings.clear()
        cluster.evaluator.note_landing(pod_class, node_info)
        noted = charge.landing(demand, report, free_max)
        charge._landings.clear()
        assert noted == charge.landing(demand, report, free_max)
        places = cluster.evaluator.sure_places(pod_class, node_info)
        if predict._is_plain(node_info, plan):
            plain = predict.sure_places(node_info, plan)
            assert (places and list(places)) == (plain and list(plain))


def compare(world: World, pod: Any) -> None:
    """Check that both forms give the same answer for each group of nodes that has one plan of the
    pod.
    """
    cluster = world.cluster
    arrays, slots = cluster._arrays, cluster._slots
    arrays.refresh()
    pod_class = cluster.evaluator.pod_class(pod)
    for group in arrays.groups():
        plan = pod_class.plan(group.profile)
        zones = len(group.profile.layout)
        for with_fits in (False, True):
            bounds = PlanBounds(arrays, slots, plan, pod_class.request, zones, with_fits)
            compiled = bounds.aligned(group.slots, group.size)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(kernel, "COMPILED", None)
                plain = bounds.aligned(group.slots, group.size)
            for name, ours, theirs in zip(plain._fields, compiled, plain, strict=True):
                assert (ours is None) == (theirs is None)
                if ours is not None and theirs is not None:
                    assert ours.tolist() == theirs.tolist(), name
        if plan.mode == "unaligned":
            compare_unaligned(arrays, slots, plan, group)


def compare_unaligned(arrays: Any, slots: Any, plan: Any, group: Any) -> None:
    answers = []
    for compiled in (kernel.COMPILED, None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(kernel, "COMPILED", compiled)
            bounds = PlanBounds(arrays, slots, plan, {}, len(group.profile.layout), False)
            answers.append(
                [answer.tolist() for answer in bounds.unaligned(group.slots, group.size)]
            )
    assert answers[0] == answers[1]
