"""Under best-effort a pod's memory may span several zones, and another's mask may split such a
group: the Memory Manager then refuses masks that nothing in the report forbids. A pod that passes
is admitted nevertheless (kubelet 1.36, the exact model).
"""

from __future__ import annotations

import random

import pytest

from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Container, Pod
from shared.domain.report import Placement, ZonedAmount
from shared.kubelet.admission import admit, drop_stale, remove
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone
from tests.scheduler.kubelet_worlds import Scene, truth, world_of

# Scope container, 3 zones: a listed group of three zones, of which a narrower mask would take two.
SPLIT = 2386


@pytest.mark.parametrize("zones", [2, 3])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_pod_that_passes_next_to_groups_is_admitted_in_every_consistent_state(
    scope: str, zones: int
) -> None:
    placed = 0
    for seed in (SPLIT, *range(60)):
        seen = _scene(seed, scope, zones)
        for checkpoints in (True, False):
            if isinstance(
                world_of(seen, CycleConfig(), checkpoints).cluster.place(seen.pod), Placed
            ):
                placed += 1
                assert truth(seen) == "admitted", (seed, checkpoints)
    assert placed > 40


def _scene(seed: int, scope: str, zones: int) -> Scene:
    """Return pods with more CPUs than a zone has free, some of which have ended, and up to two that
    no report confirms.
    """
    chance = random.Random(seed)
    gpus = {f"g{z}-{i}": 1 << z for z in range(zones) for i in range(chance.randint(0, 2))}
    state = kubelet(
        zones, "best-effort", scope, cores_per_zone=chance.choice((2, 4)), gpus=gpus or {"g": 1}
    )
    present = []
    for number in range(chance.randint(1, 5)):
        pod = _pod(chance, f"s{number}")
        verdict = admit(state, pod)
        if verdict.admitted:
            state = verdict.state
            present.append(pod)
    for pod in present:
        if chance.random() < 0.3:
            state = remove(state, pod.uid)
    base, unconfirmed = drop_stale(state), []
    for number in range(chance.choice((0, 0, 1, 2))):
        pod = _pod(chance, f"u{number}")
        verdict = admit(state, pod)
        if verdict.admitted:
            state = verdict.state
            unconfirmed.append(pod)
    return Scene(base, tuple(unconfirmed), _pod(chance, "d"))


def _pod(chance: random.Random, name: str) -> Pod:
    containers = []
    for number in range(chance.choice((1, 1, 2))):
        asked = {
            "cpu": chance.choice((1, 1, 2, 3, 4, 5)) * 1000,
            "memory": chance.choice((1, 1, 1, 8, 20, 30, 45)) * GIB,
        }
        if chance.random() < 0.2:
            asked[GPU] = 1
        if chance.random() < 0.2:
            asked["cpu"] = 500
        containers.append(Container(f"c{number}", "app", asked, asked))
    return Pod(name, "ns", name, "Guaranteed", tuple(containers))


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_an_empty_node_takes_a_pod_with_a_sidecar_whose_memory_fits_one_of_its_zones(
    policy: str,
) -> None:
    world = World()
    world.node("n", zone(0, amounts(8, 16)), zone(1, amounts(8, 4)), policy=policy)
    pod = guaranteed("p", container("s", amounts(1, 2), "sidecar"), container("c", amounts(2, 6)))
    assert isinstance(world.cluster.place(pod), Placed)


def test_memory_of_an_init_container_is_used_again_under_none() -> None:
    world = World()
    world.node("n", zone(0, amounts(8, 8)), policy="none")
    parts = container("i", amounts(1, 6), "init"), container("c", amounts(1, 8))
    assert isinstance(world.cluster.place(guaranteed("p", *parts)), Placed)


def test_init_and_app_container_share_a_device_under_best_effort() -> None:
    world = World()
    world.node("n", zone(0, amounts(8, 8, 1)), zone(1, amounts(8, 8)), policy="best-effort")
    parts = container("i", amounts(1, 2, 1), "init"), container("c", amounts(1, 2, 1))
    assert isinstance(world.cluster.place(guaranteed("p", *parts)), Placed)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_sets_of_zones_next_to_groups_score_no_more_than_their_bulk_bound(scope: str) -> None:
    """A strategy over sets of zones uses the free amounts of a group, which no zone of the group
    gives alone.
    """
    taken = 0
    for seed in range(60):
        seen = _scene(seed, scope, 2)
        cluster = world_of(seen, CycleConfig(strategy="LeastNUMANodes"), True).cluster
        pod_class = cluster.evaluator.pod_class(seen.pod)
        cluster.evaluator.evaluate_all_if_new(pod_class)
        for node_info in cluster.nodes():
            most = cluster.evaluator.cache.scores[pod_class.row, node_info.slot]
            score = cluster.evaluator.evaluate(pod_class, node_info)
            taken += bool(node_info.grouped_zones) and score > RULED_OUT
            assert score <= most, seed
    assert taken > 0


def test_memory_of_a_group_is_not_free_next_to_a_pod_that_may_be_anywhere() -> None:
    """Zones 0 and 1 hold a block together, so that both pods need zone 2. The running pod is
    charged in each zone. Freeing its charge in each zone once made memory free in a group (seed
    795586365).
    """
    world = World()
    world.observe("n")
    world.bound(guaranteed("both", container("c", amounts(0, 6))), "n")
    block = Placement("ns", "both", "c", (ZonedAmount("memory", (0, 1), 6 * GIB),))
    zones = [
        zone(0, amounts(3, 2), amounts(3, 8)),
        zone(1, amounts(3, 2), amounts(3, 8)),
        zone(2, amounts(3, 8)),
    ]
    world.report(report("n", zones, "restricted", placements=(block,)))
    runs = guaranteed("runs", container("c", amounts(2, 1)))
    world.bound(runs, "n")
    world.running(runs, "n")
    assert isinstance(
        world.cluster.place(guaranteed("p", container("c", amounts(3, 1)))), Unplaceable
    )
    assert isinstance(world.cluster.place(guaranteed("q", container("c", amounts(1, 1)))), Placed)
