"""Scans of a simulated kubelet by the production exporter's code, without sockets and files.

Must not know admission, nor what a scan is used for.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.exporter import core, wire
from services.exporter.checkpoints import NOTHING_READ
from services.exporter.kubelet_config import KubeletSettings
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.sysfs import Machine, NumaNode
from services.simulator import kubelet_files, listing
from services.simulator.cluster import zone_hugepages
from shared.domain.pod import Pod
from shared.domain.report import POD_LEVEL_GATE, Freshness
from shared.kubelet.config import KubeletConfig, MachineConfig
from shared.kubelet.layout import layout_of
from shared.kubelet.machine import KubeletState


def scan(state: KubeletState, pods: Iterable[Pod], freshness: Freshness, stored: bool) -> core.Scan:
    """Return one scan of a kubelet in this state that lists these pods, with its checkpoints if
    they are `stored`.
    """
    listed = wire.pods(
        pb.ListPodResourcesResponse.FromString(
            b"".join(listing.pod_message(pod, state) for pod in pods)
        )
    )
    allocatable = wire.allocatable(
        pb.AllocatableResourcesResponse.FromString(listing.allocatable_message(state))
    )
    checkpoints = kubelet_files.stored(state) if stored else NOTHING_READ
    config = state.kubelet.config
    return core.Scan(
        freshness,
        machine(state.kubelet.machine),
        allocatable,
        listed,
        settings(config),
        checkpoints,
    )


def settings(config: KubeletConfig) -> KubeletSettings:
    """Return the settings that the kubelet's configuration file would have."""
    options = {**config.topology_options, **config.cpu_options}
    if config.pod_level_managers:
        options[POD_LEVEL_GATE] = "true"
    return KubeletSettings(
        config.topology_policy,
        config.topology_scope,
        options,
        config.cpu_policy,
        config.memory_policy,
    )


def machine(config: MachineConfig) -> Machine:
    """Return the machine as /sys would show it."""
    ids = sorted(zone.id for zone in config.zones)
    cpus: dict[int, list[int]] = {}
    for cpu in config.cpus:
        cpus.setdefault(cpu.numa, []).append(cpu.id)
    nodes = tuple(
        NumaNode(
            zone.id,
            tuple(sorted(cpus.get(zone.id, ()))),
            zone.memory_bytes,
            zone_hugepages(zone),
            dict(zip(ids, zone.distances, strict=True)) if zone.distances else {},
        )
        for zone in sorted(config.zones, key=lambda zone: zone.id)
    )
    return Machine(nodes, layout_of(config.cpus))
