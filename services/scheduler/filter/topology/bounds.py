"""Bounds: which pods certainly fit and which certainly do not, by guaranteed free and free at most.

1. `free_min` charges a pod of unknown zones in every zone where it may be, `free_max` in none. The
   truth lies between the two.
2. A sufficient bound proves that the kubelet admits a pod, a necessary bound that it cannot. If
   neither decides, the kubelet search does (`kubelet_search.py`). A bound never contradicts the
   search; it only makes the search unnecessary.
3. Each bound has two forms. The loop form looks at one NodeInfo. The array form in `PlanBounds`
   looks at many nodes at once. They say the same, except that the loop form may know more.

Must not know hint providers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot import kernel
from services.scheduler.snapshot.node_arrays import (
    Bools,
    Ints,
    NodeArrays,
    Selection,
    Slots,
    select,
    slots_of,
    zones_of,
)
from services.scheduler.snapshot.node_info import NodeInfo, held_once
from services.scheduler.snapshot.pod_class import Items, Plan
from services.scheduler.snapshot.zone_sizes import (
    fits_one_zone,
    several_kinds_of_memory,
    widths_at_most,
)
from shared.domain.demand import most, outside_pod_hint
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts, is_device, is_memory, memory_of
from shared.ledger.state import Charge, ZoneAmounts

Bounds = Mapping[int, Amounts]

# Below it, sums of sizes are exact in floats.
EXACT = 2.0**53
# What a zone must have of a resource that is not requested.
NOTHING = -(1 << 63)
# The position of a part that no zone holds by itself.
NOWHERE = -1
# How memory must fit for a node to be sure under none or best-effort.
NEVER, IN_A_ZONE, IN_EVERY_ZONE = 0, 1, 2


# -- one zone for each part


def fits(amounts: Amounts, zone: Amounts) -> bool:
    """Return whether the zone holds at least `amounts`."""
    for name, amount in amounts.items():  # noqa: SIM110 - the hottest line of a warm decision
        if zone.get(name, 0) < amount:
            return False
    return True


def one_zone_each(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether every part must go into one zone, because no wider set is ever preferred."""
    if plan.rule.policy == SINGLE_NUMA_NODE:
        return True
    return plan.rule.policy == RESTRICTED and fits_one_zone(
        [part.amounts for part in plan.parts], node_info.machine.capacities
    )


def one_zone_holds_all(node_info: NodeInfo, plan: Plan) -> bool:
    """Sufficient: one zone holds all parts at once."""
    if not plan.sum_of_parts:
        return False
    zones = node_info.for_single_zones(node_info.free_min).values()
    return any(fits(plan.sum_of_parts, zone) for zone in zones)


def each_finds_a_zone(node_info: NodeInfo, plan: Plan) -> bool:
    """Sufficient: each part finds a zone, whatever zones the parts before it took. One zone holds
    it and all of them, or more zones hold it than there are parts before it.
    """
    if not plan.sum_of_parts:
        return False
    zones = node_info.for_single_zones(node_info.free_min).values()
    earlier: Amounts = {}
    for count, part in enumerate(plan.parts):
        together = {name: amount + earlier.get(name, 0) for name, amount in part.amounts.items()}
        one_holds_all = any(fits(together, zone) for zone in zones)
        if not one_holds_all and sum(fits(part.amounts, zone) for zone in zones) <= count:
            return False
        earlier |= together
    return True


def room_for_as_many(plan: Plan, zones: Iterable[Amounts]) -> bool:
    """Necessary: the parts that run at the same time find room if each requests only the smallest
    of their amounts.
    """
    if not plan.smallest:
        return True
    room = 0
    for zone in zones:
        times = min([zone.get(name, 0) // amount for name, amount in plan.smallest.items()])
        room += max(0, times)
    return room >= plan.running


def possible(node_info: NodeInfo, plan: Plan) -> bool:
    """Necessary: some state of the kubelet could admit the pod."""
    zones = node_info.free_max.values()
    if one_zone_each(node_info, plan):
        for part in plan.parts:
            if not any(fits(part.amounts, zone) for zone in zones):
                return False
        return room_for_as_many(plan, zones)
    for part in plan.parts:
        for name, amount in part.amounts.items():
            enough = sum(zone.get(name, 0) for zone in zones) >= amount
            if not enough and name not in plan.placeless:
                return False
    if plan.rule.policy != RESTRICTED or node_info.report is None:
        return True
    return _in_as_few_zones(node_info, plan, node_info.report)


def _in_as_few_zones(node_info: NodeInfo, plan: Plan, report: Report) -> bool:
    """Necessary under restricted: the kubelet admits only as many zones of a resource as would
    hold the amount if they were empty (kubelet 1.36), so the freest of these must have enough. CPUs
    and memory must also want the same number of zones.
    """
    for part in plan.parts:
        widths = widths_at_most(part.amounts, report)
        several = several_kinds_of_memory(part.amounts)
        certain = {
            width for name, width in widths.items() if not is_device(name) and name not in several
        }
        if len(certain) > 1:
            return False
        for name, width in widths.items():
            if name in plan.placeless:
                continue
            free = [max(0, zone.get(name, 0)) for zone in node_info.free_max.values()]
            if sum(sorted(free, reverse=True)[:width]) < part.amounts[name]:
                return False
    return True


# -- next to other pods


def room_for_all(node_info: NodeInfo, taken: ZoneAmounts) -> bool:
    """Sufficient: each zone that the new pod could take has enough next to every charge, so no
    pending pod can lose its place.
    """
    free_min = node_info.free_min
    return all(fits(amounts, free_min[zone]) for zone, amounts in taken.items() if zone in free_min)


def each_pending_pod_keeps_a_zone(
    node_info: NodeInfo, pending: list[Charge], taken: ZoneAmounts
) -> bool:
    """Sufficient: each pending pod has a zone that holds all of it next to every other charge and
    the new pod.
    """
    if node_info.rule.scope == "pod" and any(outside_pod_hint(charge.demand) for charge in pending):
        return False
    return all(_keeps_a_zone(node_info.free_min, charge, taken) for charge in pending)


def _keeps_a_zone(free_min: Bounds, charge: Charge, taken: ZoneAmounts) -> bool:
    """Return whether one zone holds all of a pending pod next to the new pod. False for pods with
    init containers or devices in an amount of 0, which force zones, and for a pod that was
    confirmed before, because its charge is elsewhere.
    """
    if charge.confirmed_zones or any(part.kind == "init" or part.zeros for part in charge.demand):
        return False
    places = list(charge.possible.values())
    for zone in places[0]:
        if zone not in free_min or zone not in charge.zones:
            continue
        if not all(zone in place for place in places):
            continue
        free, newcomer = free_min[zone], taken.get(zone, {})
        # A zone that does not list a resource has none of it.
        if all(free.get(name, -1) >= newcomer.get(name, 0) for name in charge.zones[zone]):
            return True
    return False


# -- the whole node


def has_whole_cores(node_info: NodeInfo, plan: Plan, threads_per_core: int) -> bool:
    """Necessary under full-pcpus-only: each container requests whole cores, and enough are free
    next to the cores that reserved CPUs touch (kubelet 1.36). What init containers leave never
    counts as free.
    """
    requests = [part.amounts[CPU] for part in plan.demand if CPU in part.amounts]
    if any(amount % (threads_per_core * 1000) for amount in requests):
        return False
    zones = node_info.report.zones if node_info.report is not None else ()
    cpus = [zone.resources[CPU] for zone in zones if CPU in zone.resources]
    reserved = sum(resource.capacity - resource.allocatable for resource in cpus)
    free = sum(zone.get(CPU, 0) for zone in node_info.free_min.values())
    return free - reserved * (threads_per_core - 1) >= sum(requests)


def may_be_enough(node_info: NodeInfo, plan: Plan) -> bool:
    """Necessary for `enough_on_the_node`, and cheap."""
    if plan.full_pcpus_only or plan.has_init_demand:
        return False
    if plan.rule.policy == NONE or len(node_info.free_min) <= 2:
        return True
    return not any(is_memory(name) for part in plan.demand for name in part.amounts)


def enough_on_the_node(
    node_info: NodeInfo, plan: Plan, newcomer: Charge, pending: list[Charge]
) -> bool:
    """Sufficient under none and best-effort, which refuse a pod only for a shortage on the node.

    CPUs and devices must be enough next to every charge. Memory must be free in one zone under
    none, where every pod is charged in each zone, and that zone must have all kinds of memory that
    pending pods request. Under best-effort memory must be free in every zone of at most two, and no
    device may draw the mask elsewhere.
    """
    taken = held_once(newcomer)
    memory = memory_of(taken)
    for name, amount in taken.items():
        if name not in memory and node_info.totals.get(name, 0) < amount:
            return False
    if not memory and not _kinds_of_memory(pending):
        return True
    if node_info.grouped_zones and (plan.rule.policy != NONE or pending):
        return False
    if plan.rule.policy != NONE and len(node_info.free_min) > 2:
        return False
    if not fits_one_zone([memory], node_info.machine.capacities):
        return False
    zones = node_info.for_single_zones(node_info.free_min).values()
    with_room = [zone for zone in zones if fits(memory, zone)]
    if plan.rule.policy == NONE:
        kinds = _kinds_of_memory(pending) if with_room else ()
        return any(all(zone.get(name, -1) >= 0 for name in kinds) for zone in with_room)
    if plan.rule.policy != BEST_EFFORT or len(with_room) < len(node_info.free_min):
        return False
    return not any(_requests_devices(charge) for charge in (*pending, newcomer))


def _kinds_of_memory(charges: Iterable[Charge]) -> set[str]:
    kinds: set[str] = set()
    for charge in charges:
        for part in charge.demand:
            kinds.update(memory_of(part.amounts))
    return kinds


def _requests_devices(charge: Charge) -> bool:
    return any(is_device(name) for part in charge.demand for name in part.amounts)


# -- the array form

# Rows, and the least that each must have [row, 1]; None if the arrays lack a row.
Least = tuple[npt.NDArray[np.intp], Ints] | None


class AlignedBounds(NamedTuple):
    """`candidates` may take the pod, `sure` nodes do without a search. `landing` [part kind, node]
    is the position [zone * capacity + slot] of the lowest zone that holds such a part by itself, or
    NOWHERE; `fits` [part kind, zone, node] says which zones do. On `wide` nodes some part needs
    several zones.
    """

    candidates: Bools
    sure: Bools
    landing: Ints
    fits: Bools | None
    wide: Bools | None


class PlanBounds:
    """The bounds of one plan on many nodes at once, valid as long as the arrays keep their shape.

    `part_kinds` are the plan's part kinds of which the arrays have every resource. `nodes` are by
    slot; `with_fits` says whether `fits` is asked for.
    """

    def __init__(
        self,
        arrays: NodeArrays,
        nodes: Sequence[NodeInfo | None],
        plan: Plan,
        request: Amounts,
        zones: int,
        with_fits: bool,
    ) -> None:
        self._arrays, self._nodes, self._plan, self._zones = arrays, nodes, plan, zones
        self._with_fits = with_fits
        rows = arrays.rows
        self.part_kinds = [
            (items, count)
            for items, count in plan.part_kinds
            if items and all(name in rows for name, _ in items)
        ]
        self._has_rows = len(self.part_kinds) == len(plan.part_kinds)
        self._request = _least_of(request, arrays.free_rows)
        self._decides = bool(plan.sum_of_parts) and self._has_rows and not plan.needs_search
        together = _together(plan, rows) if plan.sum_of_parts and self._has_rows else []
        least = [_thresholds(dict(items), rows) for items, _ in self.part_kinds]
        least += [of_all for _, _, of_all in together]
        self._least = np.array(least, dtype=np.int64).reshape(len(least), len(rows))
        earlier_and_kind = [(earlier, kind) for earlier, kind, _ in together]
        self._together = np.array(earlier_and_kind, dtype=np.int64).reshape(-1, 2)
        smallest = [plan.smallest.get(name, 0) for name in rows]
        self._smallest = np.array(smallest, dtype=np.int64)
        # Without rows the arrays have fewer zones than owned nodes, and nothing to compute.
        self.compiled: Any = self._compiled() if kernel.COMPILED is not None and rows else None
        is_unaligned = plan.mode == "unaligned" and self.compiled is not None
        self.unaligned_compiled: Any = self._compiled_unaligned() if is_unaligned else None
        self.has_zones = self.compiled is not None and self._has_rows and bool(plan.parts)
        self._largest_parts: Least = None
        self._memory_kinds: list[Least] = []
        if plan.rule.policy == RESTRICTED:
            self._largest_parts = _least_of(_largest_amounts(plan), rows)
            kinds = [several_kinds_of_memory(part.amounts) for part in plan.parts]
            self._memory_kinds = [_least_of(amounts, rows) for amounts in kinds if amounts]

    def _compiled(self) -> Any:
        arrays, plan = self._arrays, self._plan
        numbers = {items: kind for kind, (items, _) in enumerate(self.part_kinds)}
        parts = [numbers.get(tuple(part.amounts.items()), NOWHERE) for part in plan.parts]
        return kernel.COMPILED.Bounds(
            arrays.free_min, arrays.free_max, self._least, self._together, self._smallest,
            np.array(parts, dtype=np.int64), self._zones, plan.running if plan.smallest else 0,
            self._has_rows, self._decides, plan.needs_search, plan.mode == "owned",
        )  # fmt: skip

    @property
    def request(self) -> Ints | None:
        """What a node must have free by row; None if the arrays lack a row."""
        if self._request is None:
            return None
        request = np.full(len(self._arrays.free_rows), NOTHING, dtype=np.int64)
        request[self._request[0]] = self._request[1][:, 0]
        return request

    @property
    def largest_parts(self) -> Ints | None:
        """What the largest zone must have by row to hold each part; None if the arrays lack a
        row.
        """
        if self._largest_parts is None:
            return None
        largest = np.full(len(self._arrays.rows), NOTHING, dtype=np.int64)
        largest[self._largest_parts[0]] = self._largest_parts[1][:, 0]
        return largest

    def fits_node(self, selection: Selection, size: int) -> Bools:
        """Return whether the whole node has the request free."""
        return _enough(self._request, self._arrays.free, selection, size)

    def aligned(self, selection: Selection, size: int) -> AlignedBounds:
        """Return the bounds of `size` selected nodes for an aligned plan."""
        bounds = self._zone_bounds(slots_of(selection))
        if self._plan.rule.policy == RESTRICTED:
            wide = ~self._fits_one_zone(selection, size)
            few = in_as_few_zones(self._arrays, self._plan, wide, selection, self._zones)
            bounds = bounds._replace(
                candidates=bounds.candidates | few, sure=bounds.sure & ~wide, wide=wide
            )
        return bounds

    def each_finds_a_zone(self, selection: Selection, size: int) -> Bools:
        """Return the nodes of which `each_finds_a_zone` is true, without those of unknown sizes."""
        if not self._decides:
            return np.zeros(size, dtype=np.bool_)
        sure = self._zone_bounds(slots_of(selection)).sure
        return sure & ~self._arrays.overstated[selection]

    def _zone_bounds(self, slots: Slots) -> AlignedBounds:
        """Return the bounds as if each part must go into one zone."""
        size = len(slots)
        shape = len(self.part_kinds), self._zones, size
        landing = np.empty((len(self.part_kinds), size), dtype=np.int64)
        candidates, sure = np.empty(size, dtype=np.bool_), np.empty(size, dtype=np.bool_)
        fits = np.zeros(shape, dtype=np.bool_) if self._with_fits else None
        if self.compiled is None:
            for index, slot in enumerate(slots.tolist()):
                node_info = self._nodes[slot]
                assert node_info is not None
                candidates[index], sure[index] = self._plain_bounds(node_info)
                landing[:, index] = self._plain_landing(node_info, fits, index)
            return AlignedBounds(candidates, sure, landing, fits, None)
        self.compiled.run(slots, landing, candidates, sure, fits)
        return AlignedBounds(candidates, sure, landing, fits, None)

    def _plain_bounds(self, node_info: NodeInfo) -> tuple[bool, bool]:
        free_min, free_max, _ = zones_of(node_info)
        parts, most, zones = self._plan.part_kinds, free_max.values(), free_min.values()
        each_alone = all(any(fits(dict(part), zone) for zone in zones) for part, _ in parts)
        if self._decides and each_alone and each_finds_a_zone(node_info, self._plan):
            return True, True
        is_candidate = self._has_rows and (
            each_alone or all(any(fits(dict(part), zone) for zone in most) for part, _ in parts)
        )
        is_candidate = is_candidate and room_for_as_many(self._plan, most)
        return is_candidate or self._plan.needs_search, False

    def _plain_landing(self, node_info: NodeInfo, by_zone: Bools | None, index: int) -> list[int]:
        zones, landing = zones_of(node_info)[0], []
        for kind, (items, _) in enumerate(self.part_kinds):
            part = dict(items)
            holding = [
                place for place, zone in enumerate(node_info.zone_ids) if fits(part, zones[zone])
            ]
            if by_zone is not None:
                by_zone[kind, holding, index] = True
            lowest = holding[0] * self._arrays.capacity + node_info.slot if holding else NOWHERE
            landing.append(lowest)
        return landing

    def unaligned(self, selection: Selection, size: int) -> tuple[Bools, Bools]:
        """Return candidates and sure nodes for policy none or best-effort, as `possible` and
        `enough_on_the_node` have it without pending pods.
        """
        candidates, sure = np.ones(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
        if self.unaligned_compiled is not None:
            self.unaligned_compiled.run(slots_of(selection), candidates, sure)
            return candidates, sure
        for index, slot in enumerate(slots_of(selection).tolist()):
            node_info = self._nodes[slot]
            assert node_info is not None
            if not self._plan.needs_search:
                candidates[index] = possible(node_info, self._plan)
                sure[index] = self._is_enough(node_info)
        return candidates, sure

    def _is_enough(self, node_info: NodeInfo) -> bool:
        plan = self._plan
        if plan.full_pcpus_only or plan.has_init_demand:
            return False
        taken, totals = most(plan.demand), node_info.totals
        memory, free_min = memory_of(taken), zones_of(node_info)[0]
        if any(n not in memory and totals.get(n, 0) < amount for n, amount in taken.items()):
            return False
        with_room = [zone for zone in free_min.values() if fits(memory, zone)]
        if not memory or self._memory_fits(taken) == IN_A_ZONE:
            return bool(with_room) or not memory
        return self._memory_fits(taken) == IN_EVERY_ZONE and len(with_room) == self._zones

    def _memory_fits(self, taken: Amounts) -> int:
        """Return how memory must fit: under best-effort in each of at most two zones and without
        devices, else in one zone.
        """
        if self._plan.rule.policy != BEST_EFFORT:
            return IN_A_ZONE
        return NEVER if self._zones > 2 or any(map(is_device, taken)) else IN_EVERY_ZONE

    def _compiled_unaligned(self) -> Any:
        arrays, plan, rows = self._arrays, self._plan, self._arrays.rows
        sums: Amounts = {}
        for part in plan.parts:
            for name, amount in part.amounts.items():
                if name not in plan.placeless:
                    sums[name] = max(amount, sums.get(name, 0))
        taken = most(plan.demand)
        memory = memory_of(taken)
        others = {name: amount for name, amount in taken.items() if name not in memory}
        may_be_sure = not (plan.full_pcpus_only or plan.has_init_demand)
        thresholds = [
            np.array(_thresholds(n, rows), dtype=np.int64) for n in (sums, others, memory)
        ]
        return kernel.COMPILED.Unaligned(
            arrays.free_min, arrays.free_max, arrays.totals, *thresholds, self._zones,
            all(name in rows for name in sums), may_be_sure and all(name in rows for name in taken),
            plan.needs_search, bool(memory), self._memory_fits(taken),
        )  # fmt: skip

    def _fits_one_zone(self, selection: Selection, size: int) -> Bools:
        """Return whether each part fits one empty zone: no part is wide then."""
        fitting = _enough(self._largest_parts, self._arrays.largest, selection, size)
        for least in self._memory_kinds if self._arrays.uneven.any() else ():
            if least is not None:
                whole = self._arrays.whole[least[0], : self._zones][:, :, selection]
                holds = np.logical_and.reduce(whole >= least[1][:, :, None], axis=0)
                fitting &= np.logical_or.reduce(holds, axis=0)
        return fitting


def in_as_few_zones(
    arrays: NodeArrays, plan: Plan, wide: Bools, selection: Selection, zones: int
) -> Bools:
    """Return the nodes with a wide plan that may have enough in the fewest possible zones; see
    `_in_as_few_zones`.
    """
    enough = wide.copy()
    if not zones or not wide.any():
        return enough
    # How large the zones of these nodes are is not known: all of them may be taken.
    unknown_size = arrays.overstated[selection]
    for part in plan.parts:
        several = several_kinds_of_memory(part.amounts)
        for name, amount in part.amounts.items():
            row = arrays.rows.get(name)
            if row is not None and name not in plan.placeless:
                free = _freest_first(arrays.free_max[row, :zones][:, selection])
                size = _freest_first(arrays.whole[row, :zones][:, selection])
                enough &= _within(free, size, amount, unknown_size | (name in several))
    return enough


def _within(
    free: Ints, size: npt.NDArray[np.float64], amount: int, all_may_be_taken: Bools
) -> Bools:
    """Return whether the zone count is possible. For several kinds of memory the kubelet wants one
    number of zones, which may exceed the number of any of them, up to all zones.
    """
    last = len(free) - 1
    would_do = (size >= amount) & (size[last] < EXACT) & ~all_may_be_taken
    index = np.where(would_do.any(axis=0), would_do.argmax(axis=0), last)
    return np.asarray(free[index, np.arange(free.shape[1])] >= amount)


def _freest_first(zones: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[n, node]: the sum of the n + 1 largest."""
    return np.cumsum(-np.sort(-np.maximum(zones, 0), axis=0), axis=0)


def _largest_amounts(plan: Plan) -> Amounts:
    largest: Amounts = {}
    for part in plan.parts:
        for name, amount in part.amounts.items():
            largest[name] = max(amount, largest.get(name, 0))
    return largest


def _least_of(amounts: Amounts, rows: Mapping[str, int]) -> Least:
    if any(name not in rows for name in amounts):
        return None
    indices = np.array([rows[name] for name in amounts], dtype=np.intp)
    return indices, np.array(list(amounts.values()), dtype=np.int64).reshape(-1, 1)


def _enough(least: Least, available: Ints, selection: Selection, size: int) -> Bools:
    if least is None:
        return np.zeros(size, dtype=np.bool_)
    enough: Bools = np.logical_and.reduce(
        select(available, selection).take(least[0], axis=0) >= least[1], axis=0
    )
    return enough


def _together(plan: Plan, rows: Mapping[str, int]) -> list[tuple[int, int, list[int]]]:
    """For each part but the first: how many parts come before it, its kind, and what a zone must
    have by row for it and all of them. If all parts are alike, the last one is enough.
    """
    kinds: dict[Items, int] = {items: kind for kind, (items, _) in enumerate(plan.part_kinds)}
    together: list[tuple[int, int, list[int]]] = []
    total = Counter[str]()
    last = len(plan.parts) - 1
    for index, part in enumerate(plan.parts):
        total.update(part.amounts)
        if index and (len(plan.part_kinds) > 1 or index == last):
            least = _thresholds({name: total[name] for name in part.amounts}, rows)
            together.append((index, kinds[tuple(part.amounts.items())], least))
    return together


def _thresholds(amounts: Amounts, rows: Mapping[str, int]) -> list[int]:
    """Return the least that a zone must have by row."""
    return [amounts.get(name, NOTHING) for name in rows]
