"""KeepRoom: take the zone in which the least room is lost for what pods request, the scarcest room
first. Without demand weights this is plain best fit.

1. The demand classes are a short weighted list, given from outside (`given`): an event of the log,
   so that a replay has the same.
2. The score looks at the zone where the kubelet will put the request: the lowest that fits.
3. A zone's room for a class is how often the class fits, and for the rest the cube of the share: a
   zone that almost holds one more is worth keeping, a zone that hardly holds anything is not. Room
   that no zone of that size could ever give is not lost.
4. Among zones that lose as little, the fullest wins.

Room is computed for one zone in plain integers (`PlainRoom`), and for many zones in arrays
(`RoomTable`), with the same results: a quotient of integers below 2^53 cannot cross an integer when
it is rounded, and room is below 2^24, so that it is an integer as float32, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.fit import lowest_plain, plain
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Columns,
    DemandClass,
    Distances,
    Floats,
    Ints,
    Items,
    Landed,
    ZoneView,
)
from shared.domain.resources import Amounts

# Smaller differences of weighed loss do not count.
GRAIN = 1024
# The weight of the share that is left of the requested resources: it decides between zones that
# lose next to nothing.
SHARE = 16
# Parts into which the room for one of a class is divided.
UNITS = 64
# What room for one of a class counts.
ONE = 4096
# Room for more than this many of a class is as good as this.
MOST_ROOM = 1024
# Sizes of zones for which it is kept which classes they hold.
SIZES = 256
# Zones that are computed together: the intermediate arrays stay in the processor's cache.
BLOCK = 512

Number = TypeVar("Number", np.int32, np.float64, np.bool_)
Pick = Callable[[list[int]], tuple[int, ...]]


def _loss_levels() -> tuple[int, ...]:
    """The least loss of each score below the best: one by one, later in steps of an eighth."""
    levels = [1]
    while len(levels) < BEST - 1:
        levels.append(levels[-1] + max(1, levels[-1] // 8))
    return tuple(levels)


LOSS_LEVELS = _loss_levels()
_LOSS_LEVELS = np.array(LOSS_LEVELS, dtype=np.float64)


def room_of(units: int) -> int:
    """Return how often the class fits, in parts of `ONE`, and for the rest the cube of the share,
    rounded down.
    """
    times, part = divmod(units, UNITS)
    return times * ONE + part**3 * ONE // UNITS**3


_WHOLE_ROOM = np.arange(MOST_ROOM) * ONE
_PART_ROOM = [room_of(units) for units in range(UNITS)]
ROOM_OF: npt.NDArray[np.float32] = np.append(
    np.add.outer(_WHOLE_ROOM, _PART_ROOM), MOST_ROOM * ONE
).astype(np.float32)
_ROOM_OF: list[int] = ROOM_OF.astype(np.int64).tolist()


class KeepRoom:
    """100, less one for each step of the weighed loss of room; steps grow with the loss."""

    name = "KeepRoom"
    combine: Literal["mean", "least"] = "mean"

    def __init__(self, demand_classes: Sequence[DemandClass] = ()) -> None:
        self._demand_classes = tuple(demand_classes)
        self._table, self._plain = RoomTable((), ()), PlainRoom(self._demand_classes)

    def given(self, demand_classes: Sequence[DemandClass]) -> KeepRoom:
        """See `DemandStrategy`."""
        return KeepRoom(demand_classes)

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """Return 1..100 if a zone fits; weights, distances and the limit do not matter."""
        return self.score_plain(*plain(request, zones))

    def score_plain(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """See `PlainStrategy`."""
        landing = lowest_plain(asked, zones, sizes)
        if landing is None:
            return WORST
        zone, whole = zones[landing], sizes[landing]
        free = {name: max(0, min(zone.get(name, 0), size)) for name, size in whole.items()}
        wanted = dict(asked)
        listed = [name for name in wanted if whole.get(name, 0) > 0]
        if not listed:
            return BEST
        shares = sum([(free[name] - wanted[name]) * 100 // whole[name] for name in listed])
        share = shares * SHARE // (len(listed) * 100)
        loss = self._plain.lost(free, wanted, whole) // GRAIN
        return BEST - bisect_right(LOSS_LEVELS, loss + share)

    def score_nodes(self, columns: Columns) -> Ints:
        """See `ColumnStrategy`; without demand weights."""
        request, available, allocatable, present, fits, _, _ = columns
        if not fits.shape[0]:
            return np.zeros(fits.shape[1], dtype=np.int64)
        nodes, landing = np.arange(fits.shape[1]), fits.argmax(axis=0)
        sizes = allocatable[:, landing, nodes] * present[:, landing, nodes]
        whole: Floats = sizes.astype(np.float64)
        free = np.minimum(available[:, landing, nodes], whole)
        shares, listed = np.zeros(len(nodes)), np.zeros(len(nodes))
        for row in np.flatnonzero(request > 0):
            rest = np.maximum(free[row] - request[row], 0)
            shares += np.floor(rest * 100.0 / np.maximum(whole[row], 1))
            listed += whole[row] > 0
        share = np.floor(shares * SHARE / (np.maximum(listed, 1) * 100))
        scores = BEST - _LOSS_LEVELS.searchsorted(share, side="right")
        scores = np.where(listed == 0, BEST, scores)
        return np.where(fits.any(axis=0), scores, WORST).astype(np.int64)

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """See `LandingStrategy`; under the demand weights."""
        return _Landed(items, names, self._table_of(names))

    def zone_values(self, free: Ints, whole: Floats, names: Sequence[str]) -> Floats:
        """Return the weighed room of each zone; see `DemandStrategy`."""
        return self._table_of(names).weighed(free, whole)

    def _table_of(self, names: Sequence[str]) -> RoomTable:
        if self._table.names != names:
            self._table = RoomTable(self._demand_classes, names)
        return self._table


class _Landed:
    """Scores run for every decision: few and large steps."""

    def __init__(self, items: Items, names: Sequence[str], table: RoomTable) -> None:
        asked = dict(items)
        self._request = np.array([[asked.get(name, 0)] for name in names], dtype=np.int64)
        self._asked, self._table = np.flatnonzero(self._request[:, 0]), table

    def scores(self, free: Ints, whole: Floats, zone_values: Floats | None = None) -> Ints:
        rest, asked, table = free - self._request, self._asked, self._table
        if zone_values is None:
            lost = table.lost(free, rest, whole)
        else:
            lost = zone_values - table.weighed(rest, whole)
        shares = rest.take(asked, axis=0) * 100.0
        shares /= whole.take(asked, axis=0)
        np.floor(shares, out=shares)
        share = np.floor(np.add.reduce(shares, axis=0) / (len(asked) * 100 / SHARE))
        share += np.floor(lost / GRAIN)
        scores: Ints = BEST - _LOSS_LEVELS.searchsorted(share, side="right")
        return scores


class PlainRoom:
    """Demand classes in one zone at a time, in plain integers: cheapest for a zone or two."""

    def __init__(self, demand_classes: Sequence[DemandClass]) -> None:
        self._demand_classes = [item for item in demand_classes if item.amounts]
        pairs = sorted({pair for item in self._demand_classes for pair in item.amounts})
        self._names = tuple(sorted({name for name, _ in pairs}))
        self._amounts = [(self._names.index(name), amount) for name, amount in pairs]
        self._places = {pair: place for place, pair in enumerate(pairs)}
        self._picks_by_size: dict[tuple[int, ...], list[tuple[int, Pick]]] = {}

    def lost(self, free: Amounts, wanted: Mapping[str, int], whole: Amounts) -> int:
        """Return the weighed loss of room of a zone with `free` of the `whole` if `wanted` is
        taken. Runs for every node that changed: plain loops.
        """
        names, amounts = self._names, self._amounts
        units = [free.get(name, 0) * UNITS for name in names]
        rest = [max(0, free.get(name, 0) - wanted.get(name, 0)) * UNITS for name in names]
        free_units = [units[row] // amount for row, amount in amounts]
        rest_units = [rest[row] // amount for row, amount in amounts]
        free_units.append(MOST_ROOM * UNITS)
        rest_units.append(MOST_ROOM * UNITS)
        sizes, loss = tuple([whole.get(name, 0) for name in names]), 0
        picks = self._picks_by_size.get(sizes)
        for weight, pick in self._picks(sizes) if picks is None else picks:
            most, least = min(pick(free_units)), min(pick(rest_units))
            if least < most:
                loss += weight * (_ROOM_OF[most] - _ROOM_OF[least])
        return loss

    def _picks(self, sizes: tuple[int, ...]) -> list[tuple[int, Pick]]:
        """The weight of each class that an empty zone of these sizes holds, and what picks its
        units: the limit of room comes last.
        """
        if len(self._picks_by_size) >= SIZES:
            self._picks_by_size.clear()
        whole, last = dict(zip(self._names, sizes, strict=True)), len(self._amounts)
        picks: list[tuple[int, Pick]] = []
        for demand_class in self._demand_classes:
            if all(amount <= whole[name] for name, amount in demand_class.amounts):
                places = [self._places[pair] for pair in demand_class.amounts]
                picks.append((demand_class.weight, itemgetter(*places, last)))
        self._picks_by_size[sizes] = picks
        return picks


class Pairs:
    """The amounts that demand classes request, each amount of a resource once: `rows` among the
    names, and `amounts` [pair, 1].
    """

    def __init__(self, demand_classes: Sequence[Items], names: Sequence[str]) -> None:
        distinct = dict.fromkeys(pair for items in demand_classes for pair in items)
        numbers = {pair: number for number, pair in enumerate(distinct)}
        width = max((len(items) for items in demand_classes), default=0)
        # Each class has as many turns as the longest one; short classes repeat their last pair.
        turns = [
            [numbers[items[min(turn, len(items) - 1)]] for items in demand_classes]
            for turn in range(width)
        ]
        self._asked = np.array(turns, dtype=np.intp).reshape(-1)
        self._shape = width, len(demand_classes)
        rows = {name: row for row, name in enumerate(names)}
        self.rows = np.array([rows[name] for name, _ in numbers], dtype=np.intp)
        self.amounts = np.array([[amount] for _, amount in numbers], dtype=np.float64)

    def least(self, of_pairs: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return [class, zone]: the least that [pair, zone] has for any amount of the class."""
        by_turn = of_pairs.take(self._asked, axis=0).reshape(*self._shape, -1)
        least: npt.NDArray[Number] = np.minimum.reduce(by_turn, axis=0)
        return least


class RoomTable:
    """Demand classes over named rows. Classes that request a resource without a row are left out:
    no zone holds them.
    """

    def __init__(self, demand_classes: Sequence[DemandClass], names: Sequence[str]) -> None:
        self.names = names
        with_rows = [
            item for item in demand_classes if all(name in names for name, _ in item.amounts)
        ]
        self._pairs = Pairs([item.amounts for item in with_rows], names)
        self._units = self._pairs.amounts / UNITS
        self._weights = np.array([item.weight for item in with_rows], dtype=np.float64)

    def weighed(self, free: Ints, whole: Floats) -> Floats:
        """Return the weighed room of zones with so much free of the whole, both [row, zone]."""
        count = free.shape[1]
        if not len(self._weights) or not count:
            return np.zeros(count)
        if count <= BLOCK:
            return self._weighed(free, whole)
        cuts = [slice(first, first + BLOCK) for first in range(0, count, BLOCK)]
        return np.concatenate([self._weighed(free[:, cut], whole[:, cut]) for cut in cuts])

    def lost(self, free: Ints, rest: Ints, whole: Floats) -> Floats:
        """Return the weighed loss of room of zones that go from `free` to `rest` of `whole`, all
        [row, zone]. For few zones: both are weighed at once.
        """
        count = free.shape[1]
        both = self.weighed(
            np.concatenate((free, rest), axis=1), np.concatenate((whole, whole), axis=1)
        )
        return both[:count] - both[count:]

    def _weighed(self, free: Ints, whole: Floats) -> Floats:
        rows, amounts = self._pairs.rows, self._pairs.amounts
        units = free.take(rows, axis=0) / self._units
        np.minimum(units, MOST_ROOM * UNITS, out=units)
        smallest = np.minimum.reduce(whole, axis=1, keepdims=True)
        if not (smallest.take(rows, axis=0) >= amounts).all():
            units *= whole.take(rows, axis=0) >= amounts
        least = self._pairs.least(units.astype(np.int32))
        weighed: Floats = self._weights @ ROOM_OF.take(least, mode="clip")
        return weighed
