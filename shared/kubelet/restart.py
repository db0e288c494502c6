"""A kubelet that restarts on its checkpoints: its losses, its refusals, and the second admission of
its pods.

This module does not know files; stored states come as values.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec

from shared.domain.pod import Pod
from shared.kubelet import cpu_manager
from shared.kubelet.assignment import Admission, placements
from shared.kubelet.config import KubeletConfig
from shared.kubelet.cpu_manager import CpuState
from shared.kubelet.device_manager import Pick, Preferred
from shared.kubelet.device_state import DeviceState, Registered
from shared.kubelet.errors import AllocationError
from shared.kubelet.machine import ActivePod, KubeletState, Stale, build
from shared.kubelet.memory_state import MemoryState
from shared.kubelet.memory_state import restored as restored_memory
from shared.kubelet.options import ConfigError
from shared.kubelet.stale import removed
from shared.kubelet.walk import Choices, exhausted, lowest_id, walk_pod


class Restart(msgspec.Struct, frozen=True):
    """A kubelet after its restart: the final state, and the answer to every pod that was active, in
    order.
    """

    state: KubeletState
    readmissions: tuple[tuple[str, Admission], ...]


def restart(
    state: KubeletState,
    config: KubeletConfig | None = None,
    devices: Registered | None = None,
    pick: Pick = lowest_id,
    prefer: Preferred | None = None,
    running: AbstractSet[tuple[str, str]] = frozenset(),
) -> Restart | ConfigError:
    """Restart a kubelet on its checkpoints: reuse data is lost, and every active pod is admitted
    again, in order.

    Nothing is dropped before all pods were asked: neither stale holdings nor those of a pod that is
    refused now. `config` may have the rules of another version: the kubelet is upgraded. `devices`
    is what the plugins register (None: the same), `running` are the running containers by uid and
    name: none after a reboot. If the kubelet would not start, the error is the kubelet's.
    """
    fresh = build(
        state.kubelet.machine, config or state.kubelet.config, devices or state.devices.registered
    )
    restored = (
        fresh
        if isinstance(fresh, ConfigError)
        else resume(fresh, state.cpu, state.memory, state.devices)
    )
    if isinstance(restored, ConfigError):
        return restored
    active = {uid: ActivePod(active_pod.pod) for uid, active_pod in state.pods.items()}
    begun = KubeletState(restored.kubelet, restored.cpu, restored.memory, restored.devices, active)
    again = _readmitted(_as_read(begun, state), state.stale, Choices(pick, prefer, running))
    kept = {
        uid: msgspec.structs.replace(pod, pod=active[uid].pod)
        for uid, pod in again.state.pods.items()
    }
    return Restart(msgspec.structs.replace(again.state, pods=kept), again.readmissions)


def _as_read(begun: KubeletState, earlier: KubeletState) -> KubeletState:
    """Return the kubelet with its pods as it reads them. No kubelet to 1.32 writes
    status.allocatedResources, so 1.33 and 1.34 read no CPUs and no memory of its pods (executed
    code: policy_static.go of the CPU and the Memory Manager, 1.33.13 and 1.34.9)."""
    rules = begun.kubelet.config.rules
    if rules.readmission != "status" or earlier.kubelet.config.rules.readmission != "spec":
        return begun
    pods = {uid: ActivePod(_without_requests(active.pod)) for uid, active in begun.pods.items()}
    return msgspec.structs.replace(begun, pods=pods)


def _without_requests(pod: Pod) -> Pod:
    containers = [msgspec.structs.replace(container, requests={}) for container in pod.containers]
    return msgspec.structs.replace(pod, containers=tuple(containers))


def resume(
    fresh: KubeletState, cpu: CpuState, memory: MemoryState, devices: DeviceState
) -> KubeletState | ConfigError:
    """Return a freshly built kubelet with stored states, or the text with which it refuses them."""
    wrong = cpu_manager.validate(fresh.kubelet.cpu, cpu)
    if wrong is not None:
        return wrong
    book = restored_memory(fresh.memory.config, memory.nodes, memory.entries)
    if isinstance(book, str):
        return ConfigError(book)
    stored = msgspec.structs.replace(fresh.devices, held=devices.held, in_use=devices.in_use)
    pool = cpu.shared if cpu.shared or cpu.entries else fresh.cpu.shared
    return KubeletState(fresh.kubelet, CpuState(pool, cpu.entries), book, stored)


def _readmitted(state: KubeletState, stale: Stale, choices: Choices) -> Restart:
    readmissions = []
    for pod in [active.pod for active in state.pods.values()]:
        state, refusal = exhausted(walk_pod(state, pod, choices))
        readmissions.append((pod.uid, _readmission(state, pod, refusal)))
    state = KubeletState(state.kubelet, state.cpu, state.memory, state.devices, state.pods, stale)
    for uid, readmission in readmissions:
        if not readmission.admitted:
            state = removed(state, uid)
    return Restart(state, tuple(readmissions))


def _readmission(state: KubeletState, pod: Pod, refusal: AllocationError | None) -> Admission:
    if refusal is not None:
        return Admission(state, False, refusal.reason, refusal.message)
    return Admission(state, True, containers=placements(state, pod))
