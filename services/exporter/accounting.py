"""Capacity, allocatable and available of each zone, counted as resource-topology-exporter 0.25
counts them.

Differences, on purpose: zones go by the kernel's node ids (RTE by position), what podresources
hides (pod-level sets, init containers' CPUs) is in the placements and so is counted as used, and
what is held though it may not be handed out takes nothing from what may be (RTE subtracts it):
devices that became unhealthy, and reserved CPUs, which the kubelet gives away with the rest of
their core on machines whose cores differ in threads (1.36). Must not know sockets, files or pods'
names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from services.exporter.answers import Allocatable, DeviceGroup
from services.exporter.placements import KEPT, MILLI
from services.exporter.sysfs import Machine, NumaNode
from shared.domain.idlist import parse_ids
from shared.domain.report import Placement, Zone, ZoneResource
from shared.domain.resources import CPU, MEMORY, Amounts
from shared.kubelet.cpuset import cpus_of, parse_cpus

Amount = Counter[tuple[int, str]]
"""(zone id, resource) -> amount; millicpu, bytes or counts."""


def count_zones(
    machine: Machine,
    allocatable: Allocatable,
    placements: Iterable[Placement],
    excluded: frozenset[str],
    free: Mapping[int, dict[str, int]],
    groups: Mapping[int, tuple[int, ...]],
) -> tuple[Zone, ...]:
    """Every NUMA node of the machine as a zone; `excluded` names resources that are not reported,
    `free` is the Memory Manager's own count by zone, empty where it is not known."""
    offered = _offered(tuple((node.id, node.cpus) for node in machine.nodes), allocatable)
    used = _used(placements, _healthy(allocatable.devices), cpus_of(allocatable.cpus))
    pinned = {resource for _, resource in offered}
    zones = []
    for node in machine.nodes:
        zone = _zone(node, offered, used, excluded)
        bounds = {
            name: amount for name, amount in _at_most(node).items() if name not in pinned | excluded
        }
        own = {
            name: amount for name, amount in free.get(node.id, {}).items() if name not in excluded
        }
        zones.append(
            msgspec.structs.replace(zone, bounds=bounds, free=own, group=groups.get(node.id, ()))
        )
    return tuple(zones)


def tracked(
    machine: Machine, allocatable: Allocatable, excluded: frozenset[str]
) -> tuple[str, ...]:
    """The resources that this node's managers pin to zones, sorted: what a placement can prove."""
    known = {node.id for node in machine.nodes}
    names = {block.resource for block in allocatable.memory if not known.isdisjoint(block.zones)}
    names |= {group.resource for group in allocatable.devices if not known.isdisjoint(group.zones)}
    cpus = {CPU} if not machine.zone_of_cpu.keys().isdisjoint(allocatable.cpus) else set()
    return tuple(sorted((names | cpus) - excluded))


@lru_cache(maxsize=64)
def _offered(nodes: tuple[tuple[int, tuple[int, ...]], ...], allocatable: Allocatable) -> Amount:
    """What the kubelet may hand out, the same from scan to scan; a zone that the machine lacks is
    left out. Not to be changed.
    """
    offered: Amount = Counter()
    known = {zone for zone, _ in nodes}
    zone_of_cpu = {cpu: zone for zone, cpus in nodes for cpu in cpus}
    for cpu in allocatable.cpus:
        if cpu in zone_of_cpu:
            offered[zone_of_cpu[cpu], CPU] += MILLI
    for block in allocatable.memory:
        for zone in known.intersection(block.zones):
            offered[zone, block.resource] += block.size
    for group in allocatable.devices:
        for zone in known.intersection(group.zones):
            offered[zone, group.resource] += len(group.ids)
    return offered


@lru_cache(maxsize=64)
def _healthy(groups: tuple[DeviceGroup, ...]) -> dict[str, dict[int, frozenset[str]]]:
    """By resource and zone the devices that may be handed out, the same from scan to scan. Not to
    be changed.
    """
    found: dict[str, dict[int, frozenset[str]]] = {}
    for group in groups:
        zones = found.setdefault(group.resource, {})
        zones.update({zone: zones.get(zone, frozenset()) | {*group.ids} for zone in group.zones})
    return found


def _used(
    placements: Iterable[Placement], healthy: Mapping[str, Mapping[int, frozenset[str]]], cpus: int
) -> Amount:
    """A block over several zones counts in full in each: podresources gives no split, and too
    little free is safe. Of devices and `cpus` those count that could be handed out if nobody held
    them."""
    used: Amount = Counter()
    devices: dict[str, set[str]] = {}
    for placement in placements:
        for entry in placement.held:
            if entry.resource in healthy and entry.ids:
                devices.setdefault(entry.resource, set()).update(_ids(entry.ids))
                continue
            amount = (
                _cpus(entry.ids, cpus) * MILLI
                if entry.resource == CPU and entry.ids
                else entry.amount
            )
            for zone in entry.zones:
                used[zone, entry.resource] += amount
    for resource, held in devices.items():
        for zone, offered in healthy[resource].items():
            used[zone, resource] += len(offered & held)
    return used


@lru_cache(maxsize=KEPT)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))


@lru_cache(maxsize=KEPT)
def _cpus(text: str, offered: int) -> int:
    return (parse_cpus(text) & offered).bit_count()


def _zone(node: NumaNode, offered: Amount, used: Amount, excluded: frozenset[str]) -> Zone:
    physical = {CPU: len(node.cpus) * MILLI, MEMORY: node.memory_bytes, **node.hugepages}
    names = sorted({resource for zone, resource in offered if zone == node.id}) or [CPU]
    resources = {
        name: _resource(
            physical.get(name, 0), offered.get((node.id, name), 0), used.get((node.id, name), 0)
        )
        for name in names
        if name not in excluded
    }
    return Zone(node.id, resources, node.distances)


def _at_most(node: NumaNode) -> Amounts:
    """What the node has of each native resource; memory in hugepages is no memory for others."""
    memory = max(0, node.memory_bytes - sum(node.hugepages.values()))
    return {CPU: len(node.cpus) * MILLI, MEMORY: memory, **node.hugepages}


def _resource(capacity: int, allocatable: int, used: int) -> ZoneResource:
    """Capacity is raised to allocatable where sysfs says less: the kubelet is trusted."""
    return ZoneResource(max(capacity, allocatable), allocatable, max(0, allocatable - used))
