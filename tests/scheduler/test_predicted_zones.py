"""Nodes are ranked by the zones that the kubelet will give a pod: fewer first, then nearer ones,
then the strategy.
"""

from __future__ import annotations

from itertools import count

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.comparison.truth import TrueNode, parts_held
from services.scheduler.score.least_spread import LeastSpreads, least_spread
from services.scheduler.score.predicted_zones import predicted_spread
from services.scheduler.score.ranks import RULED_OUT, rank_of, score_of, spread_of
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.scheduler.snapshot.zone_distances import FAR
from services.simulator.cluster import NodeShape, Policies, lay_out
from shared.domain.cpus import CpuLayout
from shared.domain.pod import Pod
from shared.domain.report import Zone, ZoneResource
from shared.kubelet import admission
from shared.kubelet.device_state import Device
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import (
    ALLOCATABLE,
    GPU,
    World,
    amounts,
    container,
    guaranteed,
    report,
    zone,
)

WHOLE = amounts(8, 16, 2)
# What the strategies see of a whole node: much less than on other nodes (64 CPUs).
FULLER = {"cpu": 12_000, "memory": 64 << 30, "pods": 110, GPU: 4}
STRATEGIES = ("KeepRoom", "BestFit", "MostAllocated", "LeastAllocated", "LeastNUMANodes")
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def zones_of(*free: tuple[float, float, int], far: int = 20) -> list[Zone]:
    """Return zones in pairs: distance 11 within a pair, `far` between pairs."""
    made = []
    for zone_id, amounts_free in enumerate(free):
        costs = {
            other: 10 if other == zone_id else 11 if other // 2 == zone_id // 2 else far
            for other in range(len(free))
        }
        made.append(
            msgspec.structs.replace(zone(zone_id, amounts(*amounts_free), WHOLE), costs=costs)
        )
    return made


def chosen(world: World, pod: Pod) -> str:
    placed = world.cluster.place(pod)
    assert isinstance(placed, Placed)
    assert 0 <= placed.score <= 100
    return placed.node


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("is_on", [True, False])
def test_one_zone_comes_before_two_whatever_the_strategy_prefers(
    strategy: str, is_on: bool
) -> None:
    """The fuller node splits 4 CPUs, the empty node gives them from one zone."""
    world = World(CycleConfig(strategy=strategy, rank_by_zones=is_on))
    split = zones_of((3, 8, 2), (3, 8, 2))
    world.node("split", *split, policy="best-effort", allocatable=FULLER)
    world.node("whole", *zones_of((8, 16, 2), (8, 16, 2)), policy="best-effort")
    prefers_fuller = strategy in ("KeepRoom", "BestFit", "MostAllocated")
    expected = "split" if prefers_fuller and not is_on else "whole"
    assert chosen(world, guaranteed("p", container("c", amounts(4)))) == expected


def test_under_none_a_node_that_cannot_be_predicted_comes_last() -> None:
    """Without hints the kubelet does not look for one zone, so enough in one is not a prediction.
    Among nodes that cannot be predicted the amounts decide."""
    pod = guaranteed("p", container("c", amounts(4)))
    world = World(CycleConfig())
    for name, free in (("narrow", 3), ("wide", 5)):
        zones = zones_of((free, 8, 2), (free, 8, 2))
        world.node(name, *zones, policy="none", allocatable=FULLER)
        world.report(report(name, zones, "none", placements=None, time_ms=2))
    assert chosen(world, pod) == "wide"
    world.node("empty", *zones_of((8, 16, 2), (8, 16, 2)), policy="none")
    assert chosen(world, pod) == "empty"


@pytest.mark.parametrize(("policy", "expected"), [("none", "empty"), ("best-effort", "busy")])
def test_under_none_a_node_without_pending_pods_comes_first(policy: str, expected: str) -> None:
    """The strategy prefers the fuller node, where a pod that overtakes may change the zones."""
    world = World()
    world.node("busy", *zones_of((4, 8, 2), (8, 16, 2)), policy=policy, allocatable=FULLER)
    world.node("empty", *zones_of((8, 16, 2), (8, 16, 2)), policy=policy)
    world.bound(guaranteed("pending", container("c", amounts(1))), "busy")
    assert chosen(world, guaranteed("p", container("c", amounts(2)))) == expected


def test_under_none_a_split_pod_leaves_nodes_with_pending_pods_alone() -> None:
    """It could split the pending pod, too, so that farther zones elsewhere come first."""
    world = World()
    free, taken = (8, 16, 2), (0, 0, 0)
    world.node("busy", *zones_of(free, free, taken, taken), policy="none")
    world.node("far", *zones_of(free, taken, free, taken), policy="none")
    pod = guaranteed("p", container("c", amounts(10)))
    assert chosen(world, pod) == "busy"
    world.bound(guaranteed("pending", container("c", amounts(1))), "busy")
    assert chosen(world, pod) == "far"


def test_near_zones_come_before_far_ones() -> None:
    world = World(CycleConfig())
    for name, free in (("far", (0, 2)), ("near", (2, 3))):
        zones = [(8, 16, 2) if at in free else (0, 0, 0) for at in range(4)]
        world.node(name, *zones_of(*zones), policy="best-effort")
    for zone_id in range(4):
        assert chosen(world, guaranteed(f"p{zone_id}", container("c", amounts(12)))) == "near"


def test_restricted_pods_of_several_zones_are_ranked_by_the_strategy() -> None:
    world = World(CycleConfig(strategy="MostAllocated"))
    world.node("emptier", *zones_of((8, 16, 2), (8, 16, 2)), policy="restricted")
    fuller = zones_of((6, 16, 2), (6, 16, 2))
    world.node("fuller", *fuller, policy="restricted", allocatable=FULLER)
    for zone_id in range(4):
        pod = guaranteed(f"p{zone_id}", container("c", amounts(10)))
        placed = world.cluster.place(pod)
        assert isinstance(placed, Placed)
        assert placed.node == "fuller"
        assert placed.score > 0


def test_a_preference_of_the_pod_moves_no_pod_to_more_zones() -> None:
    """A step of ranks exceeds whatever scores and preferences add up to."""
    assert rank_of(0, 1) + 500 < rank_of(0, 0) - 1000
    assert rank_of(0, 0) == 0
    for score in (0, 7, 100):
        for far in (0, 1, FAR, 63 * FAR + FAR - 1):
            rank = rank_of(score, far)
            assert (score_of(rank), spread_of(rank)) == (score, far)
            assert rank > RULED_OUT
    assert score_of(RULED_OUT) == RULED_OUT


FREE = st.tuples(st.integers(0, 8), st.integers(0, 16), st.integers(0, 2))
PART = st.tuples(st.integers(0, 12), st.integers(1, 20), st.integers(0, 3))
NODES = st.lists(
    st.tuples(st.lists(FREE, min_size=1, max_size=4), st.sampled_from(POLICIES)),
    min_size=1,
    max_size=6,
)


def pod_of(name: str, parts: list[tuple[int, int, int]], init: bool) -> Pod:
    made = [
        container(f"c{at}", amounts(*part), "init" if init and not at else "app")
        for at, part in enumerate(parts)
    ]
    return guaranteed(name, *made)


NIC = "example.com/nic"
CPUS_BY_ID = CpuLayout("0-31", "0x8,1x8,2x8,3x8", "0x16,1x16", "0-31")


@settings(max_examples=examples(60), deadline=None)
@given(
    NODES,
    st.lists(PART, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(("container", "pod")),
    st.sampled_from((0, 3, 8)),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=4),
    st.booleans(),
)
def test_the_bound_of_many_nodes_is_that_of_one_and_no_prediction_is_below_it(
    nodes: list[tuple[list[tuple[int, int, int]], str]],
    parts: list[tuple[int, int, int]],
    init: bool,
    scope: str,
    unconfirmed: int,
    nics: list[tuple[int, int]],
    has_ids: bool,
) -> None:
    """With two kinds of devices, CPUs by counts or by id, and next to unconfirmed pods."""
    world = World(CycleConfig())
    for number, (free, policy) in enumerate(nodes):
        knows_ids = has_ids and len(free) == 4  # then all CPUs are free in both
        zones = zones_of(*[(8 if knows_ids else cpu, memory, gpu) for cpu, memory, gpu in free])
        for place, (nic, _) in enumerate(nics[: len(zones)]):
            nic_amount = ZoneResource(nic, nic, nic)
            resources = {**zones[place].resources, NIC: nic_amount}
            zones[place] = msgspec.structs.replace(zones[place], resources=resources)
        tracked = "cpu", "memory", GPU, NIC
        made = report(f"n{number}", zones, policy, scope, tracked=tracked)
        if knows_ids:
            made = msgspec.structs.replace(made, cpus=CPUS_BY_ID)
        world.observe(f"n{number}", allocatable={**ALLOCATABLE, NIC: 12})
        world.report(made)
        for index in range(unconfirmed):
            world.bound(
                pod_of(f"u{number}-{index}", [(index % 3, 1 + index % 4, index % 2)], False),
                f"n{number}",
            )
    pod = pod_of("p", parts, init)
    containers = [
        container(part.name, {**part.requests, NIC: nic} if nic else part.requests, part.kind)
        for part, (_, nic) in zip(pod.containers, nics, strict=False)
    ]
    pod = guaranteed("p", *containers)
    compare_bounds(world, pod)
    placed = world.cluster.place(pod)
    if isinstance(placed, Placed):
        world.cluster.assume(placed, pod)
        compare_bounds(world, pod)


def compare_bounds(world: World, pod: Pod) -> None:
    cluster = world.cluster
    pod_class = cluster.evaluator.pod_class(pod)
    cluster.places([])  # the arrays are written
    for node_info in cluster.nodes():
        plan, _ = cluster.evaluator.plan(pod_class, node_info)
        least = least_spread(node_info, plan)
        if plan.parts:
            zones = len(node_info.zone_ids)
            bounds = LeastSpreads(cluster._arrays, cluster._slots, plan, zones)
            at_once = int(bounds.least(np.array([node_info.slot]))[0])
            assert at_once >= least if plan.mode == "aligned" else at_once == least
        if cluster.evaluator.rank(pod_class, node_info) > RULED_OUT:
            assert predicted_spread(node_info, plan) >= least


@settings(max_examples=examples(60), deadline=None)
@given(
    NODES,
    st.lists(st.lists(PART, min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=10),
    st.sampled_from(STRATEGIES),
)
def test_a_pod_goes_where_a_prediction_of_every_node_ranks_it_best(
    nodes: list[tuple[list[tuple[int, int, int]], str]],
    asked: list[list[tuple[int, int, int]]],
    turns: list[int],
    strategy: str,
) -> None:
    """Next to pods that are assumed, too: what the cache keeps is never stale."""
    config = CycleConfig(strategy=strategy, steps_node=1024, steps_last_resort=1024)
    world = World(config)
    for number, (free, policy) in enumerate(nodes):
        world.node(f"n{number}", *zones_of(*free), policy=policy)
    evaluator = world.cluster.evaluator
    for number, turn in enumerate(turns):
        pod = pod_of(f"p{number}", asked[turn % len(asked)], False)
        placed = world.cluster.place(pod)
        pod_class = evaluator.pod_class(pod)
        ranks = {
            node_info.name: evaluator.evaluate(pod_class, node_info)
            for node_info in world.cluster.nodes()
        }
        if not isinstance(placed, Placed):
            assert set(ranks.values()) == {RULED_OUT}
            continue
        assert ranks[placed.node] == max(ranks.values())
        assert placed.score == score_of(ranks[placed.node])
        world.cluster.assume(placed, pod)


# -- against the kubelet


@settings(max_examples=examples(40), deadline=None)
@given(
    st.sampled_from((2, 4)),
    st.lists(
        st.tuples(st.lists(PART, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=8
    ),
)
def test_under_none_no_prediction_is_below_the_bound_whatever_cpus_pods_hold(
    zones: int, pods: list[tuple[list[tuple[int, int, int]], bool]]
) -> None:
    """Reports list CPUs by id; some pods run, others are unconfirmed."""
    policies = Policies("none", "container")
    simulated = lay_out("n", NodeShape(zones, 12 * zones, 32 * zones << 30), policies)
    gpus = {f"gpu-{at}": Device(1 << at % zones) for at in range(2 * zones)}
    simulated = msgspec.structs.replace(simulated, devices={GPU: gpus})
    node, world = TrueNode(simulated, checkpoint=True), World(CycleConfig())
    world.observe("n", allocatable=simulated.allocatable())
    for number, (parts, runs) in enumerate(pods):
        world.report(node.report(float(number + 1)))
        pod = pod_of(f"p{number}", parts, False)
        compare_bounds(world, pod)
        if not admission.admit(node.kubelet.state, pod).admitted:
            continue
        world.bound(pod, "n")
        compare_bounds(world, pod)
        if runs:
            node.reserved(pod)
            node.assigned(pod)
            for step in node.begin(pod.uid).steps:
                node.show(step)
            node.conclude(pod, float(number))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(("none", "best-effort", "restricted")),
    st.sampled_from(("container", "pod")),
    st.sampled_from((2, 4)),
    st.booleans(),
    st.lists(
        st.tuples(st.lists(PART, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=8
    ),
)
def test_the_prediction_is_what_the_kubelet_does(
    policy: str,
    scope: str,
    zones: int,
    with_devices: bool,
    pods: list[tuple[list[tuple[int, int, int]], bool]],
) -> None:
    """Every pod runs and is reported before the next one comes, and each step of its admission is
    reported, too, if no init container leaves what a report does not list. Under policy none the
    kubelet picks devices at random, so that the prediction is the widest choice.
    """
    policies = Policies(policy, scope)
    simulated = lay_out("n", NodeShape(zones, 12 * zones, 32 * zones << 30), policies)
    if with_devices:
        gpus = {f"gpu-{at}": Device(1 << at % zones) for at in range(2 * zones)}
        simulated = msgspec.structs.replace(simulated, devices={GPU: gpus})
    node, world, clock = TrueNode(simulated, checkpoint=True), World(CycleConfig()), count(1)
    world.observe("n", allocatable=simulated.allocatable())

    def is_as_predicted(pod: Pod) -> bool:
        world.report(node.report(float(next(clock))))
        node_info = world.cluster.node("n")
        assert node_info is not None
        pod_class = world.cluster.evaluator.pod_class(pod)
        plan, _ = world.cluster.evaluator.plan(pod_class, node_info)
        verdict = admission.admit(node.shadow(), pod)
        if not verdict.admitted:
            return True
        if scope == "pod" and policy != "none":  # init containers count, too
            parts = [msgspec.structs.replace(part, kind="app") for part in pod.containers]
            pod = msgspec.structs.replace(pod, containers=tuple(parts))
        further = sum(mask.bit_count() - 1 for mask in parts_held(verdict.state, pod))
        predicted = predicted_spread(node_info, plan) // FAR
        return predicted == further or (policy == "none" and with_devices and predicted > further)

    for number, (parts, has_init) in enumerate(pods):
        made = [(cpu, memory, gpu if with_devices else 0) for cpu, memory, gpu in parts]
        pod = pod_of(f"p{number}", made, has_init and len(parts) > 1)
        assert is_as_predicted(pod)
        if not admission.admit(node.kubelet.state, pod).admitted:
            continue
        node.reserved(pod)
        world.bound(pod, "n")
        node.assigned(pod)
        for step in node.begin(pod.uid).steps:
            node.show(step)
            if not has_init:
                assert is_as_predicted(pod_of(f"after-{number}", made, False))
        node.conclude(pod, float(number))
