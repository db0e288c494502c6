"""How far a reservation surely lowers the score of every shape on its node, so that few nodes have
to be judged again.

A shape's score on a node is that of its best zone: the mean over its resources of whole points of a
hundred. Where each zone is charged, each zone's sum drops by at least the points of the least
charge on the largest zone. Shapes whose containers ask for different things are not foretold. Must
not know nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot.node_arrays import Ints

Scores = npt.NDArray[np.int16]

REMEMBERED = 4096
"""Drops that are kept: like reservations on like machines lower scores alike."""


class ScoreDrops:
    """`asks` is [shape, resource]: 1 where the shape asks for it; `counts` how many it asks for, at
    least 1.
    """

    def __init__(self) -> None:
        self._names: dict[int, Sequence[str]] = {}
        self._asks = np.zeros((0, 0), dtype=np.int64)
        self._counts = np.ones(0, dtype=np.int64)
        self._known: dict[tuple[bytes, bytes], Scores] = {}

    def learn(self, row: int, names: Sequence[str], rows: Mapping[str, int]) -> None:
        """The shape in this row asks each zone for these resources; for nothing where it cannot be
        foretold.
        """
        self._names[row] = names
        self._known.clear()
        if row < self._asks.shape[0] and len(rows) == self._asks.shape[1]:
            self._write(row, rows)
        else:
            self._asks = np.zeros(
                (0, 0), dtype=np.int64
            )  # of another size: made anew when it is asked

    def of(self, least: Ints, widest: Ints, rows: Mapping[str, int], shapes: int) -> Scores:
        """For each of so many shapes the least drop, when each zone loses at least `least` by
        resource, and the largest zone has `widest` (at least 1)."""
        if self._asks.shape != (shapes, len(least)):
            self._resize(shapes, len(least), rows)
        key = least.tobytes(), widest.tobytes()
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            drops = (self._asks @ (100 * least // widest)) // self._counts
            found = self._known[key] = np.minimum(drops, 100).astype(np.int16)
        return found

    def _resize(self, shapes: int, resources: int, rows: Mapping[str, int]) -> None:
        self._asks, self._counts = (
            np.zeros((shapes, resources), dtype=np.int64),
            np.ones(shapes, dtype=np.int64),
        )
        self._known.clear()
        for row in self._names:
            self._write(row, rows)

    def _write(self, row: int, rows: Mapping[str, int]) -> None:
        names = self._names[row]
        self._asks[row] = 0
        self._asks[row, [rows[name] for name in names if name in rows]] = 1
        self._counts[row] = max(1, len(names))
