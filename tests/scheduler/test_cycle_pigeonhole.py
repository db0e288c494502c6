"""Where many are on their way, those that are left with too few amounts or too few takers: a bound
ahead of the search.

Pods that ran in this boot and are listed no more hold what they held, or have ended: the log does
not show which. Pods are listed with nothing before they are admitted. Init containers draw later
ones to their zone. The judge is a search without bounds, over every state and order; the kubelet
model holds that to account (`test_cycle_soundness`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from services.scheduler.filter.topology import pigeonhole
from services.scheduler.filter.topology.fit import is_sure, pending_parts_of, search_result
from services.scheduler.filter.topology.pigeonhole import (
    PendingPart,
    PendingParts,
    each_is_left_a_zone,
)
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.pod import ContainerKind, Pod
from shared.domain.report import Placement, Report
from shared.hints.admission_orders import UNKNOWN
from shared.kubelet.admission import drop_stale, remove
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.kubelet_worlds import NODE, Scene, proven_world, report_of, scene

STEPS = 20_000
RULES = [
    ("single-numa-node", "container"),
    ("single-numa-node", "pod"),
    ("restricted", "container"),
    ("restricted", "pod"),
    ("best-effort", "container"),
    ("best-effort", "pod"),
]


def world_of(seed: int, seen: Scene) -> World:
    """Return the world of the scene. Some pods have ended unobserved, and some pending pods are
    listed without resources.
    """
    rng, world, remaining = (
        random.Random(f"left {seed}"),
        proven_world(seen.base, CycleConfig()),
        seen.base,
    )
    for uid in [uid for uid in seen.base.pods if rng.random() < 0.6]:
        remaining = drop_stale(remove(remaining, uid))
    for pod in seen.unconfirmed:
        world.bound(pod, NODE)
    coming = [pod for pod in seen.unconfirmed if rng.random() < 0.5]
    names = [
        Placement(pod.namespace, pod.name, each.name, ())
        for pod in coming
        for each in pod.containers
    ]
    world.report(_listing(report_of(remaining, True), names))
    return world


def _listing(report: Report, more: list[Placement]) -> Report:
    return msgspec.structs.replace(report, placements=(*(report.placements or ()), *more))


def looked_at(seed: int, policy: str, scope: str) -> tuple[NodeInfo, Plan, bool]:
    """Return a node with up to six pending pods, the plan of the new pod, and whether a bound shows
    that the node admits it.
    """
    seen = scene(seed, policy, scope, random.Random(seed).choice((2, 3, 4)), unconfirmed=6)
    world = world_of(seed, seen)
    pod_class, node_info = world.cluster.evaluator.pod_class(seen.pod), world.cluster.node(NODE)
    assert node_info is not None
    plan, _ = world.cluster.evaluator.plan(pod_class, node_info)
    return (
        node_info,
        plan,
        plan.mode != "free" and not plan.needs_search and is_sure(node_info, pod_class, plan),
    )


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_no_bound_promises_what_a_search_refuses(policy: str, scope: str) -> None:
    wrong, promises = [], 0
    for seed in range(9000, 9160):
        node_info, plan, passes = looked_at(seed, policy, scope)
        if passes:
            promises += 1
            if search_result(node_info, plan, STEPS) not in ("admitted", UNKNOWN):
                wrong.append(seed)
    assert wrong == []
    assert promises > 10


def crowd(seed: int, policy: str, scope: str) -> tuple[NodeInfo, Plan]:
    """Return small zones with uneven free amounts, and up to five pending pods that request CPUs
    and GPUs, some with init containers.
    """
    rng, world = random.Random(seed), World()
    zones = [
        zone(at, amounts(cpu=rng.randint(1, 8), gpu=rng.randint(0, 3)), amounts(cpu=8, gpu=3))
        for at in range(rng.randint(2, 4))
    ]
    world.node(NODE, *zones, policy=policy, scope=scope)
    for number in range(rng.randint(1, 5)):
        tell = world.running if rng.random() < 0.5 else world.bound
        tell(_small(rng, f"p{number}"), NODE)
    pod_class, node_info = (
        world.cluster.evaluator.pod_class(_small(rng, "newcomer")),
        world.cluster.node(NODE),
    )
    assert node_info is not None
    return node_info, world.cluster.evaluator.plan(pod_class, node_info)[0]


def _small(rng: random.Random, name: str) -> Pod:
    numbers: tuple[tuple[ContainerKind, int], ...] = (
        ("init", rng.choice((0, 0, 1, 2))),
        ("sidecar", rng.choice((0, 0, 0, 1))),
        ("app", rng.choice((1, 1, 2))),
    )
    kinds = [kind for kind, count in numbers for _ in range(count)]
    holdings = [amounts(cpu=rng.choice((1, 1, 2, 3)), gpu=rng.choice((0, 0, 1))) for _ in kinds]
    return guaranteed(
        name,
        *(
            container(f"c{at}", each, kind)
            for at, (kind, each) in enumerate(zip(kinds, holdings, strict=True))
        ),
    )


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_no_count_of_a_crowd_promises_what_a_search_refuses(policy: str, scope: str) -> None:
    wrong, promises = [], 0
    for seed in range(600):
        node_info, plan = crowd(seed, policy, scope)
        assert node_info.report is not None
        waiting, parts = (
            pending_parts_of(node_info),
            pigeonhole.parts_of(plan.demand, policy, scope, node_info.report),
        )
        if (
            waiting is None
            or parts is None
            or not pigeonhole.every_part_finds_a_zone(waiting, parts)
        ):
            continue
        promises += 1
        if search_result(node_info, plan, STEPS) not in ("admitted", UNKNOWN):
            wrong.append(seed)
    assert wrong == []
    assert promises > 20


def _on_the_way(*asked: Sequence[float], zones: Sequence[float]) -> PendingParts:
    """Return zones with these free CPUs, and one pending pod for each of `asked`, with a container
    for each number of CPUs.
    """
    world = World()
    world.node(NODE, *(zone(at, amounts(cpu=free)) for at, free in enumerate(zones)))
    for number, cpus in enumerate(asked):
        containers = [container(f"c{at}", amounts(cpu=each)) for at, each in enumerate(cpus)]
        world.bound(guaranteed(f"p{number}", *containers), NODE)
    node_info = world.cluster.node(NODE)
    assert node_info is not None
    parts = pending_parts_of(node_info)
    assert parts is not None
    return parts


def test_amounts_that_do_not_go_far_enough_block_few_zones() -> None:
    """Two of 6 CPUs block a zone of 16 for a pod of 5. Counted separately for each of four zones
    that takes all eight pods; but together they request 18, and it takes 12 per zone.
    """
    waiting, asked = _on_the_way([6], [6], *[[1]] * 6, zones=[16, 16, 16, 16]), amounts(cpu=5)
    everybody = waiting.ranks.joined([asked])
    assert not pigeonhole._too_few_takers(asked, waiting.base, everybody, len(waiting.parts))
    assert each_is_left_a_zone(
        waiting.packing.joined([PendingPart(asked, asked)]), [len(waiting.parts)]
    )


def test_each_pending_container_must_have_a_zone() -> None:
    """A container of 1 CPU has a zone in any case; the container of 6 CPUs next to it has not."""
    waiting = _on_the_way([1, 6], zones=[6, 1])
    assert [amounts(cpu=6)] == [each.asked for each in waiting.seek]


def test_a_running_pod_takes_a_zone_and_looks_for_none() -> None:
    """One of 5 CPUs may take the only zone of one of 6 that is on its way; once that one runs, the
    others are left. The same holds for an init container that attracts later containers to its
    zone.
    """
    for containers in (
        [container("c", amounts(cpu=6))],
        [container("i", amounts(cpu=2), "init"), container("c", amounts(cpu=5))],
    ):
        world = World()
        world.node(NODE, *(zone(at, amounts(cpu=cpus)) for at, cpus in enumerate((8, 5, 5))))
        world.bound(guaranteed("p", *containers), NODE)
        assert not _counts_a_pod_of(5, world)
        world.running(guaranteed("p", *containers), NODE)
        assert _counts_a_pod_of(5, world)


def _counts_a_pod_of(cpus: int, world: World) -> bool:
    node_info = world.cluster.node(NODE)
    assert node_info is not None
    waiting = pending_parts_of(node_info)
    asked = [PendingPart(amounts(cpu=cpus), amounts(cpu=cpus))]
    return waiting is not None and pigeonhole.every_part_finds_a_zone(
        waiting, pigeonhole.PodParts(asked, asked)
    )
