"""How many more containers of a kind the zones of all nodes would hold, each kind for itself. Must not know pods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.deciding.verdicts.columns import Columns, Selection
from services.scheduler.scoring.strategy import Items

MOST = 1 << 40
NOWHERE = -1
"""No zone would hold one even when empty."""


class Room:
    """The zones of some nodes; what kinds share is divided once."""

    def __init__(self, columns: Columns, selection: Selection) -> None:
        self._columns, self._selection = columns, selection
        self._times: dict[tuple[str, int], npt.NDArray[np.int64]] = {}

    def of(self, wants: Sequence[Items]) -> list[int]:
        """By want, or NOWHERE."""
        return [self._of(want) for want in wants]

    def _of(self, want: Items) -> int:
        if not want or any(name not in self._columns.rows for name, _ in want):
            return NOWHERE
        sized = [self._columns.whole[self._columns.rows[name]][:, self._selection] >= amount for name, amount in want]
        if not np.logical_and.reduce(sized).any():
            return NOWHERE
        times = np.minimum.reduce([self._fits(name, amount) for name, amount in want])
        return int(times.sum())

    def _fits(self, name: str, amount: int) -> npt.NDArray[np.int64]:
        found = self._times.get((name, amount))
        if found is None:
            free = self._columns.lower[self._columns.rows[name]][:, self._selection]
            found = self._times[name, amount] = np.clip(free, 0, MOST) // amount
        return found
