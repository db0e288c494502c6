"""The choice of GPUs: by the partitions of the fabric, else by the tree of zones and PCIe switches.

1. A partition is free if pods hold none of its GPUs. Partitions of the highest score come first.
   Among them, the choice leaves the most of the larger partitions whole.

2. Without a partition, the deepest part of the tree (node, zone, switch) that has enough free GPUs
   is taken; among equals the one with more used parts around it, and for a shared GPU the best
   score.

Source: Koordinator a7a1b76b, plugins/deviceshare/allocator_gpu.go. There, partitions of the lowest
score come first, and the score of a shared GPU has free and total swapped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shared.kubelet.masks import nodes_of
from shared.owned.device_scores import device_score
from shared.owned.devices import (
    GPU,
    NODE,
    SWITCH,
    ZONE,
    DeviceRequest,
    FreeDevices,
    Part,
    Partition,
    Partitions,
)

Minors = tuple[int, ...]

# Weight of a partition that stays whole, by size.
_WEIGHTS = {8: 10000, 4: 100, 2: 1}
_LEVELS = {"": 0, "Node": NODE, "NUMANode": ZONE, "PCIe": SWITCH, "Device": 4}


def by_partition(free: FreeDevices, request: DeviceRequest, fitting: int) -> Minors | None:
    """Return the best partition of GPUs that fit; None if there is none, or no table."""
    table, spec = free.node.partitions or {}, request.partition
    groups = _by_score(table.get(request.gpu.count, ()))
    for group in groups[:1] if spec is not None and spec.is_restricted else groups:
        feasible = [
            partition
            for partition in group
            if not partition.minors & (free.used | ~fitting)
            and (spec is None or partition.bandwidth >= spec.bandwidth)
        ]
        if feasible:
            return nodes_of(_best_packed(free, feasible, table, request.gpu.count).minors)
    return None


def _by_score(partitions: Iterable[Partition]) -> list[list[Partition]]:
    groups: dict[int, list[Partition]] = {}
    for partition in partitions:
        groups.setdefault(partition.score, []).append(partition)
    return [groups[score] for score in sorted(groups, reverse=True)]


def _best_packed(
    free: FreeDevices, feasible: list[Partition], table: Partitions, count: int
) -> Partition:
    """Return the partition with the most GPUs of the booking; of equal ones, that which leaves the
    most and the largest partitions of the best score.
    """
    preferred = free.preferred(GPU)
    whole = [
        (weight * partition.score, partition.minors)
        for size, weight in _WEIGHTS.items()
        if size >= count
        for partition in next(iter(_by_score(table.get(size, ()))), [])
    ]

    def worth(partition: Partition) -> tuple[int, int]:
        taken = free.used | partition.minors
        left_whole = sum(weight for weight, minors in whole if not minors & taken)
        return (partition.minors & preferred).bit_count(), left_whole

    return max(feasible, key=worth)


class _Place(NamedTuple):
    """Chosen GPUs, after what ranks them: how deep in the tree they are, how many are of the
    booking, how many parts above them are used, and their score.
    """

    depth: int
    booked: int
    used_parts: int
    score: int
    minors: Minors


def has_tree(free: FreeDevices, request: DeviceRequest) -> bool:
    """Return whether the tree can serve the request: the place of every GPU is known, and no
    several GPUs are shared.
    """
    return free.layout.tree is not None and not (request.gpu.is_shared and request.gpu.count > 1)


def by_tree(
    free: FreeDevices, request: DeviceRequest, fitting: int, is_scored: bool
) -> Minors | None:
    """Return GPUs that fit, in the best part of the tree; None if no part has enough."""
    per_card, tree = request.gpu.per_card, free.layout.tree
    if tree is None:
        return None
    scores: dict[int, int] = {}
    if request.gpu.is_shared:
        scores = {
            minor: device_score(free, GPU, minor, per_card) if is_scored else 0
            for minor in nodes_of(fitting)
        }
    place = _Search(free, fitting, request, scores).best(tree, 0, 0)
    return None if place is None else place.minors


class _Search:
    """A search for the best place among the GPUs with enough free. `scores` are those of GPUs that
    may be shared, empty if the pod takes whole ones.
    """

    def __init__(
        self, free: FreeDevices, fitting: int, request: DeviceRequest, scores: dict[int, int]
    ) -> None:
        self.used, self.preferred = free.used, free.preferred(GPU)
        self.fitting, self.scores = fitting, scores
        self.count, self.required = request.gpu.count, _LEVELS[request.hint(GPU).scope]

    def best(self, part: Part, depth: int, used_parts: int) -> _Place | None:
        fitting = part.gpus & self.fitting
        if fitting.bit_count() < self.count:
            return None
        depth += 1
        used_parts += bool(part.gpus & self.used)
        best: _Place | None = None
        for child in part.children:
            place = self.best(child, depth, used_parts)
            if place is not None and (best is None or place[:4] > best[:4]):
                best = place
        if best is not None:
            return best
        if self.required > part.level:
            return None
        first = nodes_of(fitting & self.preferred)
        minors, booked = (*first, *nodes_of(fitting & ~self.preferred)), min(len(first), self.count)
        if not self.scores:
            return _Place(depth, booked, used_parts, 0, minors[: self.count])
        minor = max(first or minors, key=lambda minor: self.scores[minor])
        return _Place(depth, booked, used_parts, self.scores[minor], (minor,))
