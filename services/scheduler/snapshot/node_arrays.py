"""What columns of nodes are made of: arrays by slot, what one pod adds to scores, what one
reservation takes, how arrays grow.

Must not know nodes or pods.

The cluster in columns: integer arrays laid out [resource, zone, node], refreshed lazily from the
nodes' facts.

Zone rows are the node's zones in ascending order of id; missing zones and resources are zeros,
which fit nothing. Must not know pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot.node_info import Bounds, Layout, MachineType, NodeInfo, Profile
from shared.domain.resources import PODS, Amounts

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Slots = Ints
Selection = slice | Slots
ScoreOffsets = npt.NDArray[np.int32]
"""What one pod adds to the scores of its shape by node, or BARRED."""

BARRED = -10_000
"""A lift that keeps a node from one pod, whatever its shape scores there."""
LEAST = 64
PART = 4
"""By how much arrays of nodes grow that are full: at 20,000 nodes doubling would leave 40 % of them unused."""


class ReservationArrays(NamedTuple):
    """An own reservation as columns: what it takes of `zones` [resource, zone] and of the `whole`
    node, and the `least` that it takes of each zone by resource, None where it leaves a zone as it
    is."""

    zones: Ints
    whole: Ints
    least: Ints | None


def grown(capacity: int) -> int:
    """The next size of arrays that hold so many nodes: a quarter more."""
    return capacity + max(LEAST, capacity // PART)


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
        return (
            np.arange(self.selection.stop) if isinstance(self.selection, slice) else self.selection
        )


class NodeArrays:
    """`free_min`, `free_max` and `whole` (allocatable, as floats) [resource, zone, node], `free` of what
    is `offered` [resource, node], `largest` zone capacity and `widest` whole zone (at least 1)
    [resource, node], `totals` what is surely free in all zones together [resource, node], of nodes
    where that counts, `limits` of zones for a container [node]. `uneven`: slots of nodes of which
    no zone has the most of every kind of memory; `overstated`: of those whose `whole` may be more
    than is allocatable."""

    def __init__(self) -> None:
        self.size = self.filled = 0
        self.rows: dict[str, int] = {}
        self.free_rows: dict[str, int] = {}
        self.free_min = np.zeros((0, 1, 64), dtype=np.int64)
        self.free_max = np.zeros((0, 1, 64), dtype=np.int64)
        self.whole = np.zeros((0, 1, 64), dtype=np.float64)
        self.largest = np.zeros((0, 64), dtype=np.int64)
        self.widest = np.ones((0, 64), dtype=np.int64)
        self.totals = np.zeros((0, 64), dtype=np.int64)
        self.free = np.zeros((0, 64), dtype=np.int64)
        self.offered = np.zeros((0, 64), dtype=np.int64)
        self.limits = np.zeros(64, dtype=np.int64)
        self.profile = np.full(64, EMPTY, dtype=np.int32)
        self.profiles: list[Profile] = []
        self.uneven: set[int] = set()
        self.overstated: set[int] = set()
        self._sized: dict[int, MachineType] = {}
        self._laid_out: dict[int, int] = {}
        self._placed: dict[int, tuple[int, Ints]] = {}
        self._offers: dict[int, Amounts] = {}
        self._ids: dict[Profile, int] = {}
        self._due: dict[int, list[ReservationArrays]] = {}
        self._stale: dict[int, NodeInfo] = {}
        self._counts: list[int] = []
        self._changed: set[int] = set()

    @property
    def capacity(self) -> int:
        """Columns that the arrays hold."""
        return len(self.profile)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows of zones, zones, and rows of whole nodes: what a delta was made for."""
        return self.free_min.shape[0], self.free_min.shape[1], self.free.shape[0]

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
        self.free_min, self.free_max = (
            _grown(self.free_min, 2, wide),
            _grown(self.free_max, 2, wide),
        )
        self.whole, self.offered = _grown(self.whole, 2, wide), _grown(self.offered, 1, wide)
        self.largest, self.free = _grown(self.largest, 1, wide), _grown(self.free, 1, wide)
        self.totals, self.widest = (
            _grown(self.totals, 1, wide),
            np.maximum(_grown(self.widest, 1, wide), 1),
        )
        self.limits = _grown(self.limits, 0, wide)
        self.profile = np.append(
            self.profile, np.full(wide - len(self.profile), EMPTY, dtype=np.int32)
        )

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
            self._laid_out.pop(slot, None)
        self.profile[slot] = new
        return new

    def groups(self) -> list[Group]:
        """Each profile in use with its slots."""
        profiles, found = self.profile[: self.size], list[Group]()
        for number, count in enumerate(self._counts):
            if count == self.size:
                found.append(Group(number, self.profiles[number], slice(0, self.size), count))
            elif count:
                found.append(
                    Group(number, self.profiles[number], np.flatnonzero(profiles == number), count)
                )
        return found

    def in_use(self) -> list[int]:
        """The numbers of the profiles that nodes have."""
        return [number for number, count in enumerate(self._counts) if count]

    def changed(self, node_info: NodeInfo) -> None:
        """The node's columns are to be written anew."""
        self._stale[node_info.slot] = node_info

    def is_stale(self, slot: int) -> bool:
        """Whether they are."""
        return slot in self._stale

    def refresh(self) -> None:
        """Bring the columns of all nodes that changed up to date."""
        self.write([self._stale[slot] for slot in sorted(self._stale)])
        self._stale.clear()

    def write(self, many: Sequence[NodeInfo]) -> None:
        """Bring the columns of these nodes up to date."""
        self.apply_due()
        for first in range(0, len(many), AT_ONCE):
            self._write(many[first : first + AT_ONCE])

    def _write(self, many: Sequence[NodeInfo]) -> None:
        slots = [node_info.slot for node_info in many]
        self._changed.update(slots)
        self._learn(many)
        alike: dict[int, list[NodeInfo]] = {}
        for node_info in many:
            alike.setdefault(node_info.profile_id, []).append(node_info)
        for number, nodes in alike.items():
            self._write_zones(number, nodes)
        self.free[:, slots] = _table(self.free_rows, [node_info.left() for node_info in many])
        self._write_offers(
            [
                node_info
                for node_info in many
                if self._offers.get(node_info.slot) is not node_info.allocatable
            ]
        )

    def _write_zones(self, number: int, many: Sequence[NodeInfo]) -> None:
        """The zones of nodes of one profile, which have the same resources in the same zones."""
        self._clear(
            [node_info.slot for node_info in many if self._laid_out.get(node_info.slot) != number]
        )
        self._laid_out.update((node_info.slot, number) for node_info in many)
        layout, slots = self.profiles[number][4], [node_info.slot for node_info in many]
        if not layout or not self.rows:
            return
        at = self._places(number)[:, None], slots
        self.free_min.reshape(-1, self.capacity)[at] = _values(
            [f.for_single_zones(f.free_min) for f in many], layout
        )
        self.free_max.reshape(-1, self.capacity)[at] = _values([f.free_max for f in many], layout)
        counted = [node_info for node_info in many if node_info.unaligned]
        if counted:
            self.totals[:, [node_info.slot for node_info in counted]] = _table(
                self.rows, [node_info.totals for node_info in counted]
            )
        self._write_sizes(
            number,
            [
                node_info
                for node_info in many
                if self._sized.get(node_info.slot) is not node_info.machine
            ],
        )

    def _write_sizes(self, number: int, many: Sequence[NodeInfo]) -> None:
        """What changes with the make of the node alone."""
        if not many:
            return
        slots = [node_info.slot for node_info in many]
        self._sized.update((node_info.slot, node_info.machine) for node_info in many)
        self.uneven.difference_update(slots)
        self.uneven.update(
            node_info.slot for node_info in many if node_info.machine.capacities.uneven
        )
        self.overstated.difference_update(slots)
        self.overstated.update(node_info.slot for node_info in many if node_info.machine.overstated)
        self.limits[slots] = [node_info.machine.max_numa_nodes for node_info in many]
        self.largest[:, slots] = _table(
            self.rows, [node_info.machine.capacities.largest for node_info in many]
        )
        whole = self.whole.reshape(-1, self.capacity)
        whole[self._places(number)[:, None], slots] = _values(
            [node_info.sizes for node_info in many], self.profiles[number][4]
        )
        self.widest[:, slots] = np.maximum(self.whole[:, :, slots].max(axis=1), 1)

    def _clear(self, slots: Sequence[int]) -> None:
        """Nodes whose zones, or what these have, are others than before."""
        if not slots:
            return
        for array in (
            self.free_min,
            self.free_max,
            self.whole,
            self.largest,
            self.totals,
            self.limits,
        ):
            array[..., slots] = 0
        self.widest[:, slots] = 1
        self.uneven.difference_update(slots)
        self.overstated.difference_update(slots)
        for slot in slots:
            self._sized.pop(slot, None)

    def _places(self, number: int) -> Ints:
        """Where the amounts of a layout stand in columns [resource * zones + zone], zone by zone."""
        wide = self.free_min.shape[1]
        known = self._placed.get(number)
        if known is None or known[0] != wide:
            layout = enumerate(self.profiles[number][4])
            places = [
                self.rows[name] * wide + zone for zone, (_, names) in layout for name in names
            ]
            known = self._placed[number] = wide, np.array(places, dtype=np.int64)
        return known[1]

    def _write_offers(self, many: Sequence[NodeInfo]) -> None:
        """What changes with the node's object and with claims alone."""
        if many:
            self._offers.update((node_info.slot, node_info.allocatable) for node_info in many)
            self.offered[:, [node_info.slot for node_info in many]] = _table(
                self.free_rows, [node_info.allocatable for node_info in many]
            )

    def delta(
        self, node_info: NodeInfo, zones: Mapping[int, Amounts], request: Amounts
    ) -> ReservationArrays:
        """An own reservation as columns, for every node with these zones and rows."""
        places = {zone: at for at, zone in enumerate(node_info.zone_ids)}
        free_min = np.zeros(self.free_min.shape[:2], dtype=np.int64)
        for zone, amounts in zones.items():
            for name, amount in amounts.items():
                if zone in places and name in node_info.free_min[zone]:
                    free_min[self.rows[name], places[zone]] = amount
        untouched = any(zone not in zones for zone in places) or not places
        least = None if untouched else free_min[:, : len(places)].min(axis=1)
        return ReservationArrays(free_min, _table(self.free_rows, [request])[:, 0], least)

    def subtract(self, node_info: NodeInfo, delta: ReservationArrays) -> None:
        """Take an own reservation out of one node's columns, which are otherwise up to date, at the
        next `apply_due`.
        """
        self._due.setdefault(node_info.slot, []).append(delta)

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
                    self.free_min[:, :, slot] -= delta.zones
                    self.free[:, slot] -= delta.whole
            self._due = {}
        while self._due:
            slots = list(self._due)
            deltas = [self._due[slot].pop() for slot in slots]
            self.free_min[:, :, slots] -= np.stack([delta.zones for delta in deltas], axis=2)
            self.free[:, slots] -= np.stack([delta.whole for delta in deltas], axis=1)
            self._due = {slot: left for slot, left in self._due.items() if left}

    def _learn(self, many: Sequence[NodeInfo]) -> None:
        """Make room for the zones and resources of these nodes."""
        for layout in {
            node_info.profile_id: node_info.profile[4]
            for node_info in many
            if node_info.profile_id not in self._placed
        }.values():
            for _, names in layout:
                for name in names:
                    self.rows.setdefault(name, len(self.rows))
        for node_info in many:
            for name in (PODS, *node_info.allocatable):
                self.free_rows.setdefault(name, len(self.free_rows))
        zones, rows = max(len(node_info.zone_ids) for node_info in many), len(self.rows)
        self.free_min, self.free_max = (
            _grown(_grown(each, 1, zones), 0, rows) for each in (self.free_min, self.free_max)
        )
        self.whole = _grown(_grown(self.whole, 1, zones), 0, rows)
        self.largest, self.totals = _grown(self.largest, 0, rows), _grown(self.totals, 0, rows)
        if len(self.widest) < rows:
            self.widest = np.maximum(_grown(self.widest, 0, rows), 1)
        self.free, self.offered = (
            _grown(self.free, 0, len(self.free_rows)),
            _grown(self.offered, 0, len(self.free_rows)),
        )


def _values(bounds: Sequence[Bounds], layout: Layout) -> Ints:
    """[amount of the layout, node], zone by zone."""
    rows = [[bound[zone][name] for zone, names in layout for name in names] for bound in bounds]
    try:
        values = np.array(rows, dtype=np.int64)
    except OverflowError:
        values = np.array([[_clipped(amount) for amount in row] for row in rows], dtype=np.int64)
    clipped: Ints = np.minimum(np.maximum(values, -_LIMIT), _LIMIT).T
    return clipped


def _table(rows: Mapping[str, int], amounts: list[Amounts]) -> npt.NDArray[np.int64]:
    return np.array(
        [[_clipped(each.get(name, 0)) for each in amounts] for name in rows], dtype=np.int64
    )


def _clipped(amount: int) -> int:
    return max(-_LIMIT, min(_LIMIT, amount))


def _grown(array: npt.NDArray[Number], axis: int, size: int) -> npt.NDArray[Number]:
    if array.shape[axis] >= size:
        return array
    extra = list(array.shape)
    extra[axis] = size - array.shape[axis]
    return np.concatenate([array, np.zeros(extra, dtype=array.dtype)], axis=axis)
