"""The cards of a Device object: what they offer, and which free ones lie near to each other if the
kubelet chooses devices: on one PCIe switch, or GPUs of one partition (NVLink) with the cards on
their switches.

1. A report names the free devices by id and zone, the Device object says where they are. A resource
   counts only if all its devices have entries there: what is unknown is not near.
2. A group counts if it has enough whichever devices are held by pods that no report lists yet.
3. If the preferred allocation of the device plugin is known (`shared.kubelet.preferred_gpus`), and
   no such pod holds GPUs, a group counts only if it has the GPUs that the plugin may prefer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from shared.domain.idlist import parse_ids
from shared.domain.resources import Amounts
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kubelet.cpuset import union
from shared.kubelet.masks import mask_of
from shared.kubelet.preferred_gpus import Scores, preferred, scores_of
from shared.ledger.state import LedgerNode
from shared.owned.devices import GPU, Device, Partitions, totals_of

ONE_SWITCH, ONE_PARTITION = 1, 2
# Most Device objects of which totals are kept.
MOST_TOTALS = 4096
# The zone of a device that lies in no zone, or in several.
NO_ZONE = -1


def device_types_of(devices: NodeDevicesObserved) -> tuple[str, ...]:
    """Return the types of devices of a Device object."""
    return tuple(sorted({device.type for device in devices.devices}))


_totals: dict[int, tuple[NodeDevicesObserved, Amounts]] = {}


def totals_of_cards(devices: NodeDevicesObserved) -> Amounts:
    """Return what the devices offer together. Remembered, because each change of a node asks."""
    remembered = _totals.get(id(devices))
    if remembered is None or remembered[0] is not devices:
        if len(_totals) >= MOST_TOTALS:
            _totals.clear()
        remembered = _totals[id(devices)] = devices, totals_of(devices.devices)
    return remembered[1]


class FreeCard(NamedTuple):
    """A free device of a resource, with its entry in the Device object."""

    resource: str
    zone: int
    card: Device


class Group(NamedTuple):
    """Free amounts by zone of devices that lie near to each other. `gpus` is the size of the
    partition, 0 for a switch, and `minors` are its GPUs.
    """

    gpus: int
    free: Mapping[int, Amounts]
    minors: int = 0


class NearDevices(NamedTuple):
    """The groups of a node, its free devices by zone, and the resources that are GPUs. `scores` are
    those of pairs of GPUs for their plugin, None if they are not known, and `minors` the free GPUs
    by zone.
    """

    groups: tuple[Group, ...]
    free: Mapping[int, Amounts]
    gpus: frozenset[str]
    scores: Scores | None = None
    minors: Mapping[int, int] = {}


def near_devices(node: LedgerNode, partitions: Partitions | None) -> NearDevices:
    """Return the groups of a node; `partitions` are by the number of GPUs, None without a table."""
    devices = node.devices.devices if node.devices is not None else ()
    by_id = {name: device for device in devices for name in _names(device)}
    free: list[FreeCard] = []
    for resource, zones in _free_ids(node).items():
        if zones.keys() <= by_id.keys():
            cards = (FreeCard(resource, zone, by_id[name]) for name, zone in zones.items())
            free += [entry for entry in cards if entry.card.is_healthy]
    switches = {entry.card.pcie for entry in free} - {""}
    groups = []
    for pcie in switches:
        members = [entry for entry in free if entry.card.pcie == pcie]
        groups.append(Group(0, _by_zone(members), mask_of(_minors(members))))
    for size, table in (partitions or {}).items():
        for minors in [partition.minors for partition in table]:
            gpus = [d for d in devices if d.type == GPU and minors >> d.minor & 1]
            switches = {gpu.pcie for gpu in gpus} - {""}
            members = [e for e in free if _is_member(e.card, minors, switches)]
            groups.append(Group(size, _by_zone(members), minors))
    names = frozenset(entry.resource for entry in free if entry.card.type == GPU)
    places = tuple(sorted((d.minor, d.zone, d.pcie) for d in devices if d.type == GPU))
    labels = node.observed.labels if node.observed is not None else {}
    minors_by_zone = {
        zone: mask_of(_minors(entry for entry in free if entry.zone == zone))
        for zone in {entry.zone for entry in free}
    }
    return NearDevices(
        tuple(groups),
        _by_zone(free),
        names,
        scores_of(labels, places) if len(names) == 1 else None,
        minors_by_zone,
    )


def _minors(cards: Iterable[FreeCard]) -> Iterator[int]:
    return (entry.card.minor for entry in cards if entry.card.type == GPU)


def _names(device: Device) -> list[str]:
    """Return the ids by which a device plugin may name the device or its virtual functions."""
    names = [device.id, *(name for group in device.functions for name in group.minors)]
    return [name for name in names if name]


def _is_member(card: Device, minors: int, switches: Container[str]) -> bool:
    return bool(minors >> card.minor & 1) if card.type == GPU else card.pcie in switches


def _by_zone(cards: Iterable[FreeCard]) -> dict[int, Amounts]:
    by_zone: dict[int, Amounts] = {}
    for resource, zone, _ in cards:
        amounts = by_zone.setdefault(zone, {})
        amounts[resource] = amounts.get(resource, 0) + 1
    return by_zone


def _free_ids(node: LedgerNode) -> dict[str, dict[str, int]]:
    """Return the ids of free devices with their zones, by resource; without resources of which a
    pod holds unknown ones.
    """
    ids: dict[str, dict[str, int]] = {}
    if node.listed is None or node.basis is None:
        return ids
    for group in node.basis.devices or ():
        zone = group.zones[0] if len(group.zones) == 1 else NO_ZONE
        ids.setdefault(group.resource, {}).update(dict.fromkeys(parse_ids(group.ids), zone))
    placements = [placement for listed in node.listed.values() for placement in listed]
    for item in [item for placement in placements for item in placement.held]:
        named = parse_ids(item.ids)
        if item.resource in ids and len(named) < item.amount:
            del ids[item.resource]
        for name in named:
            ids.get(item.resource, {}).pop(name, None)
    return ids


def closeness(
    near: NearDevices,
    asked: Amounts,
    others: Amounts,
    taken: Mapping[int, Amounts],
    zones: Iterable[int] | None,
) -> int:
    """Return ONE_SWITCH or ONE_PARTITION if some group of each of these zones (None: of the node)
    has the asked devices, else 0. `taken` is what other pods may hold of the free amounts, by zone,
    `others` what the pod takes besides.
    """
    names = {name for amounts in near.free.values() for name in amounts}
    asked = {name: amount for name, amount in asked.items() if name in names}
    if sum(asked.values()) < 2:
        return 0
    gpus = sum(amount for name, amount in asked.items() if name in near.gpus)
    sizes = [group.gpus for group in near.groups if group.gpus >= gpus > 0]
    counted = {0, min(sizes, default=0)}
    levels = []
    for scope in [{*near.free, *taken}] if zones is None else [{zone} for zone in zones]:
        needed = {
            name: amount
            + others.get(name, 0)
            + sum([taken.get(zone, {}).get(name, 0) for zone in scope])
            for name, amount in asked.items()
        }
        fitting = [g for g in near.groups if g.gpus in counted and _has(g, scope, needed)]
        for chosen in preferred_gpus(near, asked, others, taken, scope) or {0}:
            near_ones = [group.gpus > 0 for group in fitting if not chosen & ~group.minors]
            best = ONE_PARTITION if any(near_ones) else ONE_SWITCH
            levels.append(best if near_ones else 0)
    return min(levels, default=0)


def preferred_gpus(
    near: NearDevices,
    asked: Amounts,
    others: Amounts,
    taken: Mapping[int, Amounts],
    zones: Iterable[int],
) -> frozenset[int]:
    """Return the sets of GPUs, one of which the kubelet surely takes from these zones; empty if
    that is not known.
    """
    (name, *_) = near.gpus or ("",)
    count, zones = asked.get(name, 0), tuple(zones)
    is_open = others.get(name, 0) or any(taken.get(zone, {}).get(name, 0) for zone in zones)
    if near.scores is None or not count or is_open:
        return frozenset()
    return preferred(union(near.minors.get(zone, 0) for zone in zones), count, near.scores)


def _has(group: Group, zones: Iterable[int], needed: Amounts) -> bool:
    free = [group.free[zone] for zone in zones if zone in group.free]
    for name, amount in needed.items():
        if sum([amounts.get(name, 0) for amounts in free]) < amount:
            return False
    return True
