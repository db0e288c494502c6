"""How many more containers of a kind the zones of all nodes would hold, each kind for itself. Must
not know pods.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.score.strategies.room import Pairs
from services.scheduler.score.strategies.strategy import Items
from services.scheduler.snapshot.columnar import Selection
from services.scheduler.snapshot.node_arrays import Columns

MOST = 1 << 40
NOWHERE = -1
"""No zone would hold one even when empty."""
AT_ONCE = 512
"""Zones that are looked at together: what is made for them on the way stays in the processor's cache."""


class Room:
    """The zones of some nodes."""

    def __init__(self, columns: Columns, selection: Selection) -> None:
        self._rows = tuple(columns.rows)
        self._free = columns.free_min[:, :, selection].reshape(len(self._rows), -1)
        self._whole = columns.whole[:, :, selection].reshape(len(self._rows), -1)

    def of(self, wants: Sequence[Items]) -> list[int]:
        """By want, or NOWHERE."""
        known = [
            want
            for want in dict.fromkeys(wants)
            if want and all(name in self._rows for name, _ in want)
        ]
        found = dict(zip(known, self._of(known), strict=True)) if known else {}
        return [found.get(want, NOWHERE) for want in wants]

    def _of(self, wants: Sequence[Items]) -> list[int]:
        pairs, held, ever = (
            Pairs(wants, self._rows),
            np.zeros(len(wants), dtype=np.int64),
            np.zeros(len(wants), dtype=np.bool_),
        )
        for first in range(0, self._free.shape[1], AT_ONCE):
            cut = slice(first, first + AT_ONCE)
            free = np.minimum(np.maximum(self._free[:, cut], 0), MOST)
            times = pairs.least(np.floor(free.take(pairs.rows, axis=0) / pairs.amounts))
            held += times.astype(np.int64).sum(axis=1)
            ever |= pairs.least(self._whole[:, cut].take(pairs.rows, axis=0) >= pairs.amounts).any(
                axis=1
            )
        found: list[int] = np.where(ever, held, NOWHERE).tolist()
        return found
