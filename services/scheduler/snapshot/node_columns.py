"""NodeColumns: values of nodes by slot, for rules that look at all nodes at once.

1. A column has one value of each node (a label, the taints) as a small integer by slot. It comes
   from the node's object, or from what its report says whatever is free (`has_new_values`). Equal
   values have equal codes, so that a rule looks at each distinct value once, not at each node.
2. Arrays follow lazily. The cluster notes slots whose node changed; each array remembers how far it
   has read these notes, and computes only those slots again.
3. A slot without a node has no value, and what an array says of it has no meaning for pods.

Must not know pods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot.node_arrays import Bools, Ints
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.report import Report
from shared.events.cluster_events import NodeObserved
from shared.ledger.state import LedgerNode

SmallInts = npt.NDArray[np.int32]
Scalar = TypeVar("Scalar", np.int32, np.bool_)

# The code of nodes without the value.
NONE = -1
# Changes of slots that are remembered. An array that missed more is computed again as a whole.
REMEMBERED = 8192
# Columns that are kept; the longest unused one is computed again when a rule asks.
MOST_COLUMNS = 64
# Counts of fewer than one in so many nodes are not kept by slot.
SPARSE = 16
# Codes that no node has any more may outnumber the nodes by this many.
SPARE_CODES = 1024


class SlotChanges:
    """The slots whose node changed, in order."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._forgotten = 0

    @property
    def count(self) -> int:
        """All changes so far."""
        return self._forgotten + len(self._slots)

    def note(self, slot: int) -> None:
        """The node in the slot is another one, or its object is."""
        self._slots.append(slot)
        if len(self._slots) > REMEMBERED:
            self._forgotten += len(self._slots) // 2
            del self._slots[: len(self._slots) // 2]

    def since(self, count: int) -> Iterable[int] | None:
        """Return the slots that changed since there were so many changes, None if that is not
        remembered; -1 never is.
        """
        if count < self._forgotten or count < 0:
            return None
        return set(self._slots[count - self._forgotten :])


class SlotArray(Generic[Scalar]):
    """A value by slot that follows the nodes: computed again for slots whose node changed.

    `vacant` is the value of slots without a node, `all_values` computes all values faster than
    `value_of` for each node.
    """

    def __init__(
        self,
        columns: NodeColumns,
        value_of: Callable[[NodeInfo], int],
        vacant: Scalar,
        all_values: Callable[[], npt.NDArray[Scalar]] | None = None,
    ) -> None:
        self._columns, self._value_of = columns, value_of
        self._vacant: Scalar = vacant
        self._all_values: Callable[[], npt.NDArray[Scalar]] = all_values or self._each
        self._values: npt.NDArray[Scalar] = np.zeros(0, dtype=vacant.dtype)
        self._seen = -1

    def read(self, changed_nodes: Iterable[str] = ()) -> npt.NDArray[Scalar]:
        """Return the values, not to be written to. The values of these nodes changed, too."""
        slots, changes = self._columns.slots, self._columns.changes
        changed = changes.since(self._seen)
        self._seen = changes.count
        if changed is None:
            self._values = self._all_values()
            return self._values
        if len(self._values) < len(slots):
            more = np.full(len(slots) - len(self._values), self._vacant)
            self._values = np.append(self._values, more)
        for slot in changed:
            node_info = slots[slot]
            self._values[slot] = self._vacant if node_info is None else self._value_of(node_info)
        for node_info in self._columns.named(changed_nodes):
            self._values[node_info.slot] = self._value_of(node_info)
        return self._values

    def _each(self) -> npt.NDArray[Scalar]:
        slots = self._columns.slots
        values = (
            self._vacant if node_info is None else self._value_of(node_info) for node_info in slots
        )
        return np.fromiter(values, dtype=self._vacant.dtype, count=len(slots))

    def forget(self) -> None:
        """Every value may have changed."""
        self._seen = -1


class Column:
    """One value of each node as a code. `value_of` returns None for a node without the value."""

    def __init__(
        self, columns: NodeColumns, value_of: Callable[[NodeInfo], Hashable | None]
    ) -> None:
        self._columns, self._value_of = columns, value_of
        self._codes: dict[Hashable, int] = {}
        self._array = SlotArray(columns, self._code_of, np.int32(NONE))

    def codes(self) -> SmallInts:
        """Return the codes by slot, NONE for nodes without the value; not to be written to."""
        codes = self._array.read()
        if len(self._codes) > len(codes) + SPARE_CODES:
            self._codes.clear()
            self._array.forget()
            codes = self._array.read()
        return codes

    def _code_of(self, node_info: NodeInfo) -> int:
        value = self._value_of(node_info)
        return NONE if value is None else self._codes.setdefault(value, len(self._codes))

    def exists(self) -> Bools:
        """Return which nodes have the value."""
        return self.codes() >= 0

    def among(self, values: Iterable[Hashable]) -> Bools:
        """Return which nodes have one of these values."""
        return self._where(self.codes(), (self._codes.get(value, NONE) for value in values))

    def where(self, is_true: Callable[[Any], bool]) -> Bools:
        """Return which nodes have a value for which this is true. Asked once for each value."""
        codes = self.codes()
        return self._where(codes, [code for value, code in self._codes.items() if is_true(value)])

    def shared_with(self, slots: Bools) -> Bools:
        """Return which nodes share their value with one of these slots."""
        codes = self.codes()
        return self._where(codes, codes[slots])

    def sums(self, counts: SmallInts, slots: Bools) -> Sums:
        """Return the sum of the counts of these slots for each value that they have."""
        codes = self.codes()
        codes_there = codes[slots]
        # Floats are exact here: they hold counts of pods.
        sums = np.bincount(codes_there, weights=counts[slots], minlength=len(self._codes) + 1)
        present = np.bincount(codes_there, minlength=len(self._codes) + 1) > 0
        return Sums(sums.astype(np.int64), present, codes)

    def _where(self, codes: SmallInts, wanted: Iterable[int]) -> Bools:
        """Return which of the codes are wanted; NONE never is."""
        # The last entry is the one of NONE.
        table = np.zeros(len(self._codes) + 1, dtype=np.bool_)
        table[wanted if isinstance(wanted, np.ndarray) else list(wanted)] = True
        table[NONE] = False
        return table[codes]


class Sums:
    """Sums by value of a column."""

    def __init__(self, sums: Ints, present: Bools, codes: SmallInts) -> None:
        self._sums, self._present, self._codes = sums, present, codes

    @property
    def values(self) -> int:
        """How many values have a sum."""
        return int(np.count_nonzero(self._present))

    @property
    def least(self) -> int:
        """The least sum, 0 without any."""
        return int(self._sums[self._present].min()) if self._present.any() else 0

    def by_slot(self) -> Ints:
        """Return the sum of each node's value, 0 for values without a sum."""
        return self._sums[self._codes]


def has_new_values(node_info: NodeInfo, node: LedgerNode) -> bool:
    """Return whether columns may have other values for the ledger's node than for the NodeInfo."""
    return (
        node_info.observed is not node.observed
        or node_info.devices is not node.devices
        or _steady(node_info.report) != _steady(node.basis)
    )


def _steady(report: Report | None) -> object:
    return (report.tracked, report.options) if report is not None else None


class NodeColumns:
    """The nodes by name and by slot, and columns of their values."""

    def __init__(
        self,
        nodes: Mapping[str, NodeInfo] | None = None,
        slots: Sequence[NodeInfo | None] = (),
    ) -> None:
        self.nodes: Mapping[str, NodeInfo] = {} if nodes is None else nodes
        self.slots, self.changes = slots, SlotChanges()
        self._columns: dict[Hashable, Column] = {}
        self._numbers: dict[Hashable, tuple[object, int, SlotArray[np.int32]]] = {}

    def label(self, key: str) -> Column:
        """Return the column of a label."""
        return self.observed(("label", key), lambda node: node.labels.get(key))

    def observed(
        self, name: Hashable, value_of: Callable[[NodeObserved], Hashable | None]
    ) -> Column:
        """Return the column of that name, whose values are these of the nodes' objects."""
        return self.column(
            name,
            lambda node_info: (
                value_of(node_info.observed) if node_info.observed is not None else None
            ),
        )

    def observed_where(
        self,
        name: Hashable,
        value_of: Callable[[NodeObserved], Hashable | None],
        is_true: Callable[[Any], bool],
    ) -> Bools:
        """Return of which observed nodes the value is true."""
        return self.observed(name, value_of).where(is_true)

    def column(self, name: Hashable, value_of: Callable[[NodeInfo], Hashable | None]) -> Column:
        """Return the column of that name. Its values may depend on what `has_new_values` looks at,
        and on the node's name.
        """
        column = self._columns.pop(name, None)
        if column is None:
            column = Column(self, value_of)
        self._columns[name] = column
        if len(self._columns) > MOST_COLUMNS:
            del self._columns[next(iter(self._columns))]
        return column

    def numbers(
        self, name: Hashable, value_of: Callable[[NodeInfo], int], source: object, version: int
    ) -> SmallInts:
        """Return a number of each node by slot, from a source outside the nodes: all are computed
        again if it is another object or has another version.
        """
        kept = self._numbers.get(name)
        if kept is None or kept[0] is not source or kept[1] != version:
            kept = source, version, SlotArray(self, value_of, np.int32(0))
            if len(self._numbers) >= MOST_COLUMNS:
                self._numbers.clear()
            self._numbers[name] = kept
        return kept[2].read()

    def all(self) -> Bools:
        """Return true for every slot, as an array of the caller's own."""
        return np.ones(len(self.slots), dtype=np.bool_)

    def named(self, names: Iterable[str]) -> list[NodeInfo]:
        """Return the nodes of these names, each once; names without a node are left out."""
        return [self.nodes[name] for name in dict.fromkeys(names) if name in self.nodes]

    def all_but(self, names: Iterable[str]) -> Bools:
        """Return false for these nodes, true for the others."""
        others = self.all()
        others[[node_info.slot for node_info in self.named(names)]] = False
        return others

    def each(self, is_true: Callable[[NodeInfo], bool]) -> Bools:
        """Return for which nodes this is true: a call for each."""
        return np.fromiter(
            (node_info is not None and is_true(node_info) for node_info in self.slots),
            dtype=np.bool_,
            count=len(self.slots),
        )


class NodeCounts(dict[str, int]):
    """How many pods of some kind each node has, by name; nodes without any are left out. Also by
    slot, if a rule asks.
    """

    def __init__(self, columns: NodeColumns, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(counts or {})
        self._columns = columns
        self._array: SlotArray[np.int32] | None = None
        self._changed: set[str] = set()

    def add(self, node: str, number: int) -> None:
        """Count so many more pods on the node."""
        count = self.get(node, 0) + number
        if count:
            self[node] = count
        else:
            self.pop(node, None)
        if self._array is not None:
            self._changed.add(node)

    def by_slot(self) -> SmallInts:
        """Return the counts by slot, not to be written to; 0 for nodes without any.

        An array is kept only if it is not much larger than the counts by name.
        """
        size = len(self._columns.slots)
        if len(self) * SPARSE < size:
            self._array, self._changed = None, set()
            counts = np.zeros(size, dtype=np.int32)
            for name, count in self.items():
                node_info = self._columns.nodes.get(name)
                if node_info is not None:
                    counts[node_info.slot] = count
            return counts
        if self._array is None:
            self._array = SlotArray(
                self._columns, lambda node_info: self.get(node_info.name, 0), np.int32(0)
            )
        changed, self._changed = self._changed, set()
        return self._array.read(changed)
