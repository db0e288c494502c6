"""Machines for the tests of the kubelet model: regular shapes by numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.domain.pod import Container, ContainerKind, Pod
from shared.kubelet.admission import build
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from shared.kubelet.topology import Cpu

GIB = 1 << 30
GPU = "example.com/gpu"


def regular_cpus(
    zones: int, sockets: int, cores_per_zone: int, threads: int, uncores_per_zone: int = 1
) -> list[Cpu]:
    """Return CPUs numbered thread by thread over all cores, as Linux numbers them on x86."""
    cpus = []
    total_cores = zones * cores_per_zone
    for core in range(total_cores):
        zone = core // cores_per_zone
        uncore = (
            zone * uncores_per_zone + core % cores_per_zone * uncores_per_zone // cores_per_zone
        )
        socket = zone * sockets // zones
        cpus += [
            Cpu(core + thread * total_cores, core, socket, zone, uncore)
            for thread in range(threads)
        ]
    return cpus


def regular_machine(
    zones: int,
    cores_per_zone: int,
    threads: int = 2,
    memory_bytes: int = 64 * GIB,
    uncores_per_zone: int = 1,
) -> MachineConfig:
    """Return a machine with one or two sockets and equal zones with 4 GiB of 2 MiB pages each;
    zones of one socket are nearer to each other.
    """
    sockets = 1 if zones == 1 else 2
    listed = tuple(
        ZoneConfig(zone, memory_bytes, {2 << 20: 2048}, _distances(zone, zones, sockets))
        for zone in range(zones)
    )
    return MachineConfig(
        listed, tuple(regular_cpus(zones, sockets, cores_per_zone, threads, uncores_per_zone))
    )


def _distances(zone: int, zones: int, sockets: int) -> tuple[int, ...]:
    per_socket = max(1, zones // sockets)
    return tuple(
        10 if other == zone else 12 if other // per_socket == zone // per_socket else 32
        for other in range(zones)
    )


def kubelet(
    zones: int = 2,
    policy: str = "single-numa-node",
    scope: str = "container",
    cores_per_zone: int = 4,
    gpus: Mapping[str, int | None] | None = None,
    uncores_per_zone: int = 1,
    **settings: Any,
) -> KubeletState:
    """Return a static kubelet on a regular machine: CPUs 0 and 1 and 1 GiB of each zone are
    reserved, GPUs are given by zone mask.
    """
    config = KubeletConfig(
        topology_policy=policy,
        topology_scope=scope,
        **{
            "cpu_policy": "static",
            "reserved_cpus": "0-1",
            "memory_policy": "Static",
            "reserved_memory": {zone: {"memory": GIB} for zone in range(zones)},
            "alpha_cpu_options": True,
            **settings,
        },
    )
    devices = {GPU: {name: Device(mask) for name, mask in gpus.items()}} if gpus else {}
    built = build(
        regular_machine(zones, cores_per_zone, uncores_per_zone=uncores_per_zone), config, devices
    )
    assert isinstance(built, KubeletState), built
    return built


def container(
    name: str = "c0", cpu: int = 0, memory: int = 0, gpus: int = 0, kind: ContainerKind = "app"
) -> Container:
    """Return a container with equal requests and limits: whole CPUs, GiB, GPUs."""
    asked = {"cpu": cpu * 1000, "memory": memory * GIB, GPU: gpus}
    amounts = {resource: amount for resource, amount in asked.items() if amount}
    return Container(name, kind, amounts, amounts)


def guaranteed(uid: str, *containers: Container) -> Pod:
    """Return a Guaranteed pod."""
    return Pod(uid, "default", uid, "Guaranteed", containers)
