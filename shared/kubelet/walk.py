"""The walk of one pod through admission: merge per container or pod, then each provider in turn,
until an error.

Providers are asked and allocate in the order device, cpu, memory. Source: kubelet 1.36,
cm/topologymanager/scope_*.go. Must not know what becomes of a rejected pod, nor restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from collections.abc import Set as AbstractSet

import msgspec

from shared.domain.pod import Container, Pod
from shared.domain.pod_level import pool_problem
from shared.domain.policies import BEST_EFFORT
from shared.domain.resources import CPU, is_memory
from shared.kubelet import cpu_manager, device_manager, memory_manager
from shared.kubelet.device_manager import Pick, Preferred, lowest
from shared.kubelet.errors import AllocationError
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.machine import ActivePod, KubeletState
from shared.kubelet.seen_pod import seen_pod
from shared.kubelet.stale import drop_stale, drop_stale_cpu, drop_stale_devices, drop_stale_memory
from shared.kubelet.topology_manager import NO_HINT, merge

TOPOLOGY_AFFINITY = "TopologyAffinityError"
EMPTY_POOL = "EmptyPodSharedPoolError"
SIDECAR_FORBIDDEN = "InitContainerRestartPolicyForbidden"
_MISALIGNED = AllocationError(
    TOPOLOGY_AFFINITY, "Resources cannot be allocated with Topology locality"
)


def lowest_id(devices: Collection[str], count: int) -> list[str]:
    """The default pick: lowest ids first, as text."""
    return lowest(devices, count)


class Choices(msgspec.Struct, frozen=True):
    """How devices are chosen where the topology leaves it open: `pick` for the kubelet, `prefer`
    for the plugin. `running` are containers, by uid and name, that a kubelet that starts again
    finds running: it gives them no devices, and checks none."""

    pick: Pick = lowest_id
    prefer: Preferred | None = None
    running: AbstractSet[tuple[str, str]] = frozenset()


Walk = Generator[KubeletState, None, tuple[KubeletState, AllocationError | None]]


def exhausted(walk: Walk) -> tuple[KubeletState, AllocationError | None]:
    """The end of a walk, its intermediate states skipped."""
    while True:
        try:
            next(walk)
        except StopIteration as stop:
            result: tuple[KubeletState, AllocationError | None] = stop.value
            return result


def walk_pod(state: KubeletState, pod: Pod, choices: Choices) -> Walk:
    """Container by container: find the hint, store it, allocate with each provider."""
    kubelet = state.kubelet
    topology, original = kubelet.topology, pod
    pod = seen_pod(pod, kubelet.config, "pod" if topology.scope == "pod" else "container")
    state = _with_pod(state, ActivePod(pod))
    yield state
    if topology.scope != "none":
        state = drop_stale(state)
    whole, admitted = NO_HINT, True
    if topology.scope == "pod":
        whole, admitted = merge(topology, _pod_hints(state, pod))
        if (text := _empty_pool(state, original)) and topology.policy != BEST_EFFORT:
            admitted = False
        elif text:
            return state, AllocationError(EMPTY_POOL, text)
    for container in pod.containers if admitted else ():
        hint = whole
        if topology.scope == "container":
            hint, admitted = merge(topology, _container_hints(state, pod, container))
        if not admitted:
            break
        state = _with_hint(state, pod, hint)
        for allocate in _PROVIDERS:
            previous = state
            state, refusal = allocate(state, pod, container, hint, choices)
            if _differs(state, previous):
                yield state
            if refusal is not None:
                return state, refusal
    if not admitted:
        return state, _MISALIGNED
    return state, _sidecar_refusal(state, pod)


def _empty_pool(state: KubeletState, pod: Pod) -> str:
    """Return why a pod's pool is too small, for which its managers give no hint."""
    if not state.kubelet.config.pod_level_managers or pod.qos != "Guaranteed":
        return ""
    cpus = (CPU,) if state.kubelet.cpu.policy == cpu_manager.STATIC else ()
    memory = (
        filter(is_memory, pod.pod_level or ()) if state.memory.config.policy == "Static" else ()
    )
    return pool_problem(pod, (*cpus, *memory))


def _sidecar_refusal(state: KubeletState, pod: Pod) -> AllocationError | None:
    """To 1.28 a kubelet refuses sidecars, after the Topology Manager (lifecycle/predicate.go)."""
    if state.kubelet.config.rules.sidecars:
        return None
    for container in pod.containers:
        if container.kind == "sidecar":
            return AllocationError(
                SIDECAR_FORBIDDEN,
                f'Init container "{container.name}" may not have a non-default restartPolicy',
            )
    return None


def _pod_hints(state: KubeletState, pod: Pod) -> tuple[Hints, ...]:
    return (
        device_manager.pod_hints(state.devices, pod),
        cpu_manager.pod_hints(state.kubelet.cpu, state.cpu, pod),
        memory_manager.pod_hints(state.memory, pod),
    )


def _container_hints(state: KubeletState, pod: Pod, container: Container) -> tuple[Hints, ...]:
    return (
        device_manager.container_hints(state.devices, pod, container),
        cpu_manager.container_hints(state.kubelet.cpu, state.cpu, pod, container),
        memory_manager.container_hints(state.memory, pod, container),
    )


_Step = tuple[KubeletState, AllocationError | None]


def _allocate_devices(
    state: KubeletState, pod: Pod, container: Container, hint: Hint, choices: Choices
) -> _Step:
    if state.stale.devices and container.limits.keys() & state.devices.registered.keys():
        state = drop_stale_devices(state)
    running = (pod.uid, container.name) in choices.running
    got = device_manager.allocate(
        state.devices, pod, container, hint, choices.pick, choices.prefer, running
    )
    if isinstance(got, AllocationError):
        return state, got
    return KubeletState(state.kubelet, state.cpu, state.memory, got, state.pods, state.stale), None


def _allocate_cpus(
    state: KubeletState, pod: Pod, container: Container, hint: Hint, _: Choices
) -> _Step:
    state = drop_stale_cpu(state)
    got = cpu_manager.allocate(state.kubelet.cpu, state.cpu, pod, container, hint)
    if isinstance(got, AllocationError):
        return state, got
    return KubeletState(
        state.kubelet, got, state.memory, state.devices, state.pods, state.stale
    ), None


def _allocate_memory(
    state: KubeletState, pod: Pod, container: Container, hint: Hint, _: Choices
) -> _Step:
    state = drop_stale_memory(state)
    got = memory_manager.allocate(state.memory, pod, container, hint)
    if isinstance(got, AllocationError):
        return state, got
    return KubeletState(state.kubelet, state.cpu, got, state.devices, state.pods, state.stale), None


_PROVIDERS = (_allocate_devices, _allocate_cpus, _allocate_memory)


def _differs(after: KubeletState, before: KubeletState) -> bool:
    """Something was allocated or dropped between two states, not only noted for reuse."""
    return (
        after.devices.held is not before.devices.held
        or after.cpu.entries is not before.cpu.entries
        or after.memory.entries is not before.memory.entries
    )


def _with_pod(state: KubeletState, active: ActivePod) -> KubeletState:
    pods = {**state.pods, active.pod.uid: active}
    return KubeletState(state.kubelet, state.cpu, state.memory, state.devices, pods, state.stale)


def _with_hint(state: KubeletState, pod: Pod, hint: Hint) -> KubeletState:
    return _with_pod(state, ActivePod(pod, (*state.pods[pod.uid].hints, hint)))
