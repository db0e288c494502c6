"""Parts that no zone holds, under restricted: as few zones as would do if they were empty must have
enough, and as many of each resource. The search confirms the bound, and the array form equals the
loop form.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from services.scheduler.filter.topology.bounds import fits, in_as_few_zones, possible
from services.scheduler.filter.topology.fit import ADMITTED, search_result
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Container, Pod
from shared.ledger.view import total
from tests.kubelet.machines import GIB, GPU
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.kubelet_worlds import MOST_STEPS, NODE, scene, world_of

SCENES = range(500)


def asking_for_several(seed: int) -> Pod:
    """Return a pod that requests more of some resource than one or two zones have."""
    rng, pods = random.Random(f"{seed} wide"), []
    for number in range(rng.choice((1, 1, 2))):
        asked = {
            "cpu": rng.choice((1, 5, 9, 12, 16)) * 1000,
            "memory": rng.choice((1, 20, 70, 100, 140, 200)) * GIB,
        }
        asked |= {GPU: rng.choice((2, 3, 4))} if rng.random() < 0.4 else {}
        asked |= {"hugepages-2Mi": rng.choice((1, 5, 9)) * GIB} if rng.random() < 0.2 else {}
        pods.append(Container(f"c{number}", "app", asked, asked))
    return Pod("wide", "ns", "wide", "Guaranteed", tuple(pods))


def wide(node_info: NodeInfo, plan: Plan) -> bool:
    largest = node_info.machine.capacities.largest
    return plan.mode == "aligned" and any(not fits(part.amounts, largest) for part in plan.parts)


def enough_in_all(node_info: NodeInfo, plan: Plan) -> bool:
    return all(fits(part.amounts, total(node_info.free_max.values())) for part in plan.parts)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_what_too_few_zones_rule_out_no_kubelet_admits(scope: str) -> None:
    ruled_out, looked_at = 0, 0
    for seed in SCENES:
        cluster = world_of(scene(seed, "restricted", scope, 2 + seed % 4), CycleConfig()).cluster
        pod_class, node_info = (
            cluster.evaluator.pod_class(asking_for_several(seed)),
            cluster.node(NODE),
        )
        assert node_info is not None
        plan, _ = cluster.evaluator.plan(pod_class, node_info)
        if not wide(node_info, plan) or plan.needs_search:
            continue
        looked_at += 1
        may, columns = possible(node_info, plan), cluster.evaluator.arrays
        columns.refresh()
        may_of_many = in_as_few_zones(
            columns, plan, np.array([True]), slice(0, 1), len(node_info.zone_ids)
        )
        assert may_of_many[0] or not may, seed
        if not may:
            assert search_result(node_info, plan, MOST_STEPS) != ADMITTED, seed
            ruled_out += enough_in_all(node_info, plan)
    assert ruled_out > 20
    assert looked_at > ruled_out


def test_an_overstated_amount_rules_no_pod_out() -> None:
    """The report has more available than allocatable memory. By this amount one zone would be
    enough, but the kubelet takes two.
    """
    world = World()
    zones = [zone(at, amounts(cpu=8, memory=30), amounts(cpu=8, memory=16)) for at in range(2)]
    world.node("n", *zones, policy="restricted")
    pod = guaranteed("p", container("c", amounts(cpu=10, memory=24)))
    assert isinstance(world.cluster.place(pod), Placed) is (world.cluster.verdict(pod, "n") is None)
    assert world.cluster.verdict(pod, "n") is None
