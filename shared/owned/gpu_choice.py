"""The choice of GPUs: by the partitions of the fabric, else by the tree of zones and PCIe switches.

1. A partition is free if pods hold none of its GPUs. Partitions of the highest score come first.
   Among them, the choice leaves the most of the larger partitions whole.

2. Without a partition, the deepest part of the tree (node, zone, switch) that has enough free GPUs
   is taken; among equals the one with more used parts around it, and for a shared GPU the best
   score.

Source: Koordinator a7a1b76b, plugins/deviceshare/allocator_gpu.go. There, partitions of the lowest
score come first, and the score of a shared GPU has free and total swapped.

No service requests cards yet (see `devices`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.device_scores import device_score
from shared.owned.devices import GPU, DeviceRequest, FreeDevices, Partition, Partitions, fits

Minors = tuple[int, ...]

# Weight of a partition that stays whole, by size.
_WEIGHTS = {8: 10000, 4: 100, 2: 1}
_LEVELS = {"": 0, "Node": 1, "NUMANode": 2, "PCIe": 3, "Device": 4}
_NODE, _ZONE, _SWITCH = 1, 2, 3


def by_partition(free: FreeDevices, request: DeviceRequest) -> Minors | None:
    """Return the GPUs of the best free partition; None if there is none, or no table."""
    table, spec = free.node.partitions or {}, request.partition
    candidates = mask_of(minor for minor in free.amounts.get(GPU, {}) if free.is_usable(GPU, minor))
    groups = _by_score(table.get(request.gpu.count, ()))
    for group in groups[:1] if spec is not None and spec.is_restricted else groups:
        feasible = [
            partition
            for partition in group
            if not partition.minors & (free.used | ~candidates)
            and (spec is None or partition.bandwidth >= spec.bandwidth)
        ]
        if feasible:
            return nodes_of(_best_packed(free.used, feasible, table, request.gpu.count).minors)
    return None


def _by_score(partitions: Iterable[Partition]) -> list[list[Partition]]:
    groups: dict[int, list[Partition]] = {}
    for partition in partitions:
        groups.setdefault(partition.score, []).append(partition)
    return [groups[score] for score in sorted(groups, reverse=True)]


def _best_packed(used: int, feasible: list[Partition], table: Partitions, count: int) -> Partition:
    """Return the partition that leaves the most and the largest partitions of the best score."""
    whole = [
        (weight * partition.score, partition.minors)
        for size, weight in _WEIGHTS.items()
        if size >= count
        for partition in next(iter(_by_score(table.get(size, ()))), [])
    ]

    def left_whole(partition: Partition) -> int:
        taken = used | partition.minors
        return sum(weight for weight, minors in whole if not minors & taken)

    return max(feasible, key=left_whole)


class _Part(msgspec.Struct, frozen=True):
    """The GPUs of the node, of a zone or of a switch."""

    level: int
    minors: Minors
    children: tuple[_Part, ...] = ()


class _Place(msgspec.Struct, frozen=True):
    """Chosen GPUs: their depth in the tree, how many of the parts above them are used, and the
    score.
    """

    minors: Minors
    depth: int
    used_parts: int
    score: int


def has_tree(free: FreeDevices, request: DeviceRequest) -> bool:
    """Return whether the tree can serve the request: the place of every GPU is known, and no
    several GPUs are shared.
    """
    devices = free.devices.get(GPU, {}).values()
    is_placed = bool(devices) and all(device.zone is not None for device in devices)
    return is_placed and not (request.gpu.is_shared and request.gpu.count > 1)


def by_tree(free: FreeDevices, request: DeviceRequest, is_scored: bool) -> Minors | None:
    """Return the GPUs in the best part of the tree; None if no part has enough."""
    switches: dict[int, dict[str, list[int]]] = {}
    for minor, device in sorted(free.devices[GPU].items()):
        zone = -1 if device.zone is None else device.zone
        switches.setdefault(zone, {}).setdefault(device.pcie, []).append(minor)
    zones = tuple(
        _Part(
            _ZONE,
            tuple(sorted(minor for minors in in_zone.values() for minor in minors)),
            tuple(_Part(_SWITCH, tuple(in_zone[pcie])) for pcie in sorted(in_zone)),
        )
        for _, in_zone in sorted(switches.items())
    )
    node = _Part(_NODE, tuple(sorted(free.devices[GPU])), zones)
    place = _Search(free, request, is_scored).best(node, 0, 0)
    return None if place is None else place.minors


class _Search:
    """A search for the best place."""

    def __init__(self, free: FreeDevices, request: DeviceRequest, is_scored: bool) -> None:
        self.free, self.needs, self.is_scored = free, request.gpu, is_scored
        self.required = _LEVELS[request.hint(GPU).scope]

    def best(self, part: _Part, depth: int, used_parts: int) -> _Place | None:
        if len(part.minors) < self.needs.count:
            return None
        depth += 1
        used_parts += bool(mask_of(part.minors) & self.free.used)
        places = [self.best(child, depth, used_parts) for child in part.children]
        inside = [place for place in places if place is not None]
        if inside:
            return max(inside, key=lambda place: (place.depth, place.used_parts, place.score))
        return None if self.required > part.level else self._taken(part, depth, used_parts)

    def _taken(self, part: _Part, depth: int, used_parts: int) -> _Place | None:
        """Return the lowest GPUs with enough free, or the best one if it is shared."""
        free, per_card = self.free.amounts.get(GPU, {}), self.needs.per_card
        enough = [
            minor
            for minor in part.minors
            if minor in free and self.free.is_usable(GPU, minor) and fits(per_card, free[minor])
        ]
        if len(enough) < self.needs.count:
            return None
        if not self.needs.is_shared:
            return _Place(tuple(enough[: self.needs.count]), depth, used_parts, 0)
        minor = max(enough, key=self._score)
        return _Place((minor,), depth, used_parts, self._score(minor))

    def _score(self, minor: int) -> int:
        if not self.is_scored:
            return 0
        return device_score(self.free, GPU, minor, self.needs.per_card)
