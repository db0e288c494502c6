"""Devices that lie in several zones at once: an allocated one is gone from each of them. So zones
cannot be counted as independent, and a charge in one is a charge in all.
"""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason
from shared.kubelet.admission import admit, remove
from shared.kubelet.machine import KubeletState
from shared.ledger.state import ZoneAmounts
from tests.kubelet.machines import GIB, GPU, container, guaranteed, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import (
    NODE,
    Scene,
    measured,
    proven_world,
    report_of,
    truth,
    world_of,
)
from tests.scheduler.test_cycle_soundness import RULES

BETWEEN = 0b11


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_where_all_pods_are_proven_the_verdict_is_the_kubelets(policy: str, scope: str) -> None:
    outcome = measured(range(300), policy, scope, unconfirmed=0, between=0.6)
    assert (outcome.unsound, outcome.refused_needlessly) == ([], [])
    assert outcome.passed > 90
    assert outcome.refused > 90


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_pending_admissions_it_is_sound_and_nearly_exact(policy: str, scope: str) -> None:
    outcome = measured(range(1000, 1200), policy, scope, unconfirmed=3, between=0.6, running=0.3)
    assert outcome.unsound == []
    assert len(outcome.refused_needlessly) <= 2, outcome.refused_needlessly
    assert outcome.passed > 50


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_without_checkpoints_it_is_sound(policy: str, scope: str) -> None:
    outcome = measured(
        range(2000, 2100), policy, scope, unconfirmed=2, between=0.6, checkpoints=False
    )
    assert outcome.unsound == []
    assert outcome.passed > 20


@pytest.mark.parametrize("policy", [SINGLE_NUMA_NODE, RESTRICTED])
def test_no_bound_promises_more_than_a_search_finds(policy: str) -> None:
    outcome = measured(
        [11642], policy, "container", unconfirmed=2, by_search=True, zones=2, between=0.6
    )
    assert (outcome.refused, outcome.unsound) == (1, [])


def test_an_empty_node_has_no_zone_left_for_the_second_container() -> None:
    """Each container fits both zones, but the first may take both devices of the second zone with
    its own.
    """
    state = kubelet(2, gpus={"a": 0b01, "b": BETWEEN, "c": BETWEEN})
    pod = guaranteed("p", container("c0", 1, 40, 2), container("c1", 1, 40, 1))
    world = proven_world(state, CycleConfig())
    refusal = world.cluster.verdict(pod, NODE)
    assert refusal is not None
    assert refusal.reason is Reason.NO_ZONE_SET
    assert not isinstance(world.cluster.place(pod), Placed)


def test_a_pod_without_a_device_may_cost_another_the_zone_of_its_device() -> None:
    """Pod b is in zone 0, because zone 1 has too little memory, and may have the only device of
    zone 1. Then a needs zone 0, and the new pod would take its CPUs.
    """
    reserved = {0: {"memory": GIB}, 1: {"memory": 30 * GIB}}
    state = kubelet(2, gpus={"x": 0b01, "y": BETWEEN}, reserved_memory=reserved)
    coming = guaranteed("a", container("c0", 4, 1, 1)), guaranteed("b", container("c0", 0, 50, 1))
    scene = Scene(state, coming, guaranteed("n", container("c0", 3, 1)))
    assert truth(scene) == "endangers"
    assert world_of(scene, CycleConfig()).cluster.verdict(scene.pod, NODE) is not None


@pytest.mark.parametrize("policy", [SINGLE_NUMA_NODE, RESTRICTED, BEST_EFFORT, NONE])
def test_what_a_pod_on_its_way_may_take_is_surely_free_in_no_zone_of_it(policy: str) -> None:
    """The pending pod may hold CPUs only in zone 1, because zone 0 has too few."""
    state = kubelet(2, policy, gpus={"x": 0b01, "y": BETWEEN})
    world = world_of(
        Scene(state, (guaranteed("a", container("c0", 7, 1, 1)),), guaranteed("n")), CycleConfig()
    )
    node = world.ledger.nodes[NODE]
    assert [node.free_min[zone][GPU] for zone in (0, 1)] == [1, 0]
    assert [node.free_max[zone][GPU] for zone in (0, 1)] == [2, 1]
    assert node.free_min[0]["cpu"] == (6000 if policy == SINGLE_NUMA_NODE else -1000)


def test_held_amounts_are_not_free_even_at_best() -> None:
    state = admit(kubelet(2, gpus={"y": BETWEEN}), guaranteed("a", container("c0", 1, 1, 1))).state
    node = proven_world(state, CycleConfig()).ledger.nodes[NODE]
    assert [(node.free_min[zone][GPU], node.free_max[zone][GPU]) for zone in (0, 1)] == [
        (0, 0),
        (0, 0),
    ]


# -- what is told zone by zone
# ----------------------------------------------------------------------------------------------


def many_devices(state: KubeletState, *pods: Pod) -> World:
    """A node with devices for all in its object, so that its zones decide."""
    world = World(CycleConfig())
    world.observe(NODE, allocatable={"cpu": 10**6, "memory": 1 << 50, GPU: 100, "pods": 1000})
    for pod in pods:
        world.bound(pod, NODE)
    world.report(report_of(state, stored=True))
    return world


@pytest.mark.parametrize("devices", [1, 2])
def test_what_a_pod_held_before_it_may_hold_still(devices: int) -> None:
    """A report lacks the pod, and no event shows that it has ended."""
    empty = kubelet(2, gpus={f"y{each}": BETWEEN for each in range(devices)})
    old, new = (
        guaranteed("old", container("c0", 1, 1, 1)),
        guaranteed("new", container("c0", 1, 1, 1)),
    )
    world = many_devices(admit(empty, old).state, old)
    assert world.ledger.nodes[NODE].charges["old"].confirmed
    world.report(report_of(remove(admit(empty, old).state, "old"), stored=True))
    assert not world.ledger.nodes[NODE].charges["old"].confirmed
    assert (world.cluster.verdict(new, NODE) is None) is (devices > 1)


@pytest.mark.parametrize("devices", [1, 2])
def test_no_other_pod_gets_what_a_nominee_claims(devices: int) -> None:
    world = many_devices(kubelet(2, gpus={f"y{each}": BETWEEN for each in range(devices)}))
    node, claim = world.ledger.nodes[NODE], ZoneAmounts({0: {GPU: 1}, 1: {GPU: 1}})
    node.claims = {"nominee": claim}
    world.cluster.put_node(node)
    assert (world.cluster.verdict(guaranteed("new", container("c0", 1, 1, 1)), NODE) is None) is (
        devices > 1
    )
