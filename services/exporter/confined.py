"""Zones that the machine lacks are no zones: plugins and damaged answers may name such. Must not
know what is counted.
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


def allocatable(found: Allocatable, known: Zones) -> Allocatable:
    """What may be handed out, in zones that there are."""
    if _all_known((*found.memory, *found.devices), known):
        return found
    return Allocatable(found.cpus, _blocks(found.memory, known), _groups(found.devices, known))


def pods(found: tuple[ListedPod, ...], known: Zones) -> tuple[ListedPod, ...]:
    """The listed pods, in zones that there are."""
    at_pod_level = (block for pod in found for block in pod.memory)
    if _all_known(at_pod_level, known) and _held_known(
        (each for pod in found for each in pod.containers), known
    ):
        return found
    return tuple(_pod(pod, known) for pod in found)


def checkpoints(found: Checkpoints, known: Zones) -> Checkpoints:
    """What the checkpoints say, in zones that there are."""
    containers = (each for held in found.holdings.values() for each in held.values())
    if _held_known(containers, known) and known.issuperset(
        chain.from_iterable(found.groups.values())
    ):
        return found
    holdings = {uid: _containers(held, known) for uid, held in found.holdings.items()}
    groups = {zone: _within(group, known) for zone, group in found.groups.items()}
    return Checkpoints(found.read, holdings, found.free, groups, found.registered)


def _all_known(found: Iterable[MemoryBlock | DeviceGroup], known: Zones) -> bool:
    """Hardly ever false: then nothing need be made anew."""
    return known.issuperset(chain.from_iterable({each.zones for each in found}))


def _held_known(containers: Iterable[ListedContainer], known: Zones) -> bool:
    found = set[tuple[int, ...]]()
    for each in containers:
        found.update([block.zones for block in each.memory])
        found.update([group.zones for group in each.devices])
    return known.issuperset(chain.from_iterable(found))


def _containers(held: Mapping[str, ListedContainer], known: Zones) -> dict[str, ListedContainer]:
    return {name: _container(each, known) for name, each in held.items()}


def _pod(pod: ListedPod, known: Zones) -> ListedPod:
    containers = tuple(_container(each, known) for each in pod.containers)
    return msgspec.structs.replace(pod, containers=containers, memory=_blocks(pod.memory, known))


def _container(found: ListedContainer, known: Zones) -> ListedContainer:
    return ListedContainer(
        found.name,
        found.cpus,
        _blocks(found.memory, known),
        _groups(found.devices, known),
        found.claims,
    )


def _blocks(blocks: tuple[MemoryBlock, ...], known: Zones) -> tuple[MemoryBlock, ...]:
    if all(known.issuperset(block.zones) for block in blocks):
        return blocks
    return tuple(
        MemoryBlock(block.resource, _within(block.zones, known), block.size) for block in blocks
    )


def _groups(groups: tuple[DeviceGroup, ...], known: Zones) -> tuple[DeviceGroup, ...]:
    if all(known.issuperset(group.zones) for group in groups):
        return groups
    return tuple(
        DeviceGroup(group.resource, group.ids, _within(group.zones, known)) for group in groups
    )


def _within(zones: tuple[int, ...], known: Zones) -> tuple[int, ...]:
    return tuple(zone for zone in zones if zone in known)
