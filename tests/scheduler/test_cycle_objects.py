"""Nodes that NodeResourceTopology objects describe: no pod passes that the kubelet model rejects,
and amounts are enough to place pods wider than a zone.

`python -m tests.bench completeness --report nrt` runs more scenes.
"""

from __future__ import annotations

import random

import pytest

from services.scheduler.filter.topology.fit import obstacle
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.events.cluster_events import PodObserved
from shared.kube.kai import observed_placement, placement_annotations
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from tests.kubelet.machines import container, guaranteed, kubelet
from tests.scheduler.kubelet_worlds import (
    NODE,
    Made,
    measured,
    proven_world,
    report_of,
    scene,
    world_of,
)
from tests.scheduler.test_cycle_soundness import RULES


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_where_a_fingerprint_confirms_all_pods_it_is_sound_and_nearly_exact(
    policy: str, scope: str
) -> None:
    outcome = measured(range(8000, 8090), policy, scope, unconfirmed=0, as_object=True)
    assert (outcome.unsound, outcome.refused_needlessly) == ([], [])
    assert outcome.passed > 25
    assert len(outcome.refused_within_bounds) <= 0.08 * outcome.passed


def annotated(seed: int, policy: str, scope: str) -> Made:
    """Return a scene whose report is an object, and whose pods KAI-Scheduler's exporter has
    annotated.
    """
    seen = scene(seed, policy, scope, unconfirmed=0, as_object=True)
    world = world_of(seen, CycleConfig(), as_object=True)
    placements = report_of(seen.base).placements or ()
    for active in seen.base.pods.values():
        own_placements = [placement for placement in placements if placement.pod == active.pod.name]
        placement = observed_placement(placement_annotations(own_placements))
        event = PodObserved(active.pod, node=NODE, phase="Running", placement=placement)
        world.fold(f"pod/{active.pod.uid}", event)
    return Made(seen, world, ["listed"] if world.ledger.nodes[NODE].listed is not None else [])


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_annotations_of_pods_are_sound_and_not_less_exact(policy: str, scope: str) -> None:
    outcome = measured(
        range(8000, 8060), policy, scope, 0, made=lambda seed: annotated(seed, policy, scope)
    )
    assert (outcome.unsound, outcome.refused_needlessly) == ([], [])
    assert outcome.cases["listed"] > 20
    without = measured(range(8000, 8060), policy, scope, unconfirmed=0, as_object=True)
    assert len(outcome.refused_within_bounds) <= len(without.refused_within_bounds)


def test_where_annotations_place_pods_they_may_be_evicted() -> None:
    state = kubelet(2, "restricted")
    pod = guaranteed("a", container(cpu=4, memory=8))
    state = drop_stale(start_containers(admit(state, pod).state, pod))
    world = proven_world(state, CycleConfig(), as_object=True)
    node_info = world.cluster.node(NODE)
    assert node_info is not None
    assert "its reports carry no placements" in obstacle(node_info)
    placement = observed_placement(placement_annotations(report_of(state).placements or ()))
    world.fold("pod/a", PodObserved(pod, node=NODE, phase="Running", placement=placement))
    node_info = world.cluster.node(NODE)
    assert node_info is not None
    assert obstacle(node_info) == ""


@pytest.mark.parametrize("zones", [4, 8])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_pending_admissions_it_is_sound(policy: str, scope: str, zones: int) -> None:
    outcome = measured(range(8200, 8215), policy, scope, unconfirmed=2, as_object=True, zones=zones)
    assert outcome.unsound == []


@pytest.mark.parametrize("policy", ["restricted", "best-effort", "none"])
def test_on_a_half_full_node_a_pod_wider_than_a_zone_is_placed(policy: str) -> None:
    """Two of four zones are in use: 12 CPUs and 100 GiB fit the other two."""
    state = kubelet(4, policy, cores_per_zone=4)
    for name in ("a", "b"):
        pod = guaranteed(name, container(cpu=6, memory=40))
        admitted = admit(state, pod)
        assert admitted.admitted
        state = start_containers(admitted.state, pod)
    world = proven_world(drop_stale(state), CycleConfig(), as_object=True)
    wide = guaranteed("wide", container(cpu=12, memory=100))
    assert admit(state, wide).admitted
    placed = world.cluster.place(wide)
    assert isinstance(placed, Placed)
    assert world.ledger.nodes[NODE].listed is None


def with_init(*cpus: int) -> Pod:
    """A pod of an init container and app containers that request so many CPUs."""
    first, *others = cpus
    apps = [container(f"c{at}", cpu=cpu, memory=8) for at, cpu in enumerate(others, 1)]
    return guaranteed("new", container(cpu=first, memory=4, kind="init"), *apps)


@pytest.mark.parametrize(("first", "fits"), [(4, True), (3, False)])
def test_apps_take_over_an_even_number_of_cpus_of_an_init_container(first: int, fits: bool) -> None:
    """The second app fits zone 1 only if the first left no CPU of the init container in zone 0. Of
    3 CPUs one is half of a core here, which a larger request leaves alone."""
    state = kubelet(2, cores_per_zone=8)
    holder = guaranteed("held", container(cpu=2, memory=4))
    state = drop_stale(start_containers(admit(state, holder).state, holder))
    world = proven_world(state, CycleConfig(), as_object=True)
    new = with_init(first, 10, 14)
    assert admit(state, new).admitted is fits
    assert isinstance(world.cluster.place(new), Placed) is fits


def test_with_many_threads_per_core_a_pod_with_init_containers_waits() -> None:
    world = proven_world(kubelet(2, cores_per_zone=8), CycleConfig(), as_object=True)
    offered = world.ledger.nodes[NODE].observed
    assert offered is not None
    assert isinstance(world.cluster.place(with_init(4, 10, 14)), Placed)
    labels = {"kubernetes.io/arch": "ppc64le"}
    world.observe(NODE, allocatable=offered.allocatable, labels=labels)
    assert not isinstance(world.cluster.place(with_init(4, 10, 14)), Placed)


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
@pytest.mark.parametrize("seed", range(40))
def test_cpus_that_are_taken_over_are_judged_soundly(policy: str, seed: int) -> None:
    """Kubelets in which earlier pods left half-free cores."""
    rng = random.Random(seed)
    state = kubelet(2, policy, cores_per_zone=8)
    for number in range(rng.randint(0, 5)):
        pod = guaranteed(f"p{number}", container(cpu=rng.randint(1, 3), memory=1))
        admitted = admit(state, pod)
        if admitted.admitted:
            state = start_containers(admitted.state, pod)
    for uid in [uid for uid in state.pods if rng.random() < 0.5]:
        state = remove(state, uid)
    state = drop_stale(state)
    world = proven_world(state, CycleConfig(), as_object=True)
    new = with_init(*(rng.randint(1, 14) for _ in range(rng.randint(2, 4))))
    if isinstance(world.cluster.place(new), Placed):
        assert admit(state, new).admitted


def test_a_group_of_zones_that_amounts_show_keeps_a_pod_out() -> None:
    """100 GiB lie over both zones, so that neither gives memory of its own (restricted)."""
    state = kubelet(2, "restricted", cores_per_zone=8)
    wide = guaranteed("wide", container(cpu=20, memory=100))
    state = start_containers(admit(state, wide).state, wide)
    world = proven_world(drop_stale(state), CycleConfig(), as_object=True)
    small = guaranteed("small", container(cpu=4, memory=4))
    assert not admit(state, small).admitted
    assert not isinstance(world.cluster.place(small), Placed)
