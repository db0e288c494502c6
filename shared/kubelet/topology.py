"""The CPUs of a machine and how they nest: cores, sockets, NUMA nodes, uncore caches, as sets of
CPU ids.

Source of the structure: kubelet 1.36, cm/cpumanager/topology. This module does not know policies or
pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

# (id, set of the CPUs in it).
Group = tuple[int, int]

# (id, set of all its CPUs, the part of them inside the parent).
Child = tuple[int, int, int]


class Cpu(msgspec.Struct, frozen=True, gc=False):
    """One logical CPU and its location. `core` need only be unique within a socket."""

    id: int
    core: int
    socket: int
    numa: int
    uncore: int


class CpuTopology(msgspec.Struct, frozen=True):
    """Groups in ascending id. A core's id is its lowest CPU. Nested maps go from parent id to
    children in ascending id.
    """

    every: int
    numas: tuple[Group, ...]
    sockets: tuple[Group, ...]
    cores: tuple[Group, ...]
    uncores: tuple[Group, ...]
    sockets_in_numa: dict[int, tuple[Child, ...]]
    numas_in_socket: dict[int, tuple[Child, ...]]
    cores_in_socket: dict[int, tuple[Child, ...]]
    cores_in_numa: dict[int, tuple[Child, ...]]
    uncores_in_numa: dict[int, tuple[Child, ...]]
    cores_in_uncore: dict[int, tuple[Child, ...]]
    numa_nodes: tuple[int, ...]
    numa_mask: dict[int, int]
    cpus_per_core: int
    cpus_per_socket: int
    cpus_per_uncore: int
    smallest_numa: int
    smallest_socket: int

    @property
    def sockets_first(self) -> bool:
        """Return whether sockets are the upper level of the hierarchy: fewer sockets than NUMA
        nodes.
        """
        return len(self.sockets) < len(self.numas)


def cpu_topology(cpus: Iterable[Cpu]) -> CpuTopology:
    """Group the CPUs of a machine. Raises ValueError for no CPU or a repeated id."""
    listed = sorted(cpus, key=lambda cpu: cpu.id)
    if not listed or len({cpu.id for cpu in listed}) != len(listed):
        raise ValueError("a machine needs at least one CPU, each id once")
    numas, sockets = (
        _groups((cpu.numa, cpu) for cpu in listed),
        _groups((cpu.socket, cpu) for cpu in listed),
    )
    cores, uncores = _cores(listed), _groups((cpu.uncore, cpu) for cpu in listed)
    return CpuTopology(
        every=_union(numas),
        numas=numas,
        sockets=sockets,
        cores=cores,
        uncores=uncores,
        sockets_in_numa=_nested(numas, sockets),
        numas_in_socket=_nested(sockets, numas),
        cores_in_socket=_nested(sockets, cores),
        cores_in_numa=_nested(numas, cores),
        uncores_in_numa=_nested(numas, uncores),
        cores_in_uncore=_nested(uncores, cores),
        numa_nodes=tuple(numa for numa, _ in numas),
        numa_mask=dict(numas),
        cpus_per_core=len(listed) // len(cores),
        cpus_per_socket=len(listed) // len(sockets),
        cpus_per_uncore=len(listed) // len(uncores),
        smallest_numa=_smallest(numas),
        smallest_socket=_smallest(sockets),
    )


def _groups(keyed: Iterable[tuple[int, Cpu]]) -> tuple[Group, ...]:
    members: dict[int, int] = defaultdict(int)
    for key, cpu in keyed:
        members[key] |= 1 << cpu.id
    return tuple(sorted(members.items()))


def _cores(cpus: list[Cpu]) -> tuple[Group, ...]:
    members: dict[tuple[int, int], int] = defaultdict(int)
    for cpu in cpus:
        members[cpu.socket, cpu.core] |= 1 << cpu.id
    return tuple(sorted(((group & -group).bit_length() - 1, group) for group in members.values()))


def _nested(
    parents: tuple[Group, ...], children: tuple[Group, ...]
) -> dict[int, tuple[Child, ...]]:
    return {
        parent: tuple((child, cpus, cpus & within) for child, cpus in children if cpus & within)
        for parent, within in parents
    }


def _union(groups: tuple[Group, ...]) -> int:
    union = 0
    for _, cpus in groups:
        union |= cpus
    return union


def _smallest(groups: tuple[Group, ...]) -> int:
    return min(cpus.bit_count() for _, cpus in groups)
