"""Admission of a pod by one kubelet, for callers: the result, the pod's end, container starts,
restart.

A state is a value: every function returns a new one. Holdings of rejected or removed pods stay in
the state until the next admission, as in the kubelet; `drop_stale` drops them at once. This module
does not know I/O or time.
"""

from __future__ import annotations

from collections.abc import Generator

from shared.domain.pod import Pod
from shared.kubelet import memory_manager
from shared.kubelet.assignment import Admission, ContainerAssignment, placements
from shared.kubelet.device_manager import Pick, Preferred
from shared.kubelet.errors import AllocationError
from shared.kubelet.machine import KubeletState, build
from shared.kubelet.options import ConfigError
from shared.kubelet.restart import Restart, restart, resume
from shared.kubelet.stale import drop_stale, removed
from shared.kubelet.walk import TOPOLOGY_AFFINITY, Choices, exhausted, lowest_id, walk_pod

__all__ = [
    "TOPOLOGY_AFFINITY",
    "Admission",
    "Choices",
    "ConfigError",
    "ContainerAssignment",
    "Restart",
    "admission_steps",
    "admit",
    "build",
    "lowest_id",
    "placements",
    "remove",
    "restart",
    "resume",
    "drop_stale",
    "start_container",
    "start_containers",
]


def admit(
    state: KubeletState, pod: Pod, pick: Pick = lowest_id, prefer: Preferred | None = None
) -> Admission:
    """Return the kubelet's answer to a pod. `pick` makes the device manager's arbitrary choices.

    `prefer` is the plugins' GetPreferredAllocation, None if they do not offer it.
    """
    walk = walk_pod(state, pod, Choices(pick, prefer))
    return _verdict(exhausted(walk), pod)


def admission_steps(
    state: KubeletState, pod: Pod, pick: Pick = lowest_id, prefer: Preferred | None = None
) -> Generator[KubeletState, None, Admission]:
    """Yield the states that podresources shows during an admission, and return its result.

    The pod is first listed with nothing, then after each allocation.
    """
    result = yield from walk_pod(state, pod, Choices(pick, prefer))
    return _verdict(result, pod)


def _verdict(result: tuple[KubeletState, AllocationError | None], pod: Pod) -> Admission:
    state, refusal = result
    if refusal is not None:
        return Admission(removed(state, pod.uid), False, refusal.reason, refusal.message)
    return Admission(state, True, containers=placements(state, pod))


def remove(state: KubeletState, uid: str) -> KubeletState:
    """Return the state after a pod ended: no longer listed, its holdings stale. Unknown uids change
    nothing.
    """
    return removed(state, uid)


def start_container(state: KubeletState, pod: Pod, name: str) -> KubeletState:
    """Return the state after a container started: memory of the init containers listed before it is
    free.
    """
    memory = memory_manager.release_init(state.memory, pod, name)
    return KubeletState(state.kubelet, state.cpu, memory, state.devices, state.pods, state.stale)


def start_containers(state: KubeletState, pod: Pod) -> KubeletState:
    """Return the state after all containers of a pod started, in order."""
    for container in pod.containers:
        state = start_container(state, pod, container.name)
    return state
