"""The room that zones have for demand classes: how often a class fits, and for the rest the cube of
the share. A zone that almost holds one more is worth keeping, a zone that hardly holds anything is
not. Room that no zone of that size could ever give does not count.

Room is computed in plain integers (`PlainRoom`), and in floats by the kernel (`Room`), with equal
results: a quotient of integers below 2^53 cannot cross an integer when it is rounded, and room is
below 2^24, so that it is an integer as float32, too. A whole node may stand for the zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.strategy import DemandClass, Items
from shared.domain.resources import Amounts

# Parts into which the room for one of a class is divided.
UNITS = 64
# What room for one of a class counts.
ONE = 4096
# Room for more than this many of a class is as good as this.
MOST_ROOM = 1024
# Sizes of zones, and types of machines, for which it is kept which classes they hold.
SIZES = 256

Number = TypeVar("Number", np.int32, np.float64, np.bool_)
Pick = Callable[[list[int]], tuple[int, ...]]


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
PLAIN_ROOM_OF: list[int] = ROOM_OF.astype(np.int64).tolist()


class PlainRoom:
    """Demand classes in one zone at a time, in plain integers: cheapest for a zone or two."""

    def __init__(self, demand_classes: Sequence[DemandClass]) -> None:
        self._demand_classes = [item for item in demand_classes if item.amounts]
        self._whole_times = [(item.weight, item.amounts) for item in self._demand_classes]
        pairs = sorted({pair for item in self._demand_classes for pair in item.amounts})
        self._names = tuple(sorted({name for name, _ in pairs}))
        self._amounts = [(self._names.index(name), amount) for name, amount in pairs]
        self._places = {pair: place for place, pair in enumerate(pairs)}
        self._picks_by_size: dict[tuple[int, ...], list[tuple[int, Pick]]] = {}
        self._lost_anywhere: dict[Items, int] = {}

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
                loss += weight * (PLAIN_ROOM_OF[most] - PLAIN_ROOM_OF[least])
        return loss

    def lost_anywhere(self, items: Items) -> int:
        """Return the weighed loss of any zone that holds these amounts: a request that is so many
        times a class takes the room for so many.
        """
        remembered = self._lost_anywhere.get(items)
        if remembered is not None:
            return remembered
        if len(self._lost_anywhere) >= SIZES:
            self._lost_anywhere.clear()
        loss, wanted = 0, dict(items)
        for weight, amounts in self._whole_times:
            if all(name in wanted for name, _ in amounts):
                loss += weight * min([wanted[name] // amount for name, amount in amounts])
        self._lost_anywhere[items] = loss * ONE
        return loss * ONE

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
    names, `amounts` [pair, 1], and `turns` [turn, class], the pairs of each class. Each class has
    as many turns as the longest one; short classes repeat their last pair.
    """

    def __init__(self, demand_classes: Sequence[Items], names: Sequence[str]) -> None:
        distinct = dict.fromkeys(pair for items in demand_classes for pair in items)
        numbers = {pair: number for number, pair in enumerate(distinct)}
        width = max((len(items) for items in demand_classes), default=0)
        turns = [
            [numbers[items[min(turn, len(items) - 1)]] for items in demand_classes]
            for turn in range(width)
        ]
        self.turns = np.array(turns, dtype=np.int64).reshape(width, len(demand_classes))
        rows = {name: row for row, name in enumerate(names)}
        self.rows = np.array([rows[name] for name, _ in numbers], dtype=np.int64)
        amounts = [amount for _, amount in numbers]
        self.amounts = np.array(amounts, dtype=np.float64).reshape(-1, 1)

    def least(self, of_pairs: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return [class, zone]: the least that [pair, zone] has for any amount of the class."""
        by_turn = of_pairs.take(self.turns, axis=0)
        least: npt.NDArray[Number] = np.minimum.reduce(by_turn, axis=0)
        return least
