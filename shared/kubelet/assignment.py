"""The values that admission returns: the holdings of containers and the kubelet's answer. This
module does not know how the answer is computed.
"""

from __future__ import annotations

import msgspec

from shared.domain.pod import Pod
from shared.kubelet.cpuset import format_cpus, ids_of
from shared.kubelet.device_state import DeviceState
from shared.kubelet.hint import Hint
from shared.kubelet.machine import KubeletState
from shared.kubelet.memory_state import Blocks
from shared.kubelet.topology_manager import NO_HINT


class ContainerAssignment(msgspec.Struct, frozen=True):
    """The holdings of one container: its stored hint, exclusive CPUs (bit i = CPU i), memory
    blocks, devices by resource.
    """

    name: str
    hint: Hint
    cpus: int
    memory: Blocks
    devices: dict[str, tuple[str, ...]]

    @property
    def cpu_ids(self) -> tuple[int, ...]:
        """The exclusive CPU ids, ascending."""
        return ids_of(self.cpus)

    @property
    def cpu_list(self) -> str:
        """The exclusive CPUs as a Linux list; empty for the shared pool."""
        return format_cpus(self.cpus)


class Admission(msgspec.Struct, frozen=True):
    """The answer to a pod and the state after it. `reason` and `message` are the kubelet's, empty
    if admitted.
    """

    state: KubeletState
    admitted: bool
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerAssignment, ...] = ()


def placements(state: KubeletState, pod: Pod) -> tuple[ContainerAssignment, ...]:
    """Return the current holdings of each container of an active pod. During its admission they are
    partial.
    """
    active = state.pods.get(pod.uid)
    hints = active.hints if active is not None else ()
    missing = len(pod.containers) - len(hints)
    return tuple(
        ContainerAssignment(
            container.name,
            hint,
            state.cpu.of(pod.uid, container.name),
            state.memory.entries.get(pod.uid, {}).get(container.name, ()),
            _devices_of(state.devices, pod.uid, container.name),
        )
        for container, hint in zip(pod.containers, hints + (NO_HINT,) * missing, strict=True)
    )


def _devices_of(state: DeviceState, uid: str, container: str) -> dict[str, tuple[str, ...]]:
    holdings = state.held.get(uid, {}).get(container, {})
    return {
        resource: tuple(sorted(holdings[resource]))
        for resource in sorted(holdings)
        if holdings[resource]
    }
