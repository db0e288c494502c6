"""Constraints on nodes in columns: for each distinct set of constraints one array of yes, no and not yet known."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.deciding.constraints.predicates import constraint_refusal
from services.scheduler.deciding.node_facts import NodeFacts
from shared.domain.pod import Constraints

UNKNOWN, OPEN, CLOSED = 0, 1, 2
Slots = npt.NDArray[np.int64]
_ENCODER = msgspec.msgpack.Encoder()


class ConstraintColumns:
    """Bounded: the longest unused set of constraints is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._columns: dict[bytes, npt.NDArray[np.int8]] = {}

    def forget(self, slot: int) -> None:
        """The node's object changed."""
        for column in self._columns.values():
            if slot < len(column):
                column[slot] = UNKNOWN

    def allowed(
        self, constraints: Constraints, nodes: Sequence[NodeFacts | None], chosen: slice | Slots
    ) -> npt.NDArray[np.bool_]:
        """True for each of the chosen slots whose node these constraints allow."""
        key = _ENCODER.encode(constraints)
        column = self._columns.pop(key, None)
        if column is None:
            column = np.zeros(len(nodes), dtype=np.int8)
        elif len(column) < len(nodes):
            column = np.append(column, np.zeros(len(nodes) - len(column), dtype=np.int8))
        known = column[chosen]
        if not known.all():
            slots = np.arange(len(column))[chosen]
            for slot in slots[known == UNKNOWN].tolist():
                column[slot] = self._judge(constraints, nodes[slot])
            known = column[chosen]
        self._columns[key] = column
        if len(self._columns) > self._limit:
            del self._columns[next(iter(self._columns))]
        opened: npt.NDArray[np.bool_] = known == OPEN
        return opened

    def _judge(self, constraints: Constraints, facts: NodeFacts | None) -> int:
        if facts is None:
            return UNKNOWN
        return OPEN if constraint_refusal(constraints, facts.observed, facts.name) is None else CLOSED
