"""The refusals of a pod class as arrays by slot: all that the line about all nodes needs of them.

1. An entry is computed again only after its node changed (`stale`), so that an explanation costs
   what changed since the last one.
2. Entries that differ only in numbers and node are of one kind. `shortages.py` fills in many of
   them at once, `put` one of any kind.
3. Entries are read in the order of the nodes' names, so that ties go to the first name.

Must not know how a refusal is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from services.scheduler.explain.wording import headline
from services.scheduler.snapshot.node_arrays import Bools, Floats, Ints, Slots
from shared.domain.refusal import Reason, Refusal

EVICTION_MAY_HELP = {
    Reason.NODE_RESOURCE,
    Reason.TOO_MANY_PODS,
    Reason.NO_SINGLE_ZONE,
    Reason.NO_ZONE_SET,
    Reason.TOO_LITTLE_FREE,
    Reason.NOT_ON_EVERY_BRANCH,
    Reason.BRANCH_LIMIT,
}
_ORDER: dict[str, float] = {reason: place for place, reason in enumerate(Reason)}
# A reason that a constraint defines itself ranks after all constraints of `Reason` and before the
# node's resources.
_CONSTRAINT_REASON = _ORDER[Reason.NODE_RESOURCE] - 0.5
# The kind of a node that does not refuse the pod, and the zone of a refusal that concerns none.
NONE = NO_ZONE = -1
FIRST_SLOTS = 64
# With more kinds than this, all entries are computed again: old kinds are never dropped alone.
MOST_KINDS = 1024
# Larger amounts are absurd, and do not fit an array.
LARGEST = 1 << 62


class Kind(NamedTuple):
    """What refusals of one kind share: the phrase that nodes are counted by, the reason, and the
    resource that falls short.
    """

    phrase: str
    reason: str
    resource: str

    @classmethod
    def of(cls, refusal: Refusal) -> Kind:
        """Return the kind of a refusal."""
        return cls(headline(refusal), refusal.reason, refusal.resource)


class Best(NamedTuple):
    """The zone with the most free of a resource, among the refusals with one phrase."""

    resource: str
    amount: int
    slot: int
    zone: int


class RefusalTable:
    """Entries by slot. `shortfall` is the missing share of the request."""

    def __init__(self) -> None:
        self.stale = np.ones(FIRST_SLOTS, dtype=np.bool_)
        self._kinds: list[Kind] = []
        self._numbers: dict[Kind, int] = {}
        self._kind = np.full(FIRST_SLOTS, NONE, dtype=np.int32)
        self._best = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self._best_zone = np.full(FIRST_SLOTS, NO_ZONE, dtype=np.int32)
        self._shortfall = np.zeros(FIRST_SLOTS, dtype=np.float64)
        self._changes = 0

    @classmethod
    def of(cls, size: int, refusals: Mapping[int, Refusal | None]) -> RefusalTable:
        """Return a table of this many slots with these refusals by slot."""
        table = cls()
        table._reserve(size)
        for slot, refusal in refusals.items():
            table.put(slot, refusal)
        return table

    def note_changes(self, changes: int, changed_at: Slots) -> None:
        """Forget the entries of nodes that changed since the last call."""
        self._reserve(len(changed_at))
        if len(self._kinds) > MOST_KINDS:
            self._kinds, self._numbers, self._changes = [], {}, -1
        changed = changed_at > self._changes
        self.stale[: len(changed)] |= changed
        self._kind[: len(changed)][changed] = NONE
        self._changes = changes

    def _reserve(self, size: int) -> None:
        more = size - len(self._kind)
        if more > 0:
            self.stale = np.append(self.stale, np.ones(more, dtype=np.bool_))
            self._kind = np.append(self._kind, np.full(more, NONE, dtype=np.int32))
            self._best = np.append(self._best, np.zeros(more, dtype=np.int64))
            self._best_zone = np.append(self._best_zone, np.full(more, NO_ZONE, dtype=np.int32))
            self._shortfall = np.append(self._shortfall, np.zeros(more))

    def put(self, slot: int, refusal: Refusal | None) -> None:
        """Enter a node's refusal. A node that takes the pod is asked again each time."""
        if refusal is None:
            self._kind[slot] = NONE
            return
        self.stale[slot] = False
        self._kind[slot] = self._number(Kind.of(refusal))
        self._best[slot] = max(-LARGEST, min(refusal.best, LARGEST))
        self._best_zone[slot] = NO_ZONE if refusal.best_zone is None else refusal.best_zone
        self._shortfall[slot] = 1 - refusal.best / refusal.asked if refusal.asked else 0.0

    def put_all(
        self, slots: Slots, kind: Kind, asked: int, best: Ints, zones: Ints | int = NO_ZONE
    ) -> None:
        """Enter refusals of one kind."""
        self.stale[slots] = False
        self._kind[slots] = self._number(kind)
        self._best[slots], self._best_zone[slots] = best, zones
        self._shortfall[slots] = 1 - best / asked

    def _number(self, kind: Kind) -> int:
        number = self._numbers.setdefault(kind, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(kind)
        return number

    def with_refusals(self, refusals: Mapping[int, Refusal | None]) -> RefusalTable:
        """Return a copy with these refusals instead, by slot."""
        if not refusals:
            return self
        copy = RefusalTable()
        copy.stale, copy._changes = self.stale.copy(), self._changes
        copy._kinds, copy._numbers = self._kinds.copy(), self._numbers.copy()
        copy._kind, copy._best = self._kind.copy(), self._best.copy()
        copy._best_zone, copy._shortfall = self._best_zone.copy(), self._shortfall.copy()
        for slot, refusal in refusals.items():
            copy.put(slot, refusal)
        return copy

    # -- reading. `slots` are of nodes in the order of their names.

    def counts(self, slots: Slots) -> dict[str, int]:
        """Return the number of nodes by phrase, in order of the phrases."""
        counts = dict[str, int]()
        for kind, nodes in self._by_kind(slots):
            counts[kind.phrase] = counts.get(kind.phrase, 0) + nodes
        return {phrase: counts[phrase] for phrase in sorted(counts)}

    def may_help(self, slots: Slots) -> int:
        """Return on how many nodes an eviction may help."""
        by_kind = self._by_kind(slots)
        return sum(nodes for kind, nodes in by_kind if kind.reason in EVICTION_MAY_HELP)

    def _by_kind(self, slots: Slots) -> list[tuple[Kind, int]]:
        counts = np.bincount(self._kind[slots] + 1, minlength=len(self._kinds) + 1)[1:]
        return [(self._kinds[number], int(counts[number])) for number in np.flatnonzero(counts)]

    def with_reason(self, slots: Slots, reason: Reason) -> Slots:
        """Return the nodes with this reason."""
        return slots[self._is_among(slots, lambda kind: kind.reason == reason)]

    def _is_among(self, slots: Slots, is_wanted: Callable[[Kind], bool]) -> Bools:
        wanted = np.array([*map(is_wanted, self._kinds), False], dtype=np.bool_)
        return wanted[self._kind[slots]]  # NONE is the last

    def nearest(self, slots: Slots, count: int) -> list[int]:
        """Return the slots of the nearest misses: nodes that fail a later check are nearer, then
        those that lack a smaller share.
        """
        orders = [_ORDER.get(kind.reason, _CONSTRAINT_REASON) for kind in self._kinds]
        order: Floats = np.array([*orders, -1.0])[self._kind[slots]]
        nearest = list[int]()
        while len(nearest) < count:
            latest = order.max(initial=-1.0)
            if latest < 0:
                break
            places = np.flatnonzero(order == latest)
            order[places] = -1.0
            by_share = np.argsort(self._shortfall[slots[places]], kind="stable")
            nearest += slots[places[by_share[: count - len(nearest)]]].tolist()
        return nearest

    def best(self, slots: Slots, phrase: str) -> Best | None:
        """Return the zone with the most free, among the nodes counted by this phrase; None if the
        reason concerns no zone.
        """
        concerned = self._is_among(slots, lambda kind: kind.phrase == phrase)
        zonal = slots[concerned & (self._best_zone[slots] != NO_ZONE)]
        if not len(zonal):
            return None
        slot = int(zonal[self._best[zonal].argmax()])
        resource = self._kinds[self._kind[slot]].resource
        return Best(resource, int(self._best[slot]), slot, int(self._best_zone[slot]))
