"""The cluster in columns: integer arrays laid out [resource, zone, node], refreshed lazily from the nodes' facts.

Zone rows are the node's zones in ascending order of id; missing zones and resources are zeros, which fit nothing.
Must not know pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.deciding.feasibility.zone_sizes import capacities
from services.scheduler.deciding.node_facts import Bounds, NodeFacts, Profile
from services.scheduler.deciding.verdicts.growth import grown
from shared.domain.report import Report
from shared.domain.resources import PODS, Amounts

Ints = npt.NDArray[np.int64]
Slots = Ints
Selection = slice | Slots
_LIMIT = 1 << 62
EMPTY = -1
"""No profile: a slot without a node."""
FEW = 8
"""Nodes up to which reservations are taken out one by one."""
AT_ONCE = 1024
"""Nodes that are written together: what is made on the way is small beside the columns."""
Number = TypeVar("Number", np.int64, np.float64)


class Group(NamedTuple):
    """Nodes of one profile: its number, itself, their slots and how many they are."""

    number: int
    profile: Profile
    selection: Selection
    size: int

    @property
    def slots(self) -> Slots:
        """The slots one by one."""
        return np.arange(self.selection.stop) if isinstance(self.selection, slice) else self.selection


class Delta(NamedTuple):
    """An own reservation as columns: what it takes of `zones` [resource, zone] and of the `whole` node, and the `least` that it
    takes of each zone by resource, None where it leaves a zone as it is."""

    zones: Ints
    whole: Ints
    least: Ints | None


class Columns:
    """`lower`, `upper` and `whole` (allocatable, as floats) [resource, zone, node], `free` of what is `offered` [resource, node],
    `largest` zone capacity and `widest` whole zone (at least 1) [resource, node], `totals` what is surely free in all zones
    together [resource, node], of nodes where that counts, `limits` of zones for a container [node]."""

    def __init__(self) -> None:
        self.size = self.filled = 0
        self.rows: dict[str, int] = {}
        self.free_rows: dict[str, int] = {}
        self.lower = np.zeros((0, 1, 64), dtype=np.int64)
        self.upper = np.zeros((0, 1, 64), dtype=np.int64)
        self.whole = np.zeros((0, 1, 64), dtype=np.float64)
        self.largest = np.zeros((0, 64), dtype=np.int64)
        self.widest = np.ones((0, 64), dtype=np.int64)
        self.totals = np.zeros((0, 64), dtype=np.int64)
        self.free = np.zeros((0, 64), dtype=np.int64)
        self.offered = np.zeros((0, 64), dtype=np.int64)
        self.limits = np.zeros(64, dtype=np.int64)
        self.profile = np.full(64, EMPTY, dtype=np.int32)
        self.profiles: list[Profile] = []
        self._sized: dict[int, Report | None] = {}
        self._offers: dict[int, Amounts] = {}
        self._ids: dict[Profile, int] = {}
        self._due: dict[int, list[Delta]] = {}
        self._stale: dict[int, NodeFacts] = {}
        self._counts: list[int] = []
        self._changed: set[int] = set()

    @property
    def capacity(self) -> int:
        """Columns that the arrays hold."""
        return len(self.profile)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows of zones, zones, and rows of whole nodes: what a delta was made for."""
        return self.lower.shape[0], self.lower.shape[1], self.free.shape[0]

    def profile_id(self, profile: Profile) -> int:
        """A small number for the profile."""
        found = self._ids.get(profile)
        if found is None:
            found = self._ids[profile] = len(self.profiles)
            self.profiles.append(profile)
            self._counts.append(0)
        return found

    def reserve(self, slot: int) -> None:
        """Make room for a slot."""
        self.size = max(self.size, slot + 1)
        if slot < self.capacity:
            return
        wide = grown(self.capacity)
        self.lower, self.upper = _grown(self.lower, 2, wide), _grown(self.upper, 2, wide)
        self.whole, self.offered = _grown(self.whole, 2, wide), _grown(self.offered, 1, wide)
        self.largest, self.free = _grown(self.largest, 1, wide), _grown(self.free, 1, wide)
        self.totals, self.widest = _grown(self.totals, 1, wide), np.maximum(_grown(self.widest, 1, wide), 1)
        self.limits = _grown(self.limits, 0, wide)
        self.profile = np.append(self.profile, np.full(wide - len(self.profile), EMPTY, dtype=np.int32))

    def set_profile(self, slot: int, profile: Profile | None) -> int:
        """Move a slot to a profile and return its number; None empties the slot."""
        old = int(self.profile[slot])
        new = EMPTY if profile is None else self.profile_id(profile)
        if old >= 0:
            self._counts[old] -= 1
            self.filled -= 1
        if new >= 0:
            self._counts[new] += 1
            self.filled += 1
        else:
            self._stale.pop(slot, None)
        self.profile[slot] = new
        return new

    def groups(self) -> list[Group]:
        """Each profile in use with its slots."""
        profiles, found = self.profile[: self.size], list[Group]()
        for number, count in enumerate(self._counts):
            if count == self.size:
                found.append(Group(number, self.profiles[number], slice(0, self.size), count))
            elif count:
                found.append(Group(number, self.profiles[number], np.flatnonzero(profiles == number), count))
        return found

    def in_use(self) -> list[int]:
        """The numbers of the profiles that nodes have."""
        return [number for number, count in enumerate(self._counts) if count]

    def changed(self, facts: NodeFacts) -> None:
        """The node's columns are to be written anew."""
        self._stale[facts.slot] = facts

    def is_stale(self, slot: int) -> bool:
        """Whether they are."""
        return slot in self._stale

    def refresh(self) -> None:
        """Bring the columns of all nodes that changed up to date."""
        self.write([self._stale[slot] for slot in sorted(self._stale)])
        self._stale.clear()

    def write(self, many: Sequence[NodeFacts]) -> None:
        """Bring the columns of these nodes up to date."""
        self.apply_due()
        for first in range(0, len(many), AT_ONCE):
            self._write(many[first : first + AT_ONCE])

    def _write(self, many: Sequence[NodeFacts]) -> None:
        slots = [facts.slot for facts in many]
        self._changed.update(slots)
        zones = max(len(facts.zone_ids) for facts in many)
        if zones > self.lower.shape[1]:
            self.lower, self.upper = _grown(self.lower, 1, zones), _grown(self.upper, 1, zones)
            self.whole = _grown(self.whole, 1, zones)
        self._learn(many)
        if self.rows:
            self.lower[:, :, slots] = self._block([f.firm(f.lower) for f in many], [f.zone_ids for f in many])
            self.upper[:, :, slots] = self._block([f.upper for f in many], [f.zone_ids for f in many])
            self.totals[:, slots] = _table(self.rows, [f.totals for f in many])
            self._write_sizes(
                [facts for facts in many if self._sized.get(facts.slot) is not facts.report or facts.report is None]
            )
        self.free[:, slots] = _table(self.free_rows, [_free(f) for f in many])
        self._write_offers([facts for facts in many if self._offers.get(facts.slot) is not facts.allocatable])

    def _write_sizes(self, many: Sequence[NodeFacts]) -> None:
        """What changes with the report alone."""
        if not many:
            return
        slots = [facts.slot for facts in many]
        self._sized.update((facts.slot, facts.report) for facts in many)
        self.limits[slots] = [f.report.max_numa_nodes if f.report else 0 for f in many]
        self.largest[:, slots] = _table(self.rows, [capacities(f.report) if f.report else {} for f in many])
        self.whole[:, :, slots] = whole = self._block([f.sizes for f in many], [f.zone_ids for f in many])
        self.widest[:, slots] = np.maximum(whole.max(axis=1), 1)

    def _write_offers(self, many: Sequence[NodeFacts]) -> None:
        """What changes with the node's object and with claims alone."""
        if many:
            self._offers.update((facts.slot, facts.allocatable) for facts in many)
            self.offered[:, [facts.slot for facts in many]] = _table(self.free_rows, [facts.allocatable for facts in many])

    def delta(self, facts: NodeFacts, zones: Mapping[int, Amounts], request: Amounts) -> Delta:
        """An own reservation as columns, for every node with these zones and rows."""
        places = {zone: at for at, zone in enumerate(facts.zone_ids)}
        lower = np.zeros(self.lower.shape[:2], dtype=np.int64)
        for zone, amounts in zones.items():
            for name, amount in amounts.items():
                if zone in places and name in facts.lower[zone]:
                    lower[self.rows[name], places[zone]] = amount
        untouched = any(zone not in zones for zone in places) or not places
        least = None if untouched else lower[:, : len(places)].min(axis=1)
        return Delta(lower, _table(self.free_rows, [request])[:, 0], least)

    def subtract(self, facts: NodeFacts, delta: Delta) -> None:
        """Take an own reservation out of one node's columns, which are otherwise up to date, at the next `apply_due`."""
        self._due.setdefault(facts.slot, []).append(delta)

    def take_changed(self) -> Slots:
        """The slots whose zones changed since this was asked for."""
        found = np.array(sorted(self._changed), dtype=np.int64)
        self._changed.clear()
        return found

    def apply_due(self) -> None:
        """Take out what is due, of all nodes at once; as many rounds as one node has reservations."""
        self._changed.update(self._due)
        if len(self._due) <= FEW:
            for slot, taken in self._due.items():
                for delta in taken:
                    self.lower[:, :, slot] -= delta.zones
                    self.free[:, slot] -= delta.whole
            self._due = {}
        while self._due:
            slots = list(self._due)
            deltas = [self._due[slot].pop() for slot in slots]
            self.lower[:, :, slots] -= np.stack([delta.zones for delta in deltas], axis=2)
            self.free[:, slots] -= np.stack([delta.whole for delta in deltas], axis=1)
            self._due = {slot: left for slot, left in self._due.items() if left}

    def _learn(self, many: Sequence[NodeFacts]) -> None:
        for facts in many:
            for zone in facts.lower.values():
                for name in zone:
                    self.rows.setdefault(name, len(self.rows))
            for name in (PODS, *facts.allocatable):
                self.free_rows.setdefault(name, len(self.free_rows))
        self.lower, self.upper = _grown(self.lower, 0, len(self.rows)), _grown(self.upper, 0, len(self.rows))
        self.whole = _grown(self.whole, 0, len(self.rows))
        self.largest, self.totals = _grown(self.largest, 0, len(self.rows)), _grown(self.totals, 0, len(self.rows))
        if len(self.widest) < len(self.rows):
            self.widest = np.maximum(_grown(self.widest, 0, len(self.rows)), 1)
        self.free, self.offered = _grown(self.free, 0, len(self.free_rows)), _grown(self.offered, 0, len(self.free_rows))

    def _block(self, bounds: list[Bounds], ids: list[tuple[int, ...]]) -> npt.NDArray[np.int64]:
        names, wide = list(self.rows), self.lower.shape[1]
        empty: Amounts = {}
        rows = [
            [[_clipped(bound.get(zone, empty).get(name, 0)) for zone in zones] + [0] * (wide - len(zones)) for name in names]
            for bound, zones in zip(bounds, ids, strict=True)
        ]
        return np.array(rows, dtype=np.int64).transpose(1, 2, 0)


def _free(facts: NodeFacts) -> Amounts:
    return {name: facts.free(name) for name in (PODS, *facts.allocatable)}


def _table(rows: Mapping[str, int], amounts: list[Amounts]) -> npt.NDArray[np.int64]:
    return np.array([[_clipped(each.get(name, 0)) for each in amounts] for name in rows], dtype=np.int64)


def _clipped(amount: int) -> int:
    return max(-_LIMIT, min(_LIMIT, amount))


def _grown(array: npt.NDArray[Number], axis: int, size: int) -> npt.NDArray[Number]:
    if array.shape[axis] >= size:
        return array
    extra = list(array.shape)
    extra[axis] = size - array.shape[axis]
    return np.concatenate([array, np.zeros(extra, dtype=array.dtype)], axis=axis)
