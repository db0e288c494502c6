"""The CPUs of a machine by core, zone and socket, as the choice of CPU ids needs them.

This module does not know which CPUs are free.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.kubelet.topology import Cpu

# A core: socket, core id and zone. Core ids repeat across sockets, on some machines across zones.
CoreId = tuple[int, int, int]


class CpuNesting(msgspec.Struct, frozen=True):
    """Where each CPU is: core, zone and socket by CPU id, and the CPUs of each as sets.
    `cores_in_zone` are the sets of a zone's cores in order of the core ids.

    The three counts are whole-number means, as Koordinator computes them: a machine with one
    sibling offline counts one CPU a core (`topology.CPUsPerCore`).
    """

    every: int
    core_of: dict[int, CoreId]
    zone_of: dict[int, int]
    socket_of: dict[int, int]
    in_core: dict[CoreId, int]
    in_zone: dict[int, int]
    in_socket: dict[int, int]
    cores_in_zone: dict[int, tuple[int, ...]]
    cpus_per_core: int
    cpus_per_zone: int
    cpus_per_socket: int


def nesting(cpus: Iterable[Cpu]) -> CpuNesting | None:
    """Return how the CPUs nest; None if there are none."""
    listed = sorted(cpus, key=lambda cpu: cpu.id)
    if not listed:
        return None
    in_core: dict[CoreId, int] = {}
    in_zone: dict[int, int] = {}
    in_socket: dict[int, int] = {}
    for cpu in listed:
        bit, core = 1 << cpu.id, _core(cpu)
        in_core[core] = in_core.get(core, 0) | bit
        in_zone[cpu.numa] = in_zone.get(cpu.numa, 0) | bit
        in_socket[cpu.socket] = in_socket.get(cpu.socket, 0) | bit
    zones = {(cpu.socket, cpu.numa) for cpu in listed}
    return CpuNesting(
        every=sum(1 << cpu.id for cpu in listed),
        core_of={cpu.id: _core(cpu) for cpu in listed},
        zone_of={cpu.id: cpu.numa for cpu in listed},
        socket_of={cpu.id: cpu.socket for cpu in listed},
        in_core=in_core,
        in_zone=in_zone,
        in_socket=in_socket,
        cores_in_zone={
            zone: tuple(in_core[core] for core in sorted(in_core) if core[2] == zone)
            for zone in in_zone
        },
        cpus_per_core=len(listed) // len(in_core),
        cpus_per_zone=len(listed) // len(zones),
        cpus_per_socket=len(listed) // len(in_socket),
    )


def _core(cpu: Cpu) -> CoreId:
    return cpu.socket, cpu.core, cpu.numa
