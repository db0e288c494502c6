"""The room that a node's zones have together, for demand classes that need several of them.

1. A class is wide on a node if each of its resources needs equally many zones of the empty node,
   and more than one: a `restricted` kubelet admits such a pod in exactly so many zones.
2. The zones are taken in sets of that many, the freest zones first, each resource by itself. A node
   has as many sets as its zones make. A set's room is that of a zone with the set's sum.
3. A pod that lands in one zone takes from the set that the zone is in, and may change the order.

`PlainSetRoom` looks at one node in plain integers, `SetRoomTable` at many in arrays, with the same
results (see `room.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from services.scheduler.score.strategies.room import (
    MOST_ROOM,
    PLAIN_ROOM_OF,
    ROOM_OF,
    SIZES,
    UNITS,
)
from services.scheduler.score.strategies.strategy import DemandClass, Floats, Ints, Items
from shared.domain.resources import Amounts

Sizes = Mapping[int, Amounts]


class WideClass(NamedTuple):
    """A demand class on machines of one type: `sets` of `width` zones each may hold it."""

    demand_class: DemandClass
    width: int
    sets: int


class PlainSetRoom:
    """The demand classes that are wide on a node, one node at a time."""

    def __init__(self, demand_classes: Sequence[DemandClass]) -> None:
        self._demand_classes = [item for item in demand_classes if item.amounts]
        # Nodes of one machine type share one object.
        self._wide: dict[int, tuple[Sizes, list[WideClass]]] = {}

    def lost(
        self, zones: Mapping[int, Amounts], landing: int, wanted: Mapping[str, int], sizes: Sizes
    ) -> int:
        """Return the weighed loss of room if `wanted` is taken from the zone `landing`."""
        loss, free = 0, list[Amounts]()
        for demand_class, width, sets in self._wide_on(sizes):
            if not free:
                free = [_within(zones.get(zone, {}), size) for zone, size in sizes.items()]
                place = list(sizes).index(landing)
                taken = {name: n - wanted.get(name, 0) for name, n in free[place].items()}
                rest = [*free[:place], taken, *free[place + 1 :]]
            room = room_of_sets(demand_class.amounts, width, sets, free)
            room_left = room_of_sets(demand_class.amounts, width, sets, rest)
            loss += demand_class.weight * (room - room_left)
        return loss

    def _wide_on(self, sizes: Sizes) -> list[WideClass]:
        kept = self._wide.get(id(sizes))
        if kept is None or kept[0] is not sizes:
            if len(self._wide) >= SIZES:
                self._wide.clear()
            wide = []
            for demand_class in self._demand_classes:
                width, sets = width_of(demand_class.amounts, sizes)
                if width > 1:
                    wide.append(WideClass(demand_class, width, sets))
            kept = self._wide[id(sizes)] = sizes, wide
        return kept[1]


def width_of(amounts: Items, sizes: Sizes) -> tuple[int, int]:
    """Return how many zones each of the amounts needs of the empty zones, and how many sets of so
    many zones there are; (0, 0) if they need unequal numbers, or all zones are too small.
    """
    widths = set[int]()
    for name, amount in amounts:
        largest_first = sorted([size.get(name, 0) for size in sizes.values()], reverse=True)
        widths.add(1 + sum(total < amount for total in accumulate(largest_first)))
    if len(widths) != 1:
        return 0, 0
    width = widths.pop()
    listing = sum(any(size.get(name, 0) for name, _ in amounts) for size in sizes.values())
    return (width, listing // width) if width <= len(sizes) else (0, 0)


def room_of_sets(amounts: Items, width: int, sets: int, free: Sequence[Amounts]) -> int:
    """Return the room of so many sets of zones, the freest first, each resource by itself."""
    units = [MOST_ROOM * UNITS] * sets
    for name, amount in amounts:
        freest = sorted([zone.get(name, 0) for zone in free], reverse=True)
        for number in range(sets):
            total = sum(freest[number * width : (number + 1) * width])
            units[number] = min(units[number], total * UNITS // amount)
    return sum(PLAIN_ROOM_OF[times] for times in units)


def _within(free: Amounts, size: Amounts) -> Amounts:
    return {name: max(0, min(free.get(name, 0), most)) for name, most in size.items()}


class SetsOnNodes(NamedTuple):
    """A demand class, and nodes on which it is wide alike: the sums of the sets [amount, set,
    node].
    """

    number: int
    nodes: Ints
    sums: Ints


class SetRoomTable:
    """Demand classes over named rows. Classes that request a resource without a row are left
    out.
    """

    def __init__(self, demand_classes: Sequence[DemandClass], names: Sequence[str]) -> None:
        rows = {name: row for row, name in enumerate(names)}
        self.demand_classes = [
            item
            for item in demand_classes
            if item.amounts and all(name in rows for name, _ in item.amounts)
        ]
        distinct = sorted({rows[name] for item in self.demand_classes for name, _ in item.amounts})
        self._rows = np.array(distinct, dtype=np.intp)
        # Of each class: its rows among those, and the amounts [amount, 1].
        self._asked = [
            (
                np.array([distinct.index(rows[name]) for name, _ in item.amounts], dtype=np.intp),
                np.array([[amount] for _, amount in item.amounts], dtype=np.int64),
            )
            for item in self.demand_classes
        ]

    def lost(self, request: Ints, landing: Ints, free: Ints, whole: Floats) -> Floats | None:
        """Return the weighed loss of room of each node if `request` [row] is taken from the zone
        `landing` [node]; free and whole are [row, zone, node]. None if no class is wide on a node.
        """
        sizes = whole.take(self._rows, axis=0)
        if not self._some_wide(sizes):
            return None
        available = np.clip(free.take(self._rows, axis=0), 0, sizes.astype(np.int64))
        rest = available.copy()
        rest[:, landing, np.arange(len(landing))] -= request.take(self._rows)[:, None]
        lost = np.zeros(len(landing))
        for amounts, sign in ((available, 1), (rest, -1)):
            for number, nodes, sums in self.sets(amounts, sizes):
                units = sums / (self._asked[number][1][:, :, None] / UNITS)
                least = np.minimum(np.minimum.reduce(units, axis=0), MOST_ROOM * UNITS)
                room = ROOM_OF.take(least.astype(np.int32), mode="clip").sum(
                    axis=0, dtype=np.float64
                )
                lost[nodes] += sign * self.demand_classes[number].weight * room
        return lost

    def places(self, free: Ints, whole: Floats) -> tuple[Ints, Ints]:
        """Return of each class how many more of it the sets of all nodes hold, and how many they
        hold when they are empty.
        """
        counts = np.zeros((2, len(self.demand_classes)), dtype=np.int64)
        sizes = whole.take(self._rows, axis=0)
        if self._some_wide(sizes):
            empty = sizes.astype(np.int64)
            available = np.clip(free.take(self._rows, axis=0), 0, empty)
            for row, amounts in enumerate((available, empty)):
                for number, _, sums in self.sets(amounts, sizes):
                    times = sums // self._asked[number][1][:, :, None]
                    counts[row, number] += np.minimum.reduce(times, axis=0).sum()
        return counts[0], counts[1]

    def sets(self, free: Ints, sizes: Floats) -> Iterator[SetsOnNodes]:
        """Yield the sets of each class on the nodes where it is wide; both are [own row, zone,
        node].
        """
        zones = free.shape[1]
        freest = -np.sort(-free, axis=1)
        largest = np.cumsum(-np.sort(-sizes, axis=1), axis=1)
        for number, (rows, amounts) in enumerate(self._asked):
            widths = 1 + (largest.take(rows, axis=0) < amounts[:, :, None]).sum(axis=1)
            listing = (sizes.take(rows, axis=0) > 0).any(axis=0).sum(axis=0)
            width = widths[0]
            is_wide = (widths == width).all(axis=0) & (width > 1) & (width <= zones)
            kinds = np.where(is_wide, width * (zones + 1) + listing // np.maximum(width, 1), 0)
            for kind in np.unique(kinds[is_wide]).tolist():
                alike, sets = divmod(kind, zones + 1)
                nodes = np.flatnonzero(kinds == kind)
                if sets:
                    chosen = freest[rows][:, : sets * alike, nodes]
                    sums = chosen.reshape(len(rows), sets, alike, len(nodes)).sum(axis=2)
                    yield SetsOnNodes(number, nodes, sums)

    def _some_wide(self, sizes: Floats) -> bool:
        """Necessary: a node whose largest zone is too small for each amount of a class."""
        if not sizes.size:
            return False
        largest = np.maximum.reduce(sizes, axis=1)
        return any(
            bool((largest.take(rows, axis=0) < amounts).all(axis=0).any())
            for rows, amounts in self._asked
        )
