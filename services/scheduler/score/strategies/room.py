"""Room for wants in columns of zones: what is weighed, lost and left, the same integers as one zone
at a time.

The room of a zone for a want is how often the want fits, and of what is left the cube of the share;
see `keep_room`. Amounts that wants share are divided once. Exact: quotients of integers below 2^53
cannot cross an integer when they are rounded, and room is below 2^24, so that it is an integer as
float32, too. Must not know what a score is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.percent import Floats
from services.scheduler.score.strategies.strategy import Ints, Items, Want
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

    def __init__(self, wants: Sequence[Want]) -> None:
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

    def __init__(self, wants: Sequence[Want], names: Sequence[str]) -> None:
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
