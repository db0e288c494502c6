"""Constraints on nodes in columns: for each distinct set of constraints which nodes it allows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.predicates import constraint_refusal
from services.scheduler.snapshot.columnar import Slots
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Constraints

_ENCODER = msgspec.msgpack.Encoder()


class _Allowed:
    """One set of constraints: which slots it allows, and those that are yet to be asked."""

    def __init__(self) -> None:
        self.slots = np.zeros(0, dtype=np.bool_)
        self.unknown: set[int] = set()


class ConstraintColumns:
    """Bounded: the longest unused set of constraints is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._columns: dict[bytes, _Allowed] = {}

    def forget(self, slot: int) -> None:
        """The node's object changed."""
        for column in self._columns.values():
            column.unknown.add(slot)

    def allowed(
        self, constraints: Constraints, nodes: Sequence[NodeInfo | None], chosen: slice | Slots
    ) -> npt.NDArray[np.bool_]:
        """True for each of the chosen slots whose node these constraints allow."""
        key = _ENCODER.encode(constraints)
        column = self._columns.pop(key, None) or _Allowed()
        self._columns[key] = column
        if len(self._columns) > self._limit:
            del self._columns[next(iter(self._columns))]
        more = len(nodes) - len(column.slots)
        if more:
            column.unknown.update(range(len(column.slots), len(nodes)))
            column.slots = np.append(column.slots, np.zeros(more, dtype=np.bool_))
        if column.unknown:
            for slot in column.unknown:
                column.slots[slot] = _allows(constraints, nodes[slot])
            column.unknown.clear()
        found: npt.NDArray[np.bool_] = column.slots[chosen]
        return found


def _allows(constraints: Constraints, node_info: NodeInfo | None) -> bool:
    return (
        node_info is not None
        and constraint_refusal(constraints, node_info.observed, node_info.name) is None
    )
