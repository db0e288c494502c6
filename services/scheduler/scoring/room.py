"""Room for wants in columns of zones: what is weighed, lost and left, the same integers as one zone at a time.

The room of a zone for a want is how often the want fits, and of what is left the square of the share; see `keep_room`. Amounts
that wants share are divided once. Exact: quotients of integers below 2^53 cannot cross an integer when they are rounded, and
squared units are below 2^24, so that they are integers as float32, too. Must not know what a score is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.scoring.percent import Floats
from services.scheduler.scoring.strategy import Want

UNITS = 64
"""Parts into which the room for one want is divided."""
MOST_ROOM = 1024
"""Room for more than so many of a want is as good as this."""
BLOCK = 512
"""Zones that are looked at together: what is made for them on the way stays in the processor's cache."""

Room = npt.NDArray[np.float32]


def squared(units: int) -> int:
    """How often the want fits, in squared units, and the square of the units of the next."""
    times, part = divmod(units, UNITS)
    return times * UNITS * UNITS + part * part


SQUARED: Room = np.array([squared(units) for units in range(MOST_ROOM * UNITS + 1)], dtype=np.float32)


class RoomTable:
    """Wants over named rows, made ready once. Those that ask for what is no row are left out: no zone holds them."""

    def __init__(self, wants: Sequence[Want], names: Sequence[str]) -> None:
        at = {name: number for number, name in enumerate(names)}
        known = [want for want in wants if all(name in at for name, _ in want.amounts)]
        pairs = {pair: number for number, pair in enumerate(dict.fromkeys(pair for want in known for pair in want.amounts))}
        asked = [[pairs[pair] for pair in want.amounts] for want in known]
        width = max((len(each) for each in asked), default=0)
        turns = [[each[min(turn, len(each) - 1)] for each in asked] for turn in range(width)]
        self._asked = np.array(turns, dtype=np.intp).reshape(-1)
        self._shape = width, len(known)
        self._rows = np.array([at[name] for name, _ in pairs], dtype=np.intp)
        self._amounts = np.array([[amount] for _, amount in pairs], dtype=np.float64)
        self._units = self._amounts / UNITS
        self._weights = np.array([want.weight for want in known], dtype=np.float64)

    def lost(self, free: Floats, left: Floats, whole: Floats) -> Floats | float:
        """The weighed loss of room of each zone that goes from `free` to `left` of `whole`, all [row, zone]."""
        count = free.shape[1]
        if not self._shape[1] or not count:
            return 0.0
        if count <= BLOCK:
            return self._lost(free, left, whole)
        cuts = [slice(first, first + BLOCK) for first in range(0, count, BLOCK)]
        return np.concatenate([self._lost(free[:, cut], left[:, cut], whole[:, cut]) for cut in cuts])

    def _lost(self, free: Floats, left: Floats, whole: Floats) -> Floats:
        count, rows = free.shape[1], self._rows
        units = np.concatenate((free, left), axis=1).take(rows, axis=0)
        units /= self._units
        np.minimum(units, MOST_ROOM * UNITS, out=units)
        holds = whole.take(rows, axis=0) >= self._amounts
        if not holds.all():
            held = units.reshape(len(rows), 2, count)
            held *= holds[:, None, :]
        asked = units.astype(np.int32).take(self._asked, axis=0).reshape(*self._shape, 2 * count)
        room: Room = SQUARED.take(asked.min(axis=0))
        loss: Floats = self._weights @ (room[:, :count] - room[:, count:])
        return loss
