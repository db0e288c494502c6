"""Removal of zones that the machine lacks: plugins and damaged answers may name such zones.

Must not know the accounting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.checkpoints import Checkpoints

Zones = frozenset[int]


def allocatable(offered: Allocatable, zones: Zones) -> Allocatable:
    """Return the allocatable resources without zones outside `zones`."""
    if _within_zones((*offered.memory, *offered.devices), zones):
        return offered
    return Allocatable(
        offered.cpus, _blocks(offered.memory, zones), _groups(offered.devices, zones)
    )


def pods(listed: tuple[ListedPod, ...], zones: Zones) -> tuple[ListedPod, ...]:
    """Return the listed pods without zones outside `zones`."""
    pod_blocks = (block for pod in listed for block in pod.memory)
    containers = (container for pod in listed for container in pod.containers)
    if _within_zones(pod_blocks, zones) and _holdings_within(containers, zones):
        return listed
    return tuple(_pod(pod, zones) for pod in listed)


def checkpoints(stored: Checkpoints, zones: Zones) -> Checkpoints:
    """Return the checkpoints without zones outside `zones`."""
    containers = (item for by_name in stored.holdings.values() for item in by_name.values())
    groups_within = zones.issuperset(chain.from_iterable(stored.groups.values()))
    if _holdings_within(containers, zones) and groups_within:
        return stored
    holdings = {uid: _containers(by_name, zones) for uid, by_name in stored.holdings.items()}
    groups = {zone: _limited(group, zones) for zone, group in stored.groups.items()}
    return Checkpoints(stored.read, holdings, stored.free, groups, stored.registered)


# The checks nearly always succeed, and then nothing needs to be copied.
def _within_zones(entries: Iterable[MemoryBlock | DeviceGroup], zones: Zones) -> bool:
    return zones.issuperset(chain.from_iterable({entry.zones for entry in entries}))


def _holdings_within(containers: Iterable[ListedContainer], zones: Zones) -> bool:
    zone_sets = set[tuple[int, ...]]()
    for container in containers:
        zone_sets.update([block.zones for block in container.memory])
        zone_sets.update([group.zones for group in container.devices])
    return zones.issuperset(chain.from_iterable(zone_sets))


def _containers(by_name: Mapping[str, ListedContainer], zones: Zones) -> dict[str, ListedContainer]:
    return {name: _container(container, zones) for name, container in by_name.items()}


def _pod(pod: ListedPod, zones: Zones) -> ListedPod:
    containers = tuple(_container(container, zones) for container in pod.containers)
    return msgspec.structs.replace(pod, containers=containers, memory=_blocks(pod.memory, zones))


def _container(container: ListedContainer, zones: Zones) -> ListedContainer:
    memory, devices = _blocks(container.memory, zones), _groups(container.devices, zones)
    return msgspec.structs.replace(container, memory=memory, devices=devices)


def _blocks(blocks: tuple[MemoryBlock, ...], zones: Zones) -> tuple[MemoryBlock, ...]:
    if all(zones.issuperset(block.zones) for block in blocks):
        return blocks
    return tuple(
        MemoryBlock(block.resource, _limited(block.zones, zones), block.size) for block in blocks
    )


def _groups(groups: tuple[DeviceGroup, ...], zones: Zones) -> tuple[DeviceGroup, ...]:
    if all(zones.issuperset(group.zones) for group in groups):
        return groups
    return tuple(
        DeviceGroup(group.resource, group.ids, _limited(group.zones, zones)) for group in groups
    )


def _limited(entry_zones: tuple[int, ...], zones: Zones) -> tuple[int, ...]:
    return tuple(zone for zone in entry_zones if zone in zones)
