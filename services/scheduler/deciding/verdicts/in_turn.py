"""Shapes that are asked for in turn are weighed together: one pass over a node that changed, for all of them.

A decision changes one node, and each shape must know of it before its own next decision. One shape after the other would look at
every node that changed since it was asked for last; together they look at each once. What is not weighed here (plans that are
not aligned, too many nodes at once) each shape weighs for itself when it is asked for. Must not know scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.shape import Shape
from services.scheduler.deciding.verdicts.columns import Columns, Group
from services.scheduler.deciding.verdicts.sweeping import Sweeping, Together
from services.scheduler.deciding.verdicts.table import VerdictTable

RECENT = 64
"""Changes of nodes after which a shape that was not asked for again is weighed with the others no more."""
FEW, MANY = 3, 16
"""So many nodes that changed are weighed for all shapes at once; each shape looks for itself at fewer, and at more."""
PROFILES = 64
"""Profiles of nodes for which a sweep is kept."""


class InTurn:
    """`_asked`: row of each shape asked for lately -> when, the longest ago first. `_shapes`: those asked for twice by then."""

    def __init__(self, table: VerdictTable, columns: Columns, sweeping: Sweeping) -> None:
        self._table, self._columns, self._sweeping = table, columns, sweeping
        self._asked: dict[int, int] = {}
        self._shapes: dict[int, Shape] = {}
        self._kept: dict[int, tuple[object, Together]] = {}
        self._told = 0

    def forget(self, row: int) -> None:
        """Another shape stands in this row, or none."""
        self._asked.pop(row, None)
        if self._shapes.pop(row, None) is not None:
            self._kept = {}

    def asked(self, shape: Shape, slots: Sequence[NodeFacts | None]) -> None:
        """The shape is decided on: weigh what changed. The columns are up to date."""
        told, last = self._table.told, self._asked.pop(shape.row, None)
        if told - self._told >= FEW:
            changed = self._table.since(self._told)
            self._told = told
            if len(self._shapes) > 1 and changed is not None and len(changed) <= MANY:
                self._weigh(changed, slots)
        self._asked[shape.row] = told
        while told - self._asked[longest := next(iter(self._asked))] > RECENT:
            self.forget(longest)
        if last is not None and shape.row not in self._shapes:
            self._shapes[shape.row], self._kept = shape, {}

    def _weigh(self, changed: list[int], slots: Sequence[NodeFacts | None]) -> None:
        standing = np.array([slot for slot in changed if slots[slot] is not None], dtype=np.int64)
        for _, group in self._columns.among(standing):
            together = self._together(group)
            if together.sweep is not None:
                scores, sure = self._sweeping.run_together(together, group, slots)
                self._table.ranked_together(together.rows, group.slots, scores, sure)

    def _together(self, group: Group) -> Together:
        known, made_for = self._kept.get(group.number), self._sweeping.made_for
        if known is None or known[0] != made_for:
            if len(self._kept) >= PROFILES:
                self._kept = {}
            known = self._kept[group.number] = made_for, self._sweeping.together(list(self._shapes.values()), group)
        return known[1]
