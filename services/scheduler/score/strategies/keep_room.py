"""KeepRoom: take the zone where the least room is lost for what pods ask for, the scarcest room
first.

What pods ask for is a short weighted list (`wants`), given from outside: a fact of the log, so that
a replay has the same. Judged is the zone where the kubelet will put the request: the lowest that
fits. Its room for a want is how often the want fits, and of what is left the cube of the share: a
zone that almost holds one more is worth keeping, one that hardly holds anything is not. Room that
no zone of that size could ever give is not lost. Among zones that lose as little, the fullest.
Without wants this is plain best fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.fit import available_of, fitting, lowest_plain
from services.scheduler.score.strategies.percent import Floats
from services.scheduler.score.strategies.room import MOST_ROOM, UNITS, PlainRoom, RoomTable, room_of
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Distances,
    Ints,
    Items,
    Landed,
    Want,
    ZoneView,
)
from shared.domain.resources import Amounts

GRAIN = 1024
"""Weighed loss that is too small to tell apart."""
SHARE = 16
"""What the share left of the requested resources weighs: it decides between zones that lose next to nothing."""


def _levels() -> tuple[int, ...]:
    """The least loss of each score below the best: one by one at first, then in steps of an eighth."""
    levels = [1]
    while len(levels) < BEST - 1:
        levels.append(levels[-1] + max(1, levels[-1] // 8))
    return tuple(levels)


LEVELS = _levels()
_LEVELS = np.array(LEVELS, dtype=np.float64)


class KeepRoom:
    """100, less one for each step of the weighed loss of room, steps growing with the loss."""

    name = "KeepRoom"
    combine: Literal["mean", "least"] = "mean"

    def __init__(self, wants: Sequence[Want] = ()) -> None:
        self._wants = tuple(wants)
        self._table, self._plain = RoomTable((), ()), PlainRoom(self._wants)

    def given(self, wants: Sequence[Want]) -> KeepRoom:
        """The same under other wants."""
        return KeepRoom(wants)

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """1..100 when a zone fits; weights, distances and the zone limit play no part."""
        wanted = {name: amount for name, amount in request.items() if amount > 0}
        landing = fitting(request, zones)
        if not landing:
            return WORST
        free = {name: available_of(landing[0], name) for name in landing[0].allocatable}
        loss = sum(
            want.weight * _lost(want.amounts, free, wanted, landing[0].allocatable)
            for want in self._wants
        )
        return self._scored(loss, wanted, free, landing[0].allocatable)

    def score_plain(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """The same; see `PlainStrategy`."""
        landing = lowest_plain(asked, zones, sizes)
        if landing is None:
            return WORST
        zone, whole = zones[landing], sizes[landing]
        free = {name: max(0, min(zone.get(name, 0), size)) for name, size in whole.items()}
        wanted = dict(asked)
        return self._scored(self._plain.lost(free, wanted, whole), wanted, free, whole)

    def _scored(self, loss: int, wanted: Amounts, free: Amounts, whole: Amounts) -> int:
        listed = [name for name in wanted if whole.get(name, 0) > 0]
        if not listed:
            return BEST
        shares = sum([(free[name] - wanted[name]) * 100 // whole[name] for name in listed])
        share = shares * SHARE // (len(listed) * 100)
        return BEST - bisect_right(LEVELS, loss // GRAIN + share)

    def score_nodes(
        self,
        request: Ints,
        available: Ints,
        allocatable: Ints,
        present: Bools,
        fits: Bools,
        weights: Ints,
        devices: Bools,
    ) -> Ints:
        """The same for columns, without wants; see `ColumnStrategy`."""
        if not fits.shape[0]:
            return np.zeros(fits.shape[1], dtype=np.int64)
        nodes, landing = np.arange(fits.shape[1]), fits.argmax(axis=0)
        whole: Floats = (allocatable[:, landing, nodes] * present[:, landing, nodes]).astype(
            np.float64
        )
        free = np.minimum(available[:, landing, nodes], whole)
        shares, listed = np.zeros(len(nodes)), np.zeros(len(nodes))
        for at in np.flatnonzero(request > 0):
            shares += np.floor(
                np.maximum(free[at] - request[at], 0) * 100.0 / np.maximum(whole[at], 1)
            )
            listed += whole[at] > 0
        share = np.floor(shares * SHARE / (np.maximum(listed, 1) * 100))
        found = BEST - _LEVELS.searchsorted(share, side="right")
        scores: Ints = np.where(fits.any(axis=0), np.where(listed == 0, BEST, found), WORST).astype(
            np.int64
        )
        return scores

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """The same where the request lands, under the wants; see `LandingStrategy`."""
        return _Landed(items, names, self._table_of(names))

    def standing(self, free: Ints, whole: Floats, names: Sequence[str]) -> Floats:
        """The weighed room of each zone; see `WantStrategy`."""
        return self._table_of(names).weighed(free, whole)

    def _table_of(self, names: Sequence[str]) -> RoomTable:
        if self._table.names != names:
            self._table = RoomTable(self._wants, names)
        return self._table


class _Landed:
    """One request, for columns of the zones where it lands. Scores run for every decision: few and
    large steps.
    """

    def __init__(self, items: Items, names: Sequence[str], table: RoomTable) -> None:
        asked = dict(items)
        self._request = np.array([[asked.get(name, 0)] for name in names], dtype=np.int64)
        self._asked, self._table = np.flatnonzero(self._request[:, 0]), table

    def scores(self, free: Ints, whole: Floats, standing: Floats | None = None) -> Ints:
        """See `Landed`."""
        left, asked, table = free - self._request, self._asked, self._table
        lost = (
            table.lost(free, left, whole)
            if standing is None
            else standing - table.weighed(left, whole)
        )
        return BEST - _steps(lost, left.take(asked, axis=0), whole.take(asked, axis=0))


def _steps(loss: Floats, left: Ints, whole: Floats) -> Ints:
    """What is taken off the best score: `left` and `whole` are [resource asked for, zone]."""
    shares = left * 100.0
    shares /= whole
    share = np.floor(
        np.add.reduce(np.floor(shares, out=shares), axis=0) / (len(left) * 100 / SHARE)
    )
    share += np.floor(loss / GRAIN)
    steps: Ints = _LEVELS.searchsorted(share, side="right")
    return steps


def _lost(want: Items, free: Amounts, wanted: Amounts, whole: Amounts) -> int:
    """What the request takes of the want's room."""
    before = after = MOST_ROOM * UNITS
    for name, amount in want:
        if whole.get(name, 0) < amount:
            return 0
        held = free[name]
        units = held * UNITS // amount
        before = min(before, units)
        if name in wanted:
            units = (held - wanted[name]) * UNITS // amount
        after = min(after, units)
    return room_of(before) - room_of(after) if after < before else 0
