"""A simulated kubelet's state on disk: the three checkpoints of its managers, in the kubelet's
format.

Each file is replaced by renaming, so that a process that is killed half-way leaves the old file
whole. The files of devices and memory have no checksum, because they change with every pod. A pod
that holds nothing of a manager changes no file, as with a kubelet, so a watch sees no event. This
module does not decide when to save and does not judge what it loads.
"""

from __future__ import annotations

import os
from pathlib import Path

from services.exporter import checkpoints
from services.exporter.checkpoints import Checkpoints
from shared.kubelet.checkpoint import (
    CPU_FILE,
    MEMORY_FILE,
    CheckpointError,
    CpuCheckpoint,
    memory_checkpoint,
    read_cpu,
    read_memory,
    write_cpu,
    write_memory,
)
from shared.kubelet.checkpoint_devices import (
    DeviceCheckpoint,
    device_checkpoint,
    read_devices,
    write_devices,
)
from shared.kubelet.cpu_manager import CpuState
from shared.kubelet.device_state import DeviceState, hold
from shared.kubelet.machine import KubeletState
from shared.kubelet.memory_state import MemoryState

DEVICE_FILE = "device-plugins/kubelet_internal_checkpoint"


def save(folder: Path, old_state: KubeletState | None, new_state: KubeletState) -> None:
    """Write the checkpoints of the managers whose state differs from `old_state`, in the kubelet's
    order: devices, CPUs, memory (kubelet 1.36).
    """
    if old_state is None or old_state.devices is not new_state.devices:
        (folder / DEVICE_FILE).parent.mkdir(exist_ok=True)
        _replace(
            folder / DEVICE_FILE, write_devices(device_checkpoint(new_state.devices), seal=False)
        )
    if old_state is None or old_state.cpu.entries != new_state.cpu.entries:
        _replace(
            folder / CPU_FILE,
            write_cpu(
                CpuCheckpoint(
                    new_state.kubelet.cpu.policy, new_state.cpu.shared, new_state.cpu.entries
                )
            ),
        )
    if old_state is None or old_state.memory is not new_state.memory:
        _replace(
            folder / MEMORY_FILE, write_memory(memory_checkpoint(new_state.memory), seal=False)
        )


def stored(state: KubeletState) -> Checkpoints:
    """Return what an exporter would read from the checkpoint files of a kubelet in this state."""
    cpu = CpuCheckpoint(state.kubelet.cpu.policy, state.cpu.shared, state.cpu.entries)
    return checkpoints.of(cpu, memory_checkpoint(state.memory), device_checkpoint(state.devices))


def load(folder: Path, fresh: KubeletState) -> tuple[KubeletState | None, str]:
    """Return `fresh` with the stored state of its managers (pods not yet known), or None with the
    reason in the kubelet's words.

    An empty reason means that nothing is stored.
    """
    texts = [_read(folder / name) for name in (CPU_FILE, MEMORY_FILE, DEVICE_FILE)]
    if not any(texts):
        return None, ""
    cpu, memory, devices = (
        read_cpu(texts[0]),
        read_memory(texts[1]),
        read_devices(texts[2], verify=False),
    )
    for name, read in ((CPU_FILE, cpu), (MEMORY_FILE, memory), (DEVICE_FILE, devices)):
        if isinstance(read, CheckpointError):
            return None, f"{name}: {read}"
    if (
        isinstance(cpu, CheckpointError)
        or isinstance(memory, CheckpointError)
        or isinstance(devices, CheckpointError)
    ):
        return None, "unreadable"
    cpu_state = CpuState(cpu.default_cpus, cpu.entries)
    memory_state = MemoryState(fresh.memory.config, memory.nodes, memory.entries)
    device_state = _with_entries(fresh.devices, devices)
    return KubeletState(fresh.kubelet, cpu_state, memory_state, device_state), ""


def _with_entries(state: DeviceState, stored: DeviceCheckpoint) -> DeviceState:
    for entry in stored.entries:
        names = {name for listed in entry.devices.values() for name in listed}
        state = hold(state, entry.pod_uid, entry.container, entry.resource, names)
    return state


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, data)
    finally:
        os.close(file)
    draft.replace(path)
