"""Kubelet states by the history since a report showed the node empty: the true state is always one
of them, and a history ends with what the model does not follow."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Pod
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.hints.observing import ObservedNode
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from shared.kubelet.machine import KubeletState
from shared.ledger.fingerprints import has_unconfirmed
from shared.ledger.kubelet_states import KubeletStates, kubelet_states
from shared.ledger.since_empty import states_since_empty
from tests.kubelet.machines import GPU, container, guaranteed, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import (
    NODE,
    free_of,
    offered_devices,
    proven_world,
    random_pod,
    report_of,
)
from tests.scheduler.objects import compare, through_object


def told(state: KubeletState, world: World, version: int) -> bool:
    """Fold the object of this moment; False if its fingerprint matches nothing expected."""
    world.report(through_object(report_of(state), version))
    return compare(world, NODE)


def observed_running(world: World, pod: Pod) -> None:
    world.bound(pod, NODE)
    world.fold(f"pod/{pod.uid}", PodRunning(pod.uid, NODE))


def states_of(world: World, policy: str, scope: str) -> ObservedNode | None:
    node = world.ledger.nodes[NODE]
    assert node.report is not None
    return states_since_empty(node, node.report, node.charges.values(), (), policy, scope)


def is_among(state: KubeletState, states: ObservedNode | KubeletStates, policy: str) -> bool:
    """Return True if some state has the kubelet's free amounts, and its groups of zones."""
    free, zones = free_of(state), sorted(state.memory.nodes)
    cpus = tuple(free[zone]["cpu"] // 1000 for zone in zones)
    gpus = tuple(free[zone].get(GPU, 0) for zone in zones)
    if policy == "none":
        cpus, gpus = (sum(cpus),), (sum(gpus),)
    groups = tuple(state.memory.nodes[zone].cells for zone in zones)
    for devices, counts, memory in states.bases:
        shown_gpus = devices.free[0] if devices.free else (0,) * len(gpus)
        bytes_free = dict(zip(states.model.managers[2].names, memory.free, strict=True))["memory"]  # type: ignore[attr-defined]
        if (
            counts == cpus
            and sum(shown_gpus) == sum(gpus)
            and memory.groups == groups
            and bytes_free == tuple(free[zone]["memory"] for zone in zones)
        ):
            return True
    return False


@pytest.mark.parametrize("policy", ["restricted", "best-effort", "none"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scope=st.sampled_from(["container", "pod"]))
def test_the_true_state_is_among_those_of_the_history(policy: str, scope: str, seed: int) -> None:
    rng = random.Random(seed)
    state = kubelet(2, policy, scope, gpus={"g0": 1, "g1": 2, "g2": 2})
    world = proven_world(state, CycleConfig(), as_object=True)
    late: Pod | None = None  # seen after the pod that was admitted next
    for step in range(rng.randint(1, 6)):
        if state.pods and late is None and rng.random() < 0.3:
            uid = rng.choice(sorted(state.pods))
            state = remove(state, uid)
            world.fold(f"pod/{uid}", PodEnded(uid=uid, cause="deleted", node=NODE))
            continue
        pod = random_pod(rng, f"p{step}", wide=True)
        outcome = admit(state, pod)
        if outcome.admitted:
            state = start_containers(outcome.state, pod)
            if late is None and rng.random() < 0.3:
                late = pod
                continue
            for seen in [pod] if late is None else [pod, late]:
                observed_running(world, seen)
            late = None
    if late is not None:
        observed_running(world, late)
    state = drop_stale(state)
    node = world.ledger.nodes[NODE]
    if not told(state, world, 3) or has_unconfirmed(node) or node.freed:
        return
    report = node.report
    assert node.since_empty is not None
    assert report is not None
    states = states_of(world, policy, scope)
    if states is not None:
        assert is_among(state, states, policy)
        shown = kubelet_states(node, report, node.charges.values(), {}, policy, scope, True)
        assert isinstance(shown, KubeletStates)
        assert any(memory.loose for _, _, memory in shown.bases) or is_among(state, shown, policy)


def small(name: str) -> Pod:
    return guaranteed(name, container(cpu=2, memory=8))


def used(*names: str) -> tuple[KubeletState, World]:
    """Two zones, of which these pods use some, after a report of the empty node."""
    state = kubelet(2, "best-effort")
    world = proven_world(state, CycleConfig(), as_object=True)
    for name in names:
        state = start_containers(admit(state, small(name)).state, small(name))
        observed_running(world, small(name))
    return drop_stale(state), world


def test_an_object_of_the_empty_node_begins_a_history_that_ends_leave_intact() -> None:
    _, world = used("a", "b")
    node = world.ledger.nodes[NODE]
    assert node.since_empty == ()
    world.fold("pod/a", PodEnded(uid="a", cause="deleted", node=NODE))
    assert len(world.ledger.nodes[NODE].since_empty or ()) == 1
    world.fold("pod/b", PodEnded(uid="b", cause="deleted", node=NODE))
    assert node.since_empty == ()  # nothing is left that they could have led elsewhere


@pytest.mark.parametrize("cause", ["rejected", "absent_from_list"])
def test_a_rejected_or_absent_pod_ends_the_history(
    cause: Literal["rejected", "absent_from_list"],
) -> None:
    _, world = used("a")
    world.fold("pod/a", PodEnded(uid="a", cause=cause, node=NODE))
    assert world.ledger.nodes[NODE].since_empty is None


def test_a_resized_pod_another_zone_size_and_an_older_node_have_none() -> None:
    state, world = used("a")
    larger = msgspec.structs.replace(small("a"), containers=(container(cpu=4, memory=8),))
    world.fold("pod/a", PodObserved(larger, node=NODE, phase="Running"))
    assert world.ledger.nodes[NODE].since_empty is None
    state, world = used("a")
    report = through_object(report_of(state), 3)
    zone = report.zones[0]
    amounts = msgspec.structs.replace(zone.resources["memory"], allocatable=1 << 30)
    zone = msgspec.structs.replace(zone, resources={**zone.resources, "memory": amounts})
    world.report(msgspec.structs.replace(report, zones=(zone, *report.zones[1:])))
    assert world.ledger.nodes[NODE].since_empty is None
    world = World()
    world.observe(NODE, allocatable=dict.fromkeys(offered_devices(state), 8))
    world.bound(small("a"), NODE)
    world.report(through_object(report_of(state), 1))
    assert world.ledger.nodes[NODE].since_empty is None
