"""Holdings of pods by uid from the kubelet's checkpoints, with init containers and ended pods.

Bytes in, one value out. A file that is absent or damaged leaves its manager out of `read`. Must not
know podresources, files or the time of reading. Source: kubelet 1.36; the formats are in
`shared.kubelet.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from services.exporter.answers import Allocatable, DeviceGroup, ListedContainer, MemoryBlock
from shared.kubelet.checkpoint import (
    CheckpointError,
    CpuCheckpoint,
    MemoryCheckpoint,
    read_cpu,
    read_memory,
)
from shared.kubelet.checkpoint_devices import DeviceCheckpoint, read_devices
from shared.kubelet.cpuset import ids_of
from shared.kubelet.masks import nodes_of
from shared.kubelet.memory_state import Block

CPU, MEMORY, DEVICES = "cpu", "memory", "devices"
State = TypeVar("State", CpuCheckpoint, MemoryCheckpoint, DeviceCheckpoint)
# Pod uid -> container name -> its resources.
Holdings = Mapping[str, Mapping[str, ListedContainer]]


class Checkpoints(msgspec.Struct, frozen=True):
    """Contents of the checkpoints.

    `read` names the managers whose file was read. `free` is the Memory Manager's own count: zone ->
    resource -> bytes. `groups` are its groups of several zones: zone -> zones. `registered` are the
    healthy devices of each resource.
    """

    read: tuple[str, ...] = ()
    holdings: Holdings = {}
    free: Mapping[int, dict[str, int]] = {}
    groups: Mapping[int, tuple[int, ...]] = {}
    registered: Mapping[str, frozenset[str]] = {}


NOTHING_READ = Checkpoints()


class Files(msgspec.Struct, frozen=True):
    """The three decoded files; None for a file that is absent or damaged."""

    cpu: CpuCheckpoint | None = None
    memory: MemoryCheckpoint | None = None
    devices: DeviceCheckpoint | None = None


def covers(stored: Checkpoints, allocatable: Allocatable) -> bool:
    """Return True if the checkpoints of all managers that pin something were read."""
    pinning = (
        (CPU, allocatable.cpus),
        (MEMORY, allocatable.memory),
        (DEVICES, allocatable.devices),
    )
    return all(name in stored.read for name, offered in pinning if offered)


def parse(cpu: bytes, memory: bytes, devices: bytes) -> Checkpoints:
    """Return the contents of the three files; pass b"" for an absent file."""
    files = read(Files(), cpu, memory, devices)
    return of(files.cpu, files.memory, files.devices)


def read(before: Files, cpu: bytes | None, memory: bytes | None, devices: bytes | None) -> Files:
    """Decode the three files; pass None for a file that did not change since `before`.

    Checksums are not verified: the kubelet replaces files whole, and verifies them itself.
    """
    return Files(
        before.cpu if cpu is None else _if_sound(read_cpu(cpu, verify=False)),
        before.memory if memory is None else _if_sound(read_memory(memory, verify=False)),
        before.devices if devices is None else _if_sound(read_devices(devices, verify=False)),
    )


def _if_sound(state: State | CheckpointError) -> State | None:
    return None if isinstance(state, CheckpointError) else state


def of(
    cpu: CpuCheckpoint | None, memory: MemoryCheckpoint | None, devices: DeviceCheckpoint | None
) -> Checkpoints:
    """Combine the decoded files; pass None for a file that was not read."""
    states = ((CPU, cpu), (MEMORY, memory), (DEVICES, devices))
    names = tuple(name for name, state in states if state is not None)
    free, groups = ({}, {}) if memory is None else (_free(memory), _groups(memory))
    registered = {}
    if devices is not None:
        registered = {resource: frozenset(ids) for resource, ids in devices.registered.items()}
    return Checkpoints(names, _holdings(cpu, memory, devices), free, groups, registered)


def _holdings(
    cpu: CpuCheckpoint | None, memory: MemoryCheckpoint | None, devices: DeviceCheckpoint | None
) -> Holdings:
    cpus = {} if cpu is None else cpu.entries
    blocks = {} if memory is None else memory.entries
    groups: dict[str, dict[str, list[DeviceGroup]]] = {}
    for entry in () if devices is None else devices.entries:
        container_groups = groups.setdefault(entry.pod_uid, {}).setdefault(entry.container, [])
        for node, ids in sorted(entry.devices.items()):
            zones = (node,) if node >= 0 else ()
            container_groups.append(DeviceGroup(entry.resource, tuple(sorted(ids)), zones))
    holdings: dict[str, dict[str, ListedContainer]] = {}
    for uid in sorted({*cpus, *blocks, *groups}):
        pod_cpus, pod_blocks = cpus.get(uid, {}), blocks.get(uid, {})
        pod_groups = groups.get(uid, {})
        holdings[uid] = {
            name: ListedContainer(
                name,
                ids_of(pod_cpus.get(name, 0)),
                _blocks(pod_blocks.get(name, ())),
                tuple(pod_groups.get(name, ())),
            )
            for name in sorted({*pod_cpus, *pod_blocks, *pod_groups})
        }
    return holdings


def _blocks(blocks: Iterable[Block]) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(block.resource, nodes_of(block.mask), block.size) for block in blocks)


def _groups(memory: MemoryCheckpoint) -> dict[int, tuple[int, ...]]:
    return {
        node_id: nodes_of(node.cells)
        for node_id, node in sorted(memory.nodes.items())
        if node.cells.bit_count() > 1
    }


def _free(memory: MemoryCheckpoint) -> dict[int, dict[str, int]]:
    free = {}
    for node_id, node in sorted(memory.nodes.items()):
        free[node_id] = {name: node.tables[name].free for name in sorted(node.tables)}
    return free
