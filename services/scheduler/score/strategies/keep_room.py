"""Room for wants in columns of zones: what is weighed, lost and left, the same integers as one zone
at a time.

The room of a zone for a want is how often the want fits, and of what is left the cube of the share;
see `keep_room`. Amounts that wants share are divided once. Exact: quotients of integers below 2^53
cannot cross an integer when they are rounded, and room is below 2^24, so that it is an integer as
float32, too. Must not know what a score is.

KeepRoom: take the zone where the least room is lost for what pods ask for, the scarcest room
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
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.allocation import Floats
from services.scheduler.score.strategies.fit import available_of, fitting, lowest_plain
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    DemandClass,
    Distances,
    Ints,
    Items,
    Landed,
    ZoneView,
)
from shared.domain.resources import Amounts

UNITS = 64
"""Parts into which the room for one want is divided."""
ONE = 4096
"""What room for one want counts."""
MOST_ROOM = 1024
"""Room for more than so many of a want is as good as this."""
SIZES = 256
"""Sizes of zones for which it is kept which wants they hold."""
BLOCK = 512
"""Zones that are looked at together: what is made for them on the way stays in the processor's cache."""

Room = npt.NDArray[np.float32]
Number = TypeVar("Number", np.int32, np.float64, np.bool_)


def room_of(units: int) -> int:
    """How often the want fits, in parts of `ONE`, and of the next the cube of the share, rounded
    down.
    """
    times, part = divmod(units, UNITS)
    return times * ONE + part**3 * ONE // UNITS**3


ROOM_OF: Room = np.append(
    np.add.outer(np.arange(MOST_ROOM) * ONE, [room_of(units) for units in range(UNITS)]),
    MOST_ROOM * ONE,
).astype(np.float32)
_ROOM_OF: list[int] = ROOM_OF.astype(np.int64).tolist()


class PlainRoom:
    """Wants in one zone at a time, made ready once: plain integers, which cost least for a zone or
    two.
    """

    def __init__(self, wants: Sequence[DemandClass]) -> None:
        self._wants = [want for want in wants if want.amounts]
        self._names = tuple(sorted({name for want in self._wants for name, _ in want.amounts}))
        pairs = sorted({pair for want in self._wants for pair in want.amounts})
        self._amounts = [(self._names.index(name), amount) for name, amount in pairs]
        self._places = {pair: at for at, pair in enumerate(pairs)}
        self._known: dict[
            tuple[int, ...], Sequence[tuple[int, Callable[[list[int]], tuple[int, ...]]]]
        ] = {}

    def lost(self, free: Amounts, wanted: Mapping[str, int], whole: Amounts) -> int:
        """The weighed loss of room of a zone that has `free` of the `whole` when what is `wanted`
        is taken. Runs for every node that changed: plain loops."""
        held = [free.get(name, 0) * UNITS for name in self._names]
        left = [max(0, free.get(name, 0) - wanted.get(name, 0)) * UNITS for name in self._names]
        before, after = (
            [held[at] // amount for at, amount in self._amounts],
            [left[at] // amount for at, amount in self._amounts],
        )
        before.append(MOST_ROOM * UNITS)
        after.append(MOST_ROOM * UNITS)
        sizes, loss = tuple([whole.get(name, 0) for name in self._names]), 0
        wants = self._known.get(sizes)
        for weight, of in self._held_by(sizes) if wants is None else wants:
            most, least = min(of(before)), min(of(after))
            if least < most:
                loss += weight * (_ROOM_OF[most] - _ROOM_OF[least])
        return loss

    def _held_by(
        self, sizes: tuple[int, ...]
    ) -> Sequence[tuple[int, Callable[[list[int]], tuple[int, ...]]]]:
        """The weight of each want that an empty zone of these sizes holds, and what picks its
        units: those of the most last.
        """
        if len(self._known) >= SIZES:
            self._known.clear()
        whole, last = dict(zip(self._names, sizes, strict=True)), len(self._amounts)
        held = [
            want
            for want in self._wants
            if all(amount <= whole[name] for name, amount in want.amounts)
        ]
        found = [
            (want.weight, itemgetter(*(self._places[pair] for pair in want.amounts), last))
            for want in held
        ]
        self._known[sizes] = found
        return found


class Pairs:
    """What wants ask for, each amount of a resource once: `rows` among the names and `amounts`
    [pair, 1], all of them there.
    """

    def __init__(self, wants: Sequence[Items], names: Sequence[str]) -> None:
        at = {name: number for number, name in enumerate(names)}
        pairs = {
            pair: number
            for number, pair in enumerate(dict.fromkeys(pair for want in wants for pair in want))
        }
        width = max((len(each) for each in wants), default=0)
        turns = [[pairs[want[min(turn, len(want) - 1)]] for want in wants] for turn in range(width)]
        self._asked, self._shape = np.array(turns, dtype=np.intp).reshape(-1), (width, len(wants))
        self.rows = np.array([at[name] for name, _ in pairs], dtype=np.intp)
        self.amounts = np.array([[amount] for _, amount in pairs], dtype=np.float64)

    def least(self, of_pairs: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """[want, zone]: the least that [pair, zone] has for anything that the want asks for."""
        found: npt.NDArray[Number] = np.minimum.reduce(
            of_pairs.take(self._asked, axis=0).reshape(*self._shape, -1), axis=0
        )
        return found


class RoomTable:
    """Wants over named rows, made ready once. Those that ask for what is no row are left out: no
    zone holds them.
    """

    def __init__(self, wants: Sequence[DemandClass], names: Sequence[str]) -> None:
        self.names = names
        known = [want for want in wants if all(name in names for name, _ in want.amounts)]
        self._pairs = Pairs([want.amounts for want in known], names)
        self._units = self._pairs.amounts / UNITS
        self._weights = np.array([want.weight for want in known], dtype=np.float64)

    def weighed(self, free: Ints, whole: Floats) -> Floats:
        """The weighed room of each zone that has so much free of the whole, both [row, zone]."""
        count = free.shape[1]
        if not len(self._weights) or not count:
            return np.zeros(count)
        if count <= BLOCK:
            return self._weighed(free, whole)
        cuts = [slice(first, first + BLOCK) for first in range(0, count, BLOCK)]
        return np.concatenate([self._weighed(free[:, cut], whole[:, cut]) for cut in cuts])

    def lost(self, free: Ints, left: Ints, whole: Floats) -> Floats:
        """The weighed loss of room of each zone that goes from `free` to `left` of `whole`, all
        [row, zone]. For few zones: both are weighed at once."""
        count = free.shape[1]
        both = self.weighed(
            np.concatenate((free, left), axis=1), np.concatenate((whole, whole), axis=1)
        )
        return both[:count] - both[count:]

    def _weighed(self, free: Ints, whole: Floats) -> Floats:
        rows, amounts = self._pairs.rows, self._pairs.amounts
        units = free.take(rows, axis=0) / self._units
        np.minimum(units, MOST_ROOM * UNITS, out=units)
        smallest = np.minimum.reduce(whole, axis=1, keepdims=True)
        if not (smallest.take(rows, axis=0) >= amounts).all():
            units *= whole.take(rows, axis=0) >= amounts
        weighed: Floats = self._weights @ ROOM_OF.take(
            self._pairs.least(units.astype(np.int32)), mode="clip"
        )
        return weighed


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

    def __init__(self, wants: Sequence[DemandClass] = ()) -> None:
        self._wants = tuple(wants)
        self._table, self._plain = RoomTable((), ()), PlainRoom(self._wants)

    def given(self, wants: Sequence[DemandClass]) -> KeepRoom:
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

    def zone_values(self, free: Ints, whole: Floats, names: Sequence[str]) -> Floats:
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
