"""Answers of podresources as values, sorted, before anything is counted.

Decides nothing. Must not know protobuf, sysfs or reports: `wire` makes these values, `placements`
reads them. Sizes are bytes. `zones` are NUMA node ids; empty means no affinity (no topology, or
id -1).
"""

from __future__ import annotations

import msgspec

from shared.domain.report import ClaimedDevice


class MemoryBlock(msgspec.Struct, frozen=True, gc=False):
    """Memory or hugepages of one type in a set of zones, without a split (kubelet 1.36)."""

    resource: str
    zones: tuple[int, ...]
    size: int


class DeviceGroup(msgspec.Struct, frozen=True, gc=False):
    """Devices of one resource with one affinity.

    A device on two zones appears in two groups under the same id.
    """

    resource: str
    ids: tuple[str, ...]
    zones: tuple[int, ...]


class ListedContainer(msgspec.Struct, frozen=True):
    """One listed container.

    All fields are empty if the kubelet has not admitted it yet or it holds nothing exclusive.
    """

    name: str
    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DeviceGroup, ...] = ()
    claims: tuple[ClaimedDevice, ...] = ()


class ListedPod(msgspec.Struct, frozen=True):
    """One listed pod.

    `cpus` and `memory` are the pod-level fields of kubelet 1.37 and include the containers' parts.
    """

    namespace: str
    name: str
    containers: tuple[ListedContainer, ...] = ()
    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()


class Allocatable(msgspec.Struct, frozen=True):
    """Resources that the managers may hand out; no CPUs under CPU Manager policy none."""

    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DeviceGroup, ...] = ()
