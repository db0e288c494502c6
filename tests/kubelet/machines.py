"""Machines for the tests of the kubelet model: regular shapes by numbers."""

from __future__ import annotations

from shared.kubelet.config import MachineConfig, ZoneConfig
from shared.kubelet.topology import Cpu

GIB = 1 << 30


def regular_cpus(zones: int, sockets: int, cores_per_zone: int, threads: int, uncores_per_zone: int = 1) -> list[Cpu]:
    """CPU ids thread by thread over all cores, as Linux numbers them on x86."""
    cpus = []
    total_cores = zones * cores_per_zone
    for core in range(total_cores):
        zone = core // cores_per_zone
        uncore = zone * uncores_per_zone + core % cores_per_zone * uncores_per_zone // cores_per_zone
        socket = zone * sockets // zones
        cpus += [Cpu(core + thread * total_cores, core, socket, zone, uncore) for thread in range(threads)]
    return cpus


def regular_machine(zones: int, cores_per_zone: int, threads: int = 2, memory_bytes: int = 64 * GIB) -> MachineConfig:
    """One or two sockets, equal zones, 4 GiB of 2 MiB pages in each, nearer zones inside a socket."""
    sockets = 1 if zones == 1 else 2
    listed = tuple(
        ZoneConfig(zone, memory_bytes, {2 << 20: 2048}, _distances(zone, zones, sockets)) for zone in range(zones)
    )
    return MachineConfig(listed, tuple(regular_cpus(zones, sockets, cores_per_zone, threads)))


def _distances(zone: int, zones: int, sockets: int) -> tuple[int, ...]:
    per_socket = max(1, zones // sockets)
    return tuple(10 if other == zone else 12 if other // per_socket == zone // per_socket else 32 for other in range(zones))
