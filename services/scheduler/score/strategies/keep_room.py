"""KeepRoom: take the zone in which the least room is lost for what pods request, the scarcest room
first. Without demand weights this is plain best fit.

1. The demand classes are a short weighted list, given from outside (`given`): an event of the log,
   so that a replay has the same.
2. The score looks at the zone where the kubelet will put the request: the lowest that fits. What
   the zone loses is in `room.py`.
3. On nodes with a `restricted` kubelet the node's sets of zones lose room, too, for classes that
   need several zones (`set_room.py`). On nodes whose kubelet refuses a pod only for the node's
   totals, the whole node stands for the zone.
4. The loss that the request causes in every zone where it fits is subtracted: scores have few
   steps, and it would hide the differences.
5. Among zones with equal loss, the fullest wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from services.scheduler.score.strategies.fit import lowest_plain, plain
from services.scheduler.score.strategies.room import Pairs, PlainRoom
from services.scheduler.score.strategies.set_room import PlainSetRoom, SetRoomTable
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    DemandClass,
    Distances,
    Floats,
    Ints,
    Items,
    Landed,
    ZoneView,
)
from services.scheduler.snapshot import kernel
from shared.domain.resources import Amounts

# Smaller differences between weighed losses do not count.
GRAIN = 1024
# The weight of the share of the requested resources that stays free: it decides between zones that
# lose next to nothing.
SHARE = 16


def _loss_levels() -> tuple[int, ...]:
    """Return the least loss of each score below the best: the first levels rise by one, later ones
    by an eighth."""
    levels = [1]
    while len(levels) < BEST - 1:
        levels.append(levels[-1] + max(1, levels[-1] // 8))
    return tuple(levels)


LOSS_LEVELS = _loss_levels()
_LOSS_LEVELS = np.array(LOSS_LEVELS, dtype=np.float64)


class KeepRoom:
    """Score 100, less one for each step of the weighed loss of room; steps grow with the loss."""

    name = "KeepRoom"
    combine: Literal["mean", "least"] = "mean"

    def __init__(self, demand_classes: Sequence[DemandClass] = ()) -> None:
        self._demand_classes = tuple(demand_classes)
        self._plain = PlainRoom(self._demand_classes)
        self._plain_sets = PlainSetRoom(self._demand_classes)
        # By the names of rows.
        self._set_tables: dict[tuple[str, ...], SetRoomTable] = {}

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
        return self._score(asked, zones, sizes, with_sets=False)

    def score_with_sets(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """See `DemandStrategy`."""
        return self._score(asked, zones, sizes, with_sets=True)

    def _score(
        self,
        asked: Items,
        zones: Mapping[int, Amounts],
        sizes: Mapping[int, Amounts],
        with_sets: bool,
    ) -> int:
        landing = lowest_plain(asked, zones, sizes)
        if landing is None:
            return WORST
        lost = 0
        if with_sets:
            lost = self._plain_sets.lost(zones, landing, dict(asked), sizes)
        return self.score_landed(asked, zones[landing], sizes[landing], lost)

    def score_landed(self, asked: Items, zone: Amounts, whole: Amounts, lost_besides: float) -> int:
        """Return the score of a request in a zone that holds it. `lost_besides` is what the node's
        sets of zones lose.
        """
        free = {name: max(0, min(zone.get(name, 0), size)) for name, size in whole.items()}
        wanted = dict(asked)
        listed = [name for name in wanted if whole.get(name, 0) > 0]
        if not listed:
            return BEST
        if any(free[name] < wanted[name] for name in listed):
            return WORST
        shares = sum([(free[name] - wanted[name]) * 100 // whole[name] for name in listed])
        share = shares * SHARE // (len(listed) * 100)
        loss = self._plain.lost(free, wanted, whole) - self._plain.lost_anywhere(asked)
        return BEST - bisect_right(LOSS_LEVELS, max(0, loss + lost_besides) // GRAIN + share)

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """See `LandingStrategy`; under the demand weights."""
        if kernel.COMPILED is None:
            return _PlainLanded(items, names, self)
        lost_anywhere = self._plain.lost_anywhere(items)
        return CompiledRoom(items, names, self._demand_classes, lost_anywhere)

    def lost_by_sets(
        self, items: Items, names: Sequence[str], landing: Ints, free: Ints, whole: Floats
    ) -> Floats | None:
        """See `DemandStrategy`."""
        rows, asked = tuple(names), dict(items)
        table = self._set_tables.get(rows)
        if table is None:
            table = self._set_tables[rows] = SetRoomTable(self._demand_classes, rows)
        request = np.array([asked.get(name, 0) for name in rows], dtype=np.int64)
        return table.lost(request, landing, free, whole)


class CompiledRoom:
    """One request for the kernel. Classes that request a resource without a row are left out: no
    zone holds them.
    """

    def __init__(
        self,
        items: Items,
        names: Sequence[str],
        demand_classes: Sequence[DemandClass],
        lost_anywhere: int,
    ) -> None:
        asked = dict(items)
        self._request = np.array([asked.get(name, 0) for name in names], dtype=np.int64)
        with_rows = [
            item
            for item in demand_classes
            if item.amounts and all(name in names for name, _ in item.amounts)
        ]
        pairs = Pairs([item.amounts for item in with_rows], names)
        weights = np.array([item.weight for item in with_rows], dtype=np.float64)
        self._classes = pairs.rows, pairs.amounts[:, 0].copy(), pairs.turns, weights
        self._lost_anywhere = lost_anywhere

    def room(self, free: Ints, whole: Floats) -> Any:
        """Return the kernel's room in zones of these arrays [row, position]."""
        return kernel.COMPILED.Room(
            free, whole, self._request, *self._classes, _LOSS_LEVELS, self._lost_anywhere
        )

    def scores(
        self, free: Ints, whole: Floats, positions: Ints, lost_besides: Floats | None = None
    ) -> Ints:
        scores = np.empty(len(positions), dtype=np.int64)
        self.room(free, whole).scores(positions, scores, lost_besides)
        return scores


class _PlainLanded:
    """The same without the kernel, one zone after the other."""

    def __init__(self, items: Items, names: Sequence[str], strategy: KeepRoom) -> None:
        self._items, self._names, self._strategy = items, names, strategy

    def scores(
        self, free: Ints, whole: Floats, positions: Ints, lost_besides: Floats | None = None
    ) -> Ints:
        zones, sizes = free[:, positions].T.tolist(), whole[:, positions].T.tolist()
        besides = [0.0] * len(positions) if lost_besides is None else lost_besides.tolist()
        scores = [
            WORST
            if position < 0
            else self._strategy.score_landed(
                self._items, self._by_name(zone), self._by_name(size), lost
            )
            for position, zone, size, lost in zip(positions, zones, sizes, besides, strict=True)
        ]
        return np.array(scores, dtype=np.int64)

    def _by_name(self, amounts: Sequence[float]) -> Amounts:
        return {name: int(amount) for name, amount in zip(self._names, amounts, strict=True)}
