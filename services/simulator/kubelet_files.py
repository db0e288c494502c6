"""A simulated kubelet's state on disk: the three checkpoints of its managers, in the kubelet's own format.

The CPU manager's file changes with every pod, so it is written in place (a rename costs ten times as much) and the folder
is touched for those who watch it; the others are written by rename, as the kubelet does. Must not know when to save, nor
judge what it loads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

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
from shared.kubelet.checkpoint_devices import DeviceCheckpoint, DeviceEntry, read_devices, write_devices
from shared.kubelet.cpu_manager import CpuState
from shared.kubelet.device_state import Device, DeviceState, hold
from shared.kubelet.machine import KubeletState
from shared.kubelet.masks import nodes_of
from shared.kubelet.memory_state import MemoryState

DEVICE_FILE = "device-plugins/kubelet_internal_checkpoint"
NO_ZONE = -1


def save_cpu(folder: Path, state: KubeletState) -> None:
    """Write `cpu_manager_state`."""
    data = write_cpu(CpuCheckpoint(state.kubelet.cpu.policy, state.cpu.shared, state.cpu.entries))
    file = os.open(folder / CPU_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))
    finally:
        os.close(file)
    os.utime(folder)


def save_rest(folder: Path, state: KubeletState) -> None:
    """Write `memory_manager_state` and the devices' `kubelet_internal_checkpoint`."""
    _replace(folder / MEMORY_FILE, write_memory(memory_checkpoint(state.memory)))
    (folder / DEVICE_FILE).parent.mkdir(exist_ok=True)
    _replace(folder / DEVICE_FILE, write_devices(_device_checkpoint(state.devices)))


def load(folder: Path, fresh: KubeletState) -> tuple[KubeletState | None, str]:
    """`fresh` with the stored books (pods not yet known), or None with the reason in the kubelet's words.

    An empty reason means that nothing is stored.
    """
    texts = [_read(folder / name) for name in (CPU_FILE, MEMORY_FILE, DEVICE_FILE)]
    if not any(texts):
        return None, ""
    cpu, memory, devices = read_cpu(texts[0]), read_memory(texts[1]), read_devices(texts[2])
    for name, read in ((CPU_FILE, cpu), (MEMORY_FILE, memory), (DEVICE_FILE, devices)):
        if isinstance(read, CheckpointError):
            return None, f"{name}: {read}"
    if isinstance(cpu, CheckpointError) or isinstance(memory, CheckpointError) or isinstance(devices, CheckpointError):
        return None, "unreadable"
    books = CpuState(cpu.default_cpus, cpu.entries), MemoryState(fresh.memory.config, memory.nodes, memory.entries)
    return KubeletState(fresh.kubelet, *books, _held(fresh.devices, devices)), ""


def _held(state: DeviceState, stored: DeviceCheckpoint) -> DeviceState:
    for entry in stored.entries:
        names = {name for listed in entry.devices.values() for name in listed}
        state = hold(state, entry.pod_uid, entry.container, entry.resource, names)
    return state


def _device_checkpoint(state: DeviceState) -> DeviceCheckpoint:
    entries = tuple(
        DeviceEntry(uid, container, resource, _by_zone(state.registered.get(resource, {}), names))
        for uid, containers in sorted(state.held.items())
        for container, resources in sorted(containers.items())
        for resource, names in sorted(resources.items())
    )
    return DeviceCheckpoint(entries, {name: tuple(sorted(devices)) for name, devices in state.registered.items()})


def _by_zone(registered: Mapping[str, Device], names: frozenset[str]) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for name in sorted(names):
        mask = registered[name].mask if name in registered else None
        for zone in nodes_of(mask) if mask else (NO_ZONE,):
            found.setdefault(zone, []).append(name)
    return {zone: tuple(listed) for zone, listed in sorted(found.items())}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
