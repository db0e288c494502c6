"""KeepRoom: take the zone where the least room is lost for what pods ask for, the scarcest room first.

What pods ask for is a short weighted list (`wants`), given from outside: a fact of the log, so that a replay has the same.
Judged is the zone where the kubelet will put the request: the lowest that fits. Its room for a want is how often the want fits,
and of what is left the square of the share: a zone that almost holds one more is worth keeping, one that hardly holds anything
is not. Room that no zone of that size could ever give is not lost. Among zones that lose as little, the fullest. Without wants
this is plain best fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.scoring.fit import available_of, fitting
from services.scheduler.scoring.percent import Floats
from services.scheduler.scoring.strategy import BEST, WORST, Bools, Distances, Ints, Items, Want, ZoneView
from shared.domain.resources import Amounts

UNITS = 64
"""Parts into which the room for one want is divided."""
MOST_ROOM = 1024
"""Room for more than so many of a want is as good as this."""
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


class KeepRoom:
    """100, less one for each step of the weighed loss of room, steps growing with the loss."""

    name = "KeepRoom"
    combine: Literal["mean", "least"] = "mean"

    def __init__(self, wants: Sequence[Want] = ()) -> None:
        self._wants = tuple(wants)

    def given(self, wants: Sequence[Want]) -> KeepRoom:
        """The same under other wants."""
        return KeepRoom(wants)

    def score(
        self, request: Amounts, zones: Sequence[ZoneView], distances: Distances, weights: Mapping[str, int], max_zones: int
    ) -> int:
        """1..100 when a zone fits; weights, distances and the zone limit play no part."""
        wanted = {name: amount for name, amount in request.items() if amount > 0}
        landing = fitting(request, zones)
        if not landing:
            return WORST
        free = {name: available_of(landing[0], name) for name in landing[0].allocatable}
        return self._zone_score(wanted, free, landing[0].allocatable)

    def score_plain(self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]) -> int:
        """The same; see `PlainStrategy`. Runs for every node that changed."""
        for number in sorted(zones):
            zone, whole = zones[number], sizes.get(number)
            if not whole:
                continue
            for name, amount in asked:
                if zone.get(name, 0) < amount:
                    break
            else:
                free = {name: max(0, min(zone.get(name, 0), size)) for name, size in whole.items()}
                return self._zone_score(dict(asked), free, whole)
        return WORST

    def _zone_score(self, wanted: Amounts, free: Amounts, whole: Amounts) -> int:
        listed = [name for name in wanted if whole.get(name, 0) > 0]
        if not listed:
            return BEST
        left = {**free, **{name: free[name] - wanted[name] for name in listed}}
        loss = 0
        for want in self._wants:
            if any(name in wanted for name, _ in want.amounts):
                loss += want.weight * (_room(want.amounts, free, whole) - _room(want.amounts, left, whole))
        share = sum(left[name] * 100 // whole[name] for name in listed) * SHARE // (len(listed) * 100)
        return BEST - bisect_right(LEVELS, loss // GRAIN + share)

    def score_nodes(
        self, request: Ints, available: Ints, allocatable: Ints, present: Bools, fits: Bools, weights: Ints, devices: Bools
    ) -> Ints:
        """The same for columns, without wants; see `ColumnStrategy`."""
        nobody = np.zeros((0, len(request)), dtype=np.int64)
        return self.score_wanted(request, available, allocatable, present, fits, nobody, np.zeros(0, dtype=np.int64))

    def score_wanted(
        self, request: Ints, available: Ints, allocatable: Ints, present: Bools, fits: Bools, wants: Ints, weights: Ints
    ) -> Ints:
        """The same for columns; see `WantStrategy`."""
        if not fits.shape[0]:
            return np.zeros(fits.shape[1], dtype=np.int64)
        nodes, landing = np.arange(fits.shape[1]), fits.argmax(axis=0)
        rows = range(len(request))
        whole = [allocatable[at, landing, nodes] * present[at, landing, nodes] for at in rows]
        free = [np.minimum(available[at, landing, nodes], whole[at]) for at in rows]
        left = [np.maximum(free[at] - request[at], 0) if request[at] > 0 else free[at] for at in rows]
        loss = _Rooms(free, whole).weighed(wants, weights, request) - _Rooms(left, whole).weighed(wants, weights, request)
        shares, listed = np.zeros(len(nodes)), np.zeros(len(nodes))
        for at in np.flatnonzero(request > 0):
            shares += np.floor(left[at] * 100.0 / np.maximum(whole[at], 1))
            listed += whole[at] > 0
        share = np.floor(shares * SHARE / (np.maximum(listed, 1) * 100))
        found = BEST - np.searchsorted(LEVELS, np.floor(loss / GRAIN) + share, side="right")
        scores: Ints = np.where(fits.any(axis=0), np.where(listed == 0, BEST, found), WORST).astype(np.int64)
        return scores


class _Rooms:
    """The room of one zone of each node; parts that wants share are divided once."""

    def __init__(self, free: Sequence[Floats], whole: Sequence[Floats]) -> None:
        self._free, self._whole = free, whole
        self._parts: dict[tuple[int, int], Floats] = {}

    def weighed(self, wants: Ints, weights: Ints, request: Ints) -> Floats:
        """The weighed sum over the wants that this request may take room from."""
        total = np.zeros(len(self._free[0]) if len(self._free) else 0)
        for amounts, weight in zip(wants, weights, strict=True):
            if (amounts[request > 0] > 0).any():
                total += int(weight) * self._room(amounts)
        return total

    def _room(self, amounts: Ints) -> Floats:
        units = np.full(len(self._free[0]), float(MOST_ROOM * UNITS))
        for at in np.flatnonzero(amounts):
            np.minimum(units, self._units(int(at), int(amounts[at])), out=units)
        whole = np.floor(units / UNITS)
        part = units - whole * UNITS
        squared: Floats = whole * (UNITS * UNITS) + part * part
        return squared

    def _units(self, at: int, amount: int) -> Floats:
        found = self._parts.get((at, amount))
        if found is None:
            found = np.floor(self._free[at] * float(UNITS) / amount) * (self._whole[at] >= amount)
            self._parts[at, amount] = found
        return found


def _room(want: Items, free: Amounts, whole: Amounts) -> int:
    """How often the want fits, in squared units, and the square of the units of the next."""
    units = MOST_ROOM * UNITS
    for name, amount in want:
        if whole.get(name, 0) < amount:
            return 0
        units = min(units, free[name] * UNITS // amount)
    times, part = divmod(units, UNITS)
    return times * UNITS * UNITS + part * part
