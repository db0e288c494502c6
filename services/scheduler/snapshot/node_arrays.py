"""NodeArrays: all nodes as integer arrays laid out [resource, zone, node].

1. A node has a slot, which is its place on the last axis. A slot without a node has profile EMPTY.
2. Zone rows are the node's zones in ascending order of id. Missing zones and resources are zeros,
   which fit nothing.
3. Arrays follow the NodeInfos lazily: `changed` marks a node, `refresh` writes all marked ones.
   A reservation on a node that is up to date is only subtracted (`subtract`).

Must not know pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot import kernel
from services.scheduler.snapshot.node_info import (
    MAX_ZONES,
    UNLIMITED_PODS,
    Bounds,
    Layout,
    MachineType,
    NodeInfo,
    Profile,
)
from services.scheduler.snapshot.zone_distances import Costs, distance_rows
from shared.domain.policies import NONE
from shared.domain.resources import PODS, Amounts
from shared.ledger.state import Charge

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Slots = Ints
Selection = slice | Slots
# The points that one pod adds to the scores of its class, by slot.
ScoreOffsets = npt.NDArray[np.int32]
# The offset of a node that the pod may not use, whatever the score of its class.
EXCLUDED = -(1 << 30)

Shape = tuple[int, int, int, int, int]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)

_LIMIT = 1 << 62
# The profile of a slot without a node.
EMPTY = -1
FIRST_SLOTS = 64
# Full arrays grow by a quarter: doubling would leave 40 % unused at 20,000 nodes.
GROWTH = 4
# Machines with distances of more kinds than this have none here.
MOST_DISTANCES = 256
NO_DISTANCES = -1
# Nodes that are written together, so that the intermediate lists stay small.
AT_ONCE = 1024


def grown(capacity: int) -> int:
    """Return the next size of arrays that hold this many nodes."""
    return capacity + max(FIRST_SLOTS, capacity // GROWTH)


class ReservationArrays(NamedTuple):
    """The amounts that a reservation takes: from the zones [resource, zone], from the node, and
    from the `totals` [resource] of an unaligned one.
    """

    zones: Ints
    whole: Ints
    totals: Ints


class ProfileGroup(NamedTuple):
    """The nodes of one profile."""

    number: int
    profile: Profile
    selection: Selection
    size: int

    @property
    def slots(self) -> Slots:
        """Return the slots as an array."""
        return slots_of(self.selection)


def slots_of(selection: Selection) -> Slots:
    """Return a selection, a slice from the first slot or an array, as an array."""
    return np.arange(selection.stop) if isinstance(selection, slice) else selection


class NodeArrays:
    """Arrays by slot.

    [resource, zone, node]: `free_min`, `free_max`, and `whole` (allocatable, as floats).
    [resource, node]: `free` of what the node offers (`offered`), `largest` zone capacity, and
    `totals`, the guaranteed free sum over all zones (of unaligned nodes).
    [count - 1, node]: `nearest` is the least distance within so many zones.
    [node]: `limits` of zones for a container, `zone_counts`, `profile` numbers. `uneven` nodes have
    no zone with the most of every kind of memory; `overstated` nodes may have less allocatable than
    `whole` says. `counts_cpus`: no report has ids of CPUs. `is_open`: see `has_pending_admission`.
    `distances` [kind, zone, zone] are those of the kind `distances_of` [node], NO_DISTANCES if
    there are too many kinds.
    """

    def __init__(self) -> None:
        self.size = self.filled = 0
        self.rows: dict[str, int] = {}
        self.free_rows: dict[str, int] = {}
        self.free_min = np.zeros((0, 1, FIRST_SLOTS), dtype=np.int64)
        self.free_max = np.zeros((0, 1, FIRST_SLOTS), dtype=np.int64)
        self.whole = np.zeros((0, 1, FIRST_SLOTS), dtype=np.float64)
        self.largest = np.zeros((0, FIRST_SLOTS), dtype=np.int64)
        self.totals = np.zeros((0, FIRST_SLOTS), dtype=np.int64)
        self.free = np.zeros((0, FIRST_SLOTS), dtype=np.int64)
        self.offered = np.zeros((0, FIRST_SLOTS), dtype=np.int64)
        self.nearest = np.zeros((1, FIRST_SLOTS), dtype=np.int64)
        self.limits = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self.zone_counts = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self.profile = np.full(FIRST_SLOTS, EMPTY, dtype=np.int32)
        self.profiles: list[Profile] = []
        self.uneven = np.zeros(FIRST_SLOTS, dtype=np.bool_)
        self.overstated = np.zeros(FIRST_SLOTS, dtype=np.bool_)
        self.counts_cpus = np.zeros(FIRST_SLOTS, dtype=np.bool_)
        self.is_open = np.zeros(FIRST_SLOTS, dtype=np.bool_)
        self.distances = np.zeros((1, 1, 1), dtype=np.int64)
        self.distances_of = np.full(FIRST_SLOTS, NO_DISTANCES, dtype=np.int32)
        self._costs: dict[Costs, int] = {}
        self._profile_numbers: dict[Profile, int] = {}
        self._profile_counts: list[int] = []
        # The NodeInfo parts that each slot was written from, so that only changes are written
        # again.
        self._sizes: dict[int, Bounds] = {}
        self._layouts: dict[int, int] = {}
        self._offers: dict[int, Amounts] = {}
        self._positions: dict[int, tuple[int, Ints]] = {}
        self.stale: dict[int, NodeInfo] = {}
        # Rows of zones, zones, slots, rows of whole nodes, and kinds of distances. As long as it
        # stays, every array is the same object.
        self.shape: Shape = (0, 1, FIRST_SLOTS, 0, 1)

    @property
    def capacity(self) -> int:
        return len(self.profile)

    # -- slots and profiles

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
        self.whole, self.limits = _grown(self.whole, 2, wide), _grown(self.limits, 0, wide)
        self.largest, self.totals = _grown(self.largest, 1, wide), _grown(self.totals, 1, wide)
        self.free, self.offered = _grown(self.free, 1, wide), _grown(self.offered, 1, wide)
        self.nearest = _grown(self.nearest, 1, wide)
        self.zone_counts = _grown(self.zone_counts, 0, wide)
        self.uneven = _grown(self.uneven, 0, wide)
        self.overstated = _grown(self.overstated, 0, wide)
        self.counts_cpus = _grown(self.counts_cpus, 0, wide)
        self.is_open = _grown(self.is_open, 0, wide)
        unknown = np.full(wide - len(self.profile), NO_DISTANCES, dtype=np.int32)
        self.distances_of = np.append(self.distances_of, unknown)
        empty = np.full(wide - len(self.profile), EMPTY, dtype=np.int32)
        self.profile = np.append(self.profile, empty)
        self._note_shape()

    def _note_shape(self) -> None:
        rows, zones, slots = self.free_min.shape
        self.shape = rows, zones, slots, self.free.shape[0], len(self.distances)

    def set_profile(self, slot: int, profile: Profile | None) -> int:
        """Move a slot to a profile and return the profile's number; None empties the slot."""
        earlier = int(self.profile[slot])
        number = EMPTY if profile is None else self._number_of(profile)
        if earlier >= 0:
            self._profile_counts[earlier] -= 1
            self.filled -= 1
        if number >= 0:
            self._profile_counts[number] += 1
            self.filled += 1
        else:
            self.stale.pop(slot, None)
            self._layouts.pop(slot, None)
        self.profile[slot] = number
        return number

    def _number_of(self, profile: Profile) -> int:
        number = self._profile_numbers.get(profile)
        if number is None:
            number = self._profile_numbers[profile] = len(self.profiles)
            self.profiles.append(profile)
            self._profile_counts.append(0)
        return number

    def groups(self) -> list[ProfileGroup]:
        """Return each profile in use with its slots."""
        profiles, groups = self.profile[: self.size], list[ProfileGroup]()
        for number in self.profiles_in_use():
            count, profile = self._profile_counts[number], self.profiles[number]
            if count == self.size:
                groups.append(ProfileGroup(number, profile, slice(0, self.size), count))
            else:
                slots = np.flatnonzero(profiles == number)
                groups.append(ProfileGroup(number, profile, slots, count))
        return groups

    def profiles_in_use(self) -> list[int]:
        """Return the numbers of the profiles that nodes have."""
        return [number for number, count in enumerate(self._profile_counts) if count]

    # -- writing

    def changed(self, node_info: NodeInfo) -> None:
        """Mark a node: its arrays must be written again."""
        self.stale[node_info.slot] = node_info

    def refresh(self) -> None:
        """Write the arrays of all nodes that changed."""
        if not self.stale:
            return
        stale = [self.stale[slot] for slot in sorted(self.stale)]
        for first in range(0, len(stale), AT_ONCE):
            self._write(stale[first : first + AT_ONCE])
        self.stale.clear()

    def _write(self, nodes: Sequence[NodeInfo]) -> None:
        slots = [node_info.slot for node_info in nodes]
        self._add_rows(nodes)
        by_profile: dict[int, list[NodeInfo]] = {}
        for node_info in nodes:
            by_profile.setdefault(node_info.profile_id, []).append(node_info)
        for number, alike in by_profile.items():
            self._write_zones(number, alike)
        self.free[:, slots] = _table(
            self.free_rows, [_free_on_node(node_info) for node_info in nodes]
        )
        offers = [
            node_info
            for node_info in nodes
            if self._offers.get(node_info.slot) is not node_info.allocatable
        ]
        if offers:
            self._offers.update((node_info.slot, node_info.allocatable) for node_info in offers)
            self.offered[:, [node_info.slot for node_info in offers]] = _table(
                self.free_rows, [node_info.allocatable for node_info in offers]
            )

    def _write_zones(self, number: int, nodes: Sequence[NodeInfo]) -> None:
        """Write nodes of one profile, which have the same resources in the same zones."""
        slots = [node_info.slot for node_info in nodes]
        self._clear([slot for slot in slots if self._layouts.get(slot) != number])
        self._layouts.update(dict.fromkeys(slots, number))
        self.is_open[slots] = [has_pending_admission(node_info) for node_info in nodes]
        reports = [node_info.report for node_info in nodes]
        self.counts_cpus[slots] = [report is None or report.cpus is None for report in reports]
        layout = self.profiles[number].layout
        if not layout or not self.rows:
            return
        target = self._positions_of(number)[:, None], slots
        free_min, free_max, sizes = zip(*map(zones_of, nodes), strict=True)
        self.free_min.reshape(-1, self.capacity)[target] = _values(free_min, layout)
        self.free_max.reshape(-1, self.capacity)[target] = _values(free_max, layout)
        unaligned = [node_info for node_info in nodes if node_info.unaligned]
        if unaligned:
            self.totals[:, [node_info.slot for node_info in unaligned]] = _table(
                self.rows, [node_info.totals for node_info in unaligned]
            )
        resized = [
            (node_info.slot, node_info.machine, sizes_of_node)
            for node_info, sizes_of_node in zip(nodes, sizes, strict=True)
            if self._sizes.get(node_info.slot) is not sizes_of_node
        ]
        if resized:
            self._write_machines(number, *map(list, zip(*resized, strict=True)))

    def _write_machines(
        self, number: int, slots: list[int], machines: list[MachineType], sizes: list[Bounds]
    ) -> None:
        by_slot = list(zip(slots, machines, strict=True))
        self._sizes.update(zip(slots, sizes, strict=True))
        self.uneven[slots] = [bool(machine.capacities.uneven) for machine in machines]
        self.overstated[slots] = [machine.overstated for machine in machines]
        self.distances_of[slots] = [self._kind_of_distances(machine) for machine in machines]
        self.limits[slots] = [machine.max_numa_nodes for machine in machines]
        self.zone_counts[slots] = [len(machine.sizes) for machine in machines]
        for slot, machine in by_slot:
            self.nearest[: len(machine.nearest), slot] = machine.nearest
        self.largest[:, slots] = _table(
            self.rows, [machine.capacities.largest for machine in machines]
        )
        whole = self.whole.reshape(-1, self.capacity)
        values = _values(sizes, self.profiles[number].layout)
        whole[self._positions_of(number)[:, None], slots] = values

    def _kind_of_distances(self, machine: MachineType) -> int:
        kind = self._costs.get(machine.costs)
        if kind is not None:
            return kind
        kind = len(self._costs)
        if kind == MOST_DISTANCES or len(machine.sizes) > MAX_ZONES:
            return NO_DISTANCES
        if kind == len(self.distances):
            self.distances = _grown(self.distances, 0, 2 * kind)
            self._note_shape()
        rows = distance_rows(machine.costs)
        self.distances[kind, : len(rows), : len(rows)] = rows
        self._costs[machine.costs] = kind
        return kind

    def _clear(self, slots: Sequence[int]) -> None:
        """Clear slots with other zones, or other resources in them, than before."""
        if not slots:
            return
        arrays = self.free_min, self.free_max, self.whole, self.largest, self.totals, self.limits
        for array in (*arrays, self.zone_counts, self.uneven, self.overstated):
            array[..., slots] = 0
        for slot in slots:
            self._sizes.pop(slot, None)

    def _positions_of(self, number: int) -> Ints:
        """The position [resource * zones + zone] of each amount of a layout, zone by zone."""
        wide = self.free_min.shape[1]
        kept = self._positions.get(number)
        if kept is None or kept[0] != wide:
            positions = [
                self.rows[name] * wide + zone
                for zone, (_, names) in enumerate(self.profiles[number].layout)
                for name in names
            ]
            kept = self._positions[number] = wide, np.array(positions, dtype=np.int64)
        return kept[1]

    def _add_rows(self, nodes: Sequence[NodeInfo]) -> None:
        """Make room for the zones and resources of these nodes."""
        for node_info in nodes:
            if node_info.profile_id not in self._positions:
                for _, names in node_info.profile.layout:
                    for name in names:
                        self.rows.setdefault(name, len(self.rows))
            for name in (PODS, *node_info.allocatable):
                self.free_rows.setdefault(name, len(self.free_rows))
        zones, rows = max(len(node_info.zone_ids) for node_info in nodes), len(self.rows)
        self.free_min = _grown(_grown(self.free_min, 1, zones), 0, rows)
        self.free_max = _grown(_grown(self.free_max, 1, zones), 0, rows)
        self.whole = _grown(_grown(self.whole, 1, zones), 0, rows)
        self.nearest = _grown(self.nearest, 0, zones)
        with_distances = min(zones, MAX_ZONES)
        self.distances = _grown(_grown(self.distances, 1, with_distances), 2, with_distances)
        self.largest, self.totals = _grown(self.largest, 0, rows), _grown(self.totals, 0, rows)
        free_rows = len(self.free_rows)
        self.free, self.offered = (
            _grown(self.free, 0, free_rows),
            _grown(self.offered, 0, free_rows),
        )
        self._note_shape()

    # -- reservations

    def reservation(
        self, node_info: NodeInfo, zones: Mapping[int, Amounts], request: Amounts, total: Amounts
    ) -> ReservationArrays:
        """Return a reservation as arrays, for every node with these zones and rows."""
        positions = {zone: index for index, zone in enumerate(node_info.zone_ids)}
        taken = np.zeros(self.free_min.shape[:2], dtype=np.int64)
        names = dict(node_info.profile.layout)
        for zone, amounts in zones.items():
            for name, amount in amounts.items():
                if zone in positions and name in names[zone]:
                    taken[self.rows[name], positions[zone]] = amount
        whole, totals = _table(self.free_rows, [request]), _table(self.rows, [total])
        return ReservationArrays(taken, whole[:, 0], totals[:, 0])

    def subtract(self, slot: int, reservation: ReservationArrays) -> None:
        """Subtract a reservation from a node that is up to date otherwise."""
        if kernel.COMPILED is not None:
            kernel.COMPILED.subtract(self.free_min, self.free, self.totals, *reservation, slot)
        else:
            self.free_min[:, :, slot] -= reservation.zones
            self.free[:, slot] -= reservation.whole
            self.totals[:, slot] -= reservation.totals
        if self.profiles[self.profile[slot]].owners.is_owned:
            self.free_max[:, :, slot] -= reservation.zones


def has_pending_admission(node_info: NodeInfo) -> bool:
    """Return whether other pods surely reach the kubelet of a node of policy none before or after a
    new pod, unless its states are too many.
    """
    if node_info.rule.policy != NONE:
        return False
    return any(is_pending_admission(node_info, charge) for charge in node_info.charges())


def is_pending_admission(node_info: NodeInfo, charge: Charge) -> bool:
    """Return whether the kubelet has admitted nothing of the pod in any reading of the report."""
    if not charge.demand or charge.confirmed or charge.confirmed_zones:
        return False
    return charge.key not in (node_info.ledger.listed or ())


def zones_of(node_info: NodeInfo) -> tuple[Bounds, Bounds, Bounds]:
    """Return the amounts of zones: guaranteed free, free at most, and sizes."""
    if node_info.profile.owners.is_owned:
        state = node_info.owned_state()
        return state.zones, state.zones, state.sizes
    free_min: Bounds = node_info.free_min
    if node_info.grouped_zones:
        free_min = node_info.for_single_zones(free_min)
    return free_min, node_info.free_max, node_info.sizes


def _free_on_node(node_info: NodeInfo) -> Amounts:
    """Return `NodeInfo.free` for pods and for each resource of the node's allocatable."""
    allocatable, requested = node_info.allocatable, node_info.requested
    free = {name: amount - requested.get(name, 0) for name, amount in allocatable.items()}
    free.setdefault(PODS, UNLIMITED_PODS)
    return free


def select(array: npt.NDArray[Number], selection: Selection) -> npt.NDArray[Number]:
    """Return the selected nodes, which are the last axis; a copy only for an array of slots."""
    if isinstance(selection, slice):
        return array[..., selection]
    return array.take(selection, axis=-1)


def _values(bounds: Sequence[Bounds], layout: Layout) -> Ints:
    """[amount of the layout, node], zone by zone."""
    rows = [[bound[zone][name] for zone, names in layout for name in names] for bound in bounds]
    try:
        values = np.array(rows, dtype=np.int64)
    except OverflowError:
        values = np.array([list(map(_clipped, row)) for row in rows], dtype=np.int64)
    clipped: Ints = np.minimum(np.maximum(values, -_LIMIT), _LIMIT).T
    return clipped


def _table(rows: Mapping[str, int], nodes: Sequence[Amounts]) -> Ints:
    """[row, node] of the amounts."""
    table = np.empty((len(rows), len(nodes)), dtype=np.int64)
    for row, name in enumerate(rows):
        table[row] = [_clipped(amounts.get(name, 0)) for amounts in nodes]
    return table


def _clipped(amount: int) -> int:
    return max(-_LIMIT, min(_LIMIT, amount))


def _grown(array: npt.NDArray[Number], axis: int, size: int) -> npt.NDArray[Number]:
    if array.shape[axis] >= size:
        return array
    extra = list(array.shape)
    extra[axis] = size - array.shape[axis]
    return np.concatenate([array, np.zeros(extra, dtype=array.dtype)], axis=axis)
