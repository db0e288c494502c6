"""What the kubelet's checkpoints say: who holds what by pod uid, init containers and ended pods
included.

Bytes in, one value out. A file that is absent or damaged (its kubelet will complain) leaves its
manager out of `read`. Must not know podresources, files or when they were read. Source: kubelet
1.36; the formats are `shared.kubelet.checkpoint`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from services.exporter.answers import DeviceGroup, ListedContainer, MemoryBlock
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
Holdings = Mapping[str, Mapping[str, ListedContainer]]
"""Pod uid -> container name -> what it holds."""


class Checkpoints(msgspec.Struct, frozen=True):
    """`read` names the managers whose file was read; `free` is the Memory Manager's own count, zone
    -> resource -> bytes, `groups` its groups of several zones, zone -> zones; `registered` are the
    healthy devices of each resource."""

    read: tuple[str, ...] = ()
    holdings: Holdings = {}
    free: Mapping[int, dict[str, int]] = {}
    groups: Mapping[int, tuple[int, ...]] = {}
    registered: Mapping[str, frozenset[str]] = {}


NOTHING_READ = Checkpoints()


class Files(msgspec.Struct, frozen=True):
    """The three files as they were read; None for one that is absent or damaged."""

    cpu: CpuCheckpoint | None = None
    memory: MemoryCheckpoint | None = None
    devices: DeviceCheckpoint | None = None


def parse(cpu: bytes, memory: bytes, devices: bytes) -> Checkpoints:
    """The three files' contents, empty where a file is absent."""
    found = read(Files(), cpu, memory, devices)
    return of(found.cpu, found.memory, found.devices)


def read(before: Files, cpu: bytes | None, memory: bytes | None, devices: bytes | None) -> Files:
    """The three files; of one that is as it was before there need be no content. Checksums are the
    kubelet's matter: it replaces files whole."""
    return Files(
        before.cpu if cpu is None else _sound(read_cpu(cpu, verify=False)),
        before.memory if memory is None else _sound(read_memory(memory, verify=False)),
        before.devices if devices is None else _sound(read_devices(devices, verify=False)),
    )


def _sound(found: State | CheckpointError) -> State | None:
    return None if isinstance(found, CheckpointError) else found


def of(
    cpu: CpuCheckpoint | None, memory: MemoryCheckpoint | None, devices: DeviceCheckpoint | None
) -> Checkpoints:
    """The checkpoints as values; None for one that was not read."""
    read = tuple(
        name
        for name, state in ((CPU, cpu), (MEMORY, memory), (DEVICES, devices))
        if state is not None
    )
    free, groups = ({}, {}) if memory is None else (_free(memory), _groups(memory))
    registered = (
        {}
        if devices is None
        else {resource: frozenset(ids) for resource, ids in devices.registered.items()}
    )
    return Checkpoints(read, _holdings(cpu, memory, devices), free, groups, registered)


def _holdings(
    cpu: CpuCheckpoint | None, memory: MemoryCheckpoint | None, devices: DeviceCheckpoint | None
) -> Holdings:
    cpus = {} if cpu is None else cpu.entries
    blocks = {} if memory is None else memory.entries
    groups: dict[str, dict[str, list[DeviceGroup]]] = {}
    for entry in () if devices is None else devices.entries:
        listed = groups.setdefault(entry.pod_uid, {}).setdefault(entry.container, [])
        for node, ids in sorted(entry.devices.items()):
            listed.append(
                DeviceGroup(entry.resource, tuple(sorted(ids)), (node,) if node >= 0 else ())
            )
    found: dict[str, dict[str, ListedContainer]] = {}
    for uid in sorted({*cpus, *blocks, *groups}):
        own_cpus, own_blocks, own_groups = (
            cpus.get(uid, {}),
            blocks.get(uid, {}),
            groups.get(uid, {}),
        )
        found[uid] = {
            name: ListedContainer(
                name,
                ids_of(own_cpus.get(name, 0)),
                _blocks(own_blocks.get(name, ())),
                tuple(own_groups.get(name, ())),
            )
            for name in sorted({*own_cpus, *own_blocks, *own_groups})
        }
    return found


def _blocks(blocks: Iterable[Block]) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(block.resource, nodes_of(block.mask), block.size) for block in blocks)


def _groups(memory: MemoryCheckpoint) -> dict[int, tuple[int, ...]]:
    return {
        node_id: nodes_of(node.cells)
        for node_id, node in sorted(memory.nodes.items())
        if node.cells.bit_count() > 1
    }


def _free(memory: MemoryCheckpoint) -> dict[int, dict[str, int]]:
    return {
        node_id: {name: node.tables[name].free for name in sorted(node.tables)}
        for node_id, node in sorted(memory.nodes.items())
    }
