"""What each zone is worth as it stands, whatever is asked of it: half of a score under strategies
that look at room.

Kept for sweeps over many nodes, each of which would compute it anew; brought up to date when one
begins, for the nodes that changed since. Must not know requests.
"""

from __future__ import annotations

import numpy as np

from services.scheduler.score.runner import Registered
from services.scheduler.snapshot.columnar import Floats, Slots
from services.scheduler.snapshot.node_arrays import Columns


class Standing:
    """Columns [zone, node] of one strategy."""

    def __init__(self, columns: Columns, strategy: Registered) -> None:
        self._columns, self._strategy = columns, strategy
        self._values: Floats = np.zeros((0, 0))
        self._made_for: object = None

    def of(self, at: Slots) -> Floats | None:
        """Of zones by their place in columns [zone * capacity + node]; None where the strategy has
        nothing to keep.
        """
        if not self._strategy.looks_at_wants:
            return None
        columns, changed = self._columns, self._columns.take_changed()
        made_for = columns.shape, columns.capacity, self._strategy.generation
        if made_for != self._made_for:
            self._made_for, changed = made_for, np.arange(columns.size)
            self._values = np.zeros((columns.free_min.shape[1], columns.capacity))
        if len(changed):
            self._write(changed)
        found: Floats = self._values.reshape(-1).take(at)
        return found

    def _write(self, slots: Slots) -> None:
        rows, zones = self._columns.free_min.shape[:2]
        free = self._columns.free_min.take(slots, axis=2).reshape(rows, -1)
        whole = self._columns.whole.take(slots, axis=2).reshape(rows, -1)
        self._values[:, slots] = self._strategy.standing(free, whole, self._columns.rows).reshape(
            zones, -1
        )
