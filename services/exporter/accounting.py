"""Capacity, allocatable and available amounts of each zone.

Counts as resource-topology-exporter (RTE) 0.25 does, with these differences on purpose:

1. Zones go by the kernel's node ids (RTE: by position).
2. Resources that podresources hides (pod-level sets, CPUs of init containers) are in the
   placements, so they count as used.
3. A held resource that may not be handed out reduces nothing (RTE subtracts it): devices that
   became unhealthy, and reserved CPUs, which the kubelet hands out with the rest of their core on
   machines with an uneven number of threads (1.36).

Must not know sockets, files or pod names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from services.exporter.answers import Allocatable, DeviceGroup
from services.exporter.placements import CACHED, MILLI
from services.exporter.sysfs import Machine, NumaNode
from shared.domain.idlist import parse_ids
from shared.domain.report import Placement, Zone, ZoneResource
from shared.domain.resources import CPU, MEMORY, Amounts
from shared.kubelet.cpuset import cpus_of, parse_cpus

# (zone id, resource) -> millicpu, bytes or device count.
Amount = Counter[tuple[int, str]]


def count_zones(
    machine: Machine,
    allocatable: Allocatable,
    placements: Iterable[Placement],
    excluded: frozenset[str],
    free: Mapping[int, dict[str, int]],
    groups: Mapping[int, tuple[int, ...]],
) -> tuple[Zone, ...]:
    """Return every NUMA node of the machine as a zone.

    `excluded` names resources to leave out. `free` is the Memory Manager's own count by zone, empty
    if unknown; `groups` are its groups of zones.
    """
    offered = _offered(tuple((node.id, node.cpus) for node in machine.nodes), allocatable)
    used = _used(placements, _healthy(allocatable.devices), cpus_of(allocatable.cpus))
    hidden = {resource for _, resource in offered} | excluded
    zones = []
    for node in machine.nodes:
        zone = _zone(node, offered, used, excluded)
        bounds = {name: size for name, size in _upper_bounds(node).items() if name not in hidden}
        node_free = free.get(node.id, {})
        zone_free = {name: size for name, size in node_free.items() if name not in excluded}
        group = groups.get(node.id, ())
        zones.append(msgspec.structs.replace(zone, bounds=bounds, free=zone_free, group=group))
    return tuple(zones)


def tracked(
    machine: Machine, allocatable: Allocatable, excluded: frozenset[str]
) -> tuple[str, ...]:
    """Return the sorted resources that this node's managers pin to zones."""
    zone_ids = {node.id for node in machine.nodes}
    names = {
        entry.resource
        for entries in (allocatable.memory, allocatable.devices)
        for entry in entries
        if not zone_ids.isdisjoint(entry.zones)
    }
    if not machine.zone_of_cpu.keys().isdisjoint(allocatable.cpus):
        names.add(CPU)
    return tuple(sorted(names - excluded))


# The answer is the same from scan to scan, so the result is cached; callers must not change it.
@lru_cache(maxsize=64)
def _offered(nodes: tuple[tuple[int, tuple[int, ...]], ...], allocatable: Allocatable) -> Amount:
    offered: Amount = Counter()
    zone_ids = {zone for zone, _ in nodes}
    zone_of_cpu = {cpu: zone for zone, cpus in nodes for cpu in cpus}
    for cpu in allocatable.cpus:
        if cpu in zone_of_cpu:
            offered[zone_of_cpu[cpu], CPU] += MILLI
    for block in allocatable.memory:
        for zone in zone_ids.intersection(block.zones):
            offered[zone, block.resource] += block.size
    for group in allocatable.devices:
        for zone in zone_ids.intersection(group.zones):
            offered[zone, group.resource] += len(group.ids)
    return offered


@lru_cache(maxsize=64)
def _healthy(groups: tuple[DeviceGroup, ...]) -> dict[str, dict[int, frozenset[str]]]:
    """Return resource -> zone -> healthy devices; cached, so callers must not change it."""
    healthy: dict[str, dict[int, frozenset[str]]] = {}
    for group in groups:
        zones = healthy.setdefault(group.resource, {})
        for zone in group.zones:
            zones[zone] = zones.get(zone, frozenset()) | {*group.ids}
    return healthy


def _used(
    placements: Iterable[Placement], healthy: Mapping[str, Mapping[int, frozenset[str]]], cpus: int
) -> Amount:
    """Sum the used amounts.

    A block over several zones counts in full in each: podresources gives no split, and too little
    free is the safe error. Devices and CPUs count only if they could be handed out again.
    """
    used: Amount = Counter()
    devices: dict[str, set[str]] = {}
    for placement in placements:
        for entry in placement.held:
            if entry.resource in healthy and entry.ids:
                devices.setdefault(entry.resource, set()).update(_ids(entry.ids))
                continue
            amount = entry.amount
            if entry.resource == CPU and entry.ids:
                amount = _cpu_count(entry.ids, cpus) * MILLI
            for zone in entry.zones:
                used[zone, entry.resource] += amount
    for resource, held_ids in devices.items():
        for zone, healthy_ids in healthy[resource].items():
            used[zone, resource] += len(healthy_ids & held_ids)
    return used


@lru_cache(maxsize=CACHED)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))


@lru_cache(maxsize=CACHED)
def _cpu_count(text: str, offered: int) -> int:
    return (parse_cpus(text) & offered).bit_count()


def _zone(node: NumaNode, offered: Amount, used: Amount, excluded: frozenset[str]) -> Zone:
    physical = _physical(node)
    names = sorted({resource for zone, resource in offered if zone == node.id}) or [CPU]
    resources = {}
    for name in names:
        if name not in excluded:
            key = node.id, name
            resources[name] = _resource(
                physical.get(name, 0), offered.get(key, 0), used.get(key, 0)
            )
    return Zone(node.id, resources, node.distances)


def _physical(node: NumaNode) -> Amounts:
    """Return CPUs, memory and hugepages by /sys; an amount that /sys lacks is left out, not 0."""
    physical = {CPU: len(node.cpus) * MILLI, **node.hugepages}
    if node.memory_bytes is not None:
        physical[MEMORY] = node.memory_bytes
    return physical


def _upper_bounds(node: NumaNode) -> Amounts:
    """Return the most that the node has of each native resource; hugepages are no free memory."""
    bounds = _physical(node)
    if MEMORY in bounds:
        bounds[MEMORY] = max(0, bounds[MEMORY] - sum(node.hugepages.values()))
    return bounds


def _resource(capacity: int, allocatable: int, used: int) -> ZoneResource:
    """Raise the capacity to the allocatable amount if sysfs has less: the kubelet is right."""
    return ZoneResource(max(capacity, allocatable), allocatable, max(0, allocatable - used))
