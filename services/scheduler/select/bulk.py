"""The bulk evaluator: filter and score many nodes for a pod class at once.

Nodes are parted by the plan that the class has on them. Each plan has one `PlanEvaluation`: array
bounds filter (`filter/topology/bounds.py`), the strategy scores, and ranks follow the fewest zones
that may be enough (`score/predicted_zones.py`). A node that the bounds do not decide, or whose
zones must be predicted, stays unsure until it is evaluated singly. Must not know the score cache,
nor which nodes changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.predicates import ConstraintColumns
from services.scheduler.filter.topology.bounds import NOWHERE, AlignedBounds, PlanBounds
from services.scheduler.filter.topology.fit import blocked, plan_for
from services.scheduler.filter.topology.predict import sure_places
from services.scheduler.score.least_spread import LeastSpreads
from services.scheduler.score.predicted_zones import device_closeness
from services.scheduler.score.ranks import CLOSER, RULED_OUT, STEP
from services.scheduler.score.runner import HIGHEST, StrategyRunner
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import (
    Bools,
    Floats,
    Ints,
    NodeArrays,
    Selection,
    Slots,
    select,
    slots_of,
)
from services.scheduler.snapshot.node_columns import SlotArray
from services.scheduler.snapshot.node_info import NodeInfo, Profile
from services.scheduler.snapshot.pod_class import AlignedPart, Items, Plan, PlanOnNodes, PodClass
from shared.domain.policies import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.resources import is_memory
from shared.ledger.charge import Possible, landing_in, remember
from shared.owned.values import MOST_ALLOCATED

Nodes = Sequence[NodeInfo | None]
# Ranks, and whether each is sure.
Ranks = tuple[Ints, Bools]
Scores = npt.NDArray[np.int32]
# What the kernel's `Bounds.zones` returns.
Zones = tuple[tuple[int, ...] | None, tuple[int, ...], bool]

# From this many changed nodes on, a bulk evaluation is cheaper than ranking each node.
BULK_FROM = 24
# The same if every node is scored by every demand class.
BULK_FROM_BY_DEMAND = 3
# The same if sets of zones are compared: bulk scores are upper bounds, and few nodes are then
# evaluated singly.
BULK_FROM_BY_SETS = 1
# Kinds of parts up to which the kernel ranks, as in `kernel.h`.
MOST_KINDS = 32
# Landings that a pod class keeps.
REMEMBERED = 1024
# The landing of plans that are not aligned.
NO_LANDING: Ints = np.zeros((0, 0), dtype=np.int64)


class Selected(NamedTuple):
    """Nodes on which a pod class has one plan."""

    on_nodes: PlanOnNodes
    selection: Selection
    size: int


class BulkEvaluator:
    """Reads the node arrays, which are up to date; keeps its prepared state on the pod class.

    `bulk_from`: changed nodes from which on a bulk evaluation is cheaper than ranking each; None if
    neither is worth it.
    """

    def __init__(
        self,
        arrays: NodeArrays,
        constraints: ConstraintColumns,
        config: CycleConfig,
        strategy: StrategyRunner,
        nodes: Nodes,
    ) -> None:
        self._arrays, self._constraints, self._nodes = arrays, constraints, nodes
        self._config, self._strategy = config, strategy
        self.bulk_from = _bulk_from(strategy)
        # What `_zones` was asked last, and its answer: one decision asks up to three times.
        self._latest: tuple[object, Zones | None] = None, None

    def plan(self, pod_class: PodClass, profile: Profile, number: int) -> PlanOnNodes:
        """Return the class's plan on nodes of the profile of this number."""
        on_nodes = pod_class.plans_on_nodes.get(number)
        if on_nodes is None:
            plan = plan_for(pod_class, profile, self._config)
            is_blocked = blocked(pod_class, profile, plan, self._config) is not None
            for kept in pod_class.distinct_plans:
                if kept.plan == plan and kept.is_blocked == is_blocked:
                    on_nodes = kept
                    break
            else:
                on_nodes = PlanOnNodes(plan, is_blocked)
                pod_class.distinct_plans.append(on_nodes)
            pod_class.plans_on_nodes[number] = on_nodes
            on_nodes.profiles.append(number)
            on_nodes.zones = max(on_nodes.zones, len(profile.layout))
            on_nodes.evaluation = None
        return on_nodes

    def rank(self, pod_class: PodClass, scores: Scores, sure: Bools) -> bool:
        """Rank the nodes that changed, and that the kernel ranks, in the row of the class. Return
        whether there are others.
        """
        if not pod_class.plans_on_nodes:
            for number in self._arrays.profiles_in_use():
                self.plan(pod_class, self._arrays.profiles[number], number)
        others = True
        for on_nodes in pod_class.distinct_plans:
            evaluation = self.evaluation(pod_class, on_nodes)
            if evaluation.is_compiled and others:
                others = evaluation.rank(scores, sure)
        return others

    def sure_places(self, pod_class: PodClass, node_info: NodeInfo) -> Sequence[int] | None:
        """Return the `sure_places` of the class's plan on this node; None also if the node or the
        plan is not plain.
        """
        plan = self.plan(pod_class, node_info.profile, node_info.profile_id).plan
        if not plan.is_plain:
            return None
        zones = self._zones(pod_class, node_info)
        if zones is None:
            return sure_places(node_info, plan)
        places = zones[0]
        if places is None or len(places) == len(plan.demand):
            return places
        return (
            places * len(plan.demand) if all(part.kind == "app" for part in plan.demand) else None
        )

    def note_landing(self, pod_class: PodClass, node_info: NodeInfo) -> bool:
        """Let the ledger know the landing of this class on this node, if the kernel finds it.
        Return whether each part surely finds a zone.
        """
        report, profile = node_info.report, node_info.profile
        plan = self.plan(pod_class, profile, node_info.profile_id).plan
        if report is None or report.unlisted or profile.between or plan.needs_search:
            return False
        if not plan.rule.policy == report.policy == SINGLE_NUMA_NODE:
            return False
        if plan.rule.source != "report" or pod_class.kind.demand_on(report) is not plan.demand:
            return False
        zones = self._zones(pod_class, node_info)
        if zones is None:
            return False
        landings, key = pod_class.landings, (node_info.profile_id, zones[1])
        landing = landings.get(key)
        if landing is None:
            if len(landings) >= REMEMBERED:
                landings.clear()
            possible = _possible(plan, zones[1], node_info.zone_ids)
            landing = landing_in(possible, plan.demand, node_info.zone_ids, report)
            landings[key] = landing
        remember(plan.demand, report, node_info.free_max, landing)
        return zones[2]

    def surely_spreads_nothing(self, pod_class: PodClass, node_info: NodeInfo) -> bool:
        """Return whether the kernel knows that each part finds a zone of a best-effort node."""
        plan = self.plan(pod_class, node_info.profile, node_info.profile_id).plan
        if plan.rule.policy != BEST_EFFORT or plan.needs_search or node_info.machine.overstated:
            return False
        zones = self._zones(pod_class, node_info)
        return zones is not None and zones[2]

    def _zones(self, pod_class: PodClass, node_info: NodeInfo) -> Zones | None:
        """Return the kernel's `Bounds.zones`; None if it does not know this node."""
        slot, asked = node_info.slot, (pod_class, node_info, node_info.version)
        if self._nodes[slot] is not node_info or slot in self._arrays.stale:
            return None
        if self._latest[0] != asked:
            on_nodes = self.plan(pod_class, node_info.profile, node_info.profile_id)
            self._latest = asked, self.evaluation(pod_class, on_nodes).zones(slot)
        return self._latest[1]

    def best_zone(self, pod_class: PodClass, node_info: NodeInfo) -> int | None:
        """Return the zone that the strategy prefers on a node whose zones Topolog chooses, None if
        the node's own strategy decides or no zone has room.
        """
        on_nodes = self.plan(pod_class, node_info.profile, node_info.profile_id)
        is_own = node_info.owned_state().node.zone_strategy == MOST_ALLOCATED
        if not (is_own and self._strategy.scores_zones(on_nodes.plan)):
            return None
        if self._nodes[node_info.slot] is node_info and node_info.slot not in self._arrays.stale:
            return self.evaluation(pod_class, on_nodes).best_zone(node_info)
        best = self._strategy.best_zone(node_info, on_nodes.plan)
        return None if best is None else best[1]

    def parted(self, pod_class: PodClass, slots: Slots) -> list[tuple[Selection, Selected]]:
        """Return the nodes in these slots, grouped by the class's plan on them: their index in
        `slots`, and the nodes. No slot is empty.
        """
        arrays = self._arrays
        profiles = arrays.profile.take(slots)
        by_plan: dict[PlanOnNodes, list[int]] = {}
        for number in dict.fromkeys(profiles.tolist()):
            on_nodes = self.plan(pod_class, arrays.profiles[number], number)
            by_plan.setdefault(on_nodes, []).append(number)
        if len(by_plan) == 1:
            selection = slice(0, arrays.size) if len(slots) == arrays.size else slots
            return [(slice(None), Selected(next(iter(by_plan)), selection, len(slots)))]
        parts: list[tuple[Selection, Selected]] = []
        for on_nodes, numbers in by_plan.items():
            index = np.flatnonzero(_is_one_of(numbers, arrays).take(profiles))
            parts.append((index, Selected(on_nodes, slots[index], len(index))))
        return parts

    def run(self, pod_class: PodClass, selected: Selected) -> Ranks:
        """Return ranks and certainty of the selected nodes, in their order."""
        on_nodes, selection, size = selected
        if on_nodes.is_blocked:
            return np.full(size, RULED_OUT), np.ones(size, dtype=np.bool_)
        return self.evaluation(pod_class, on_nodes).run(selection, size)

    def candidates(self, pod_class: PodClass, selected: Selected) -> Bools:
        """Return which of the selected nodes may take a pod of the class."""
        on_nodes, selection, size = selected
        if on_nodes.is_blocked:
            return np.zeros(size, dtype=np.bool_)
        return self.evaluation(pod_class, on_nodes).bounds(selection, size).candidates

    def evaluation(self, pod_class: PodClass, on_nodes: PlanOnNodes) -> PlanEvaluation:
        """Return the class's evaluation on the nodes of this plan."""
        made_for = self._arrays.shape, self._strategy.changes
        if on_nodes.evaluation is None or on_nodes.made_for != made_for:
            on_nodes.made_for = made_for
            on_nodes.evaluation = PlanEvaluation(
                self._arrays,
                self._nodes,
                pod_class,
                on_nodes,
                self._strategy,
                self._constraints.allowed(pod_class.pod.constraints),
                self._config.rank_by_zones,
            )
        evaluation: PlanEvaluation = on_nodes.evaluation
        return evaluation


def _possible(plan: Plan, masks: Sequence[int], zone_ids: Sequence[int]) -> Possible:
    """Return the zones of these masks, by kind of part, for each part; all zones for none."""
    kinds = {items: kind for kind, (items, _) in enumerate(plan.part_kinds)}
    possible: Possible = {}
    for part in plan.parts:
        mask = masks[kinds[tuple(part.amounts.items())]]
        zones = tuple([zone for place, zone in enumerate(zone_ids) if mask >> place & 1])
        possible[part.name] = zones or tuple(zone_ids)
    return possible


def _is_one_of(numbers: Sequence[int], arrays: NodeArrays) -> Bools:
    """Return as an array, by number of a profile, whether it is one of these."""
    is_one = np.zeros(len(arrays.profiles), dtype=np.bool_)
    is_one[numbers] = True
    return is_one


def _bounded(plan: Plan) -> Plan:
    """Return the plan by which zones are bounded: where Topolog must choose one zone, the pod's
    amounts are one part.
    """
    if plan.one_zone is None:
        return plan
    items = plan.one_zone[0]
    part = AlignedPart("", "app", dict(items))
    return msgspec.structs.replace(plan, parts=(part,), part_kinds=((items, 1),))


class PlanEvaluation:
    """One plan of a pod class on many nodes, valid as long as the arrays keep their shape."""

    def __init__(
        self,
        arrays: NodeArrays,
        nodes: Nodes,
        pod_class: PodClass,
        on_nodes: PlanOnNodes,
        strategy: StrategyRunner,
        allowed: SlotArray[np.bool_],
        rank_by_zones: bool,
    ) -> None:
        self._arrays, self._strategy, self._allowed = arrays, strategy, allowed
        self._plan: Plan = on_nodes.plan
        self._zones, self._asked = on_nodes.zones, pod_class.asked
        self._bounds = PlanBounds(
            arrays,
            nodes,
            _bounded(on_nodes.plan),
            pod_class.request,
            on_nodes.zones,
            with_fits=strategy.at_once and not strategy.by_landing,
        )
        self._least_spreads: LeastSpreads | None = None
        may_spread = self._plan.may_spread and self._plan.mode != "owned"
        if rank_by_zones and on_nodes.zones > 1 and may_spread:
            self._least_spreads = LeastSpreads(arrays, nodes, on_nodes.plan, on_nodes.zones)
        self._nodes, self._near = nodes, rank_by_zones and bool(self._plan.near)
        self._rooms: tuple[Any, ...] = ()
        self._rank = None if on_nodes.is_blocked else self._by_kernel(on_nodes)
        self.is_compiled = self._rank is not None

    def _by_kernel(self, on_nodes: PlanOnNodes) -> Callable[..., int] | None:
        """Return how the kernel ranks the plan's nodes; None if it does not."""
        plan, arrays, request = self._plan, self._arrays, self._bounds.request
        if plan.near or request is None or self._bounds.compiled is None:
            return None
        if len(plan.part_kinds) > MOST_KINDS:
            return None
        row = arrays.free, request, arrays.profile, _is_one_of(on_nodes.profiles, arrays)
        if plan.mode == "unaligned" and self._strategy.by_landing:
            return self._unaligned_by_kernel(row)
        if plan.mode != "aligned" and not self._strategy.scores_zones(plan):
            return None
        kinds = [items for items, _ in self._bounds.part_kinds]
        if plan.one_zone is not None:
            kinds = [plan.one_zone[1]] * len(kinds)
        free_min, whole = self._by_position()
        rooms = tuple(self._strategy.room(items, arrays.rows, free_min, whole) for items in kinds)
        if None in rooms:
            return None
        self._rooms = rooms
        wide: tuple[object, ...] = None, None, None
        if plan.mode == "aligned" and plan.rule.policy == RESTRICTED:
            largest = self._bounds.largest_parts
            if largest is None:
                return None
            wide = largest, arrays.largest, arrays.uneven
        return partial(self._bounds.compiled.rank, rooms, *wide, *row)

    def _unaligned_by_kernel(self, row: tuple[object, ...]) -> Callable[..., int] | None:
        arrays, names, room, single = self._arrays, tuple(self._arrays.free_rows), None, None
        free, whole = np.zeros((len(names), 1), dtype=np.int64), np.zeros((len(names), 1))
        if self._asked and all(name in arrays.free_rows for name in self._asked):
            items = tuple(self._asked.items())
            room = self._strategy.room(items, arrays.free_rows, free, whole)
            if room is None:
                return None
        spreads = self._least_spreads
        if spreads is not None and spreads.compiled is None:
            return None
        if self._plan.rule.policy == BEST_EFFORT:
            single = self._bounds.compiled
        spread = None if spreads is None else spreads.compiled
        node = free, whole, arrays.offered, arrays.overstated
        return partial(self._bounds.unaligned_compiled.rank, single, spread, room, *node, *row)

    def zones(self, slot: int) -> Any:
        """Return the kernel's `Bounds.zones` of the plan's node in this slot, None without it."""
        return self._bounds.compiled.zones(slot) if self._bounds.has_zones else None

    def rank(self, scores: Scores, sure: Bools) -> bool:
        """Rank the plan's nodes that changed, in the row of the class. Return whether other nodes
        changed.
        """
        assert self._rank is not None
        return bool(self._rank(self._allowed.read(), scores, sure))

    def bounds(self, selection: Selection, size: int) -> AlignedBounds:
        """Return the bounds; candidates also pass the constraints, and have room on the whole
        node.
        """
        bounds = self.zone_bounds(selection, size)
        candidates = bounds.candidates & self.allowed(selection)
        candidates &= self._bounds.fits_node(selection, size)
        return bounds._replace(candidates=candidates)

    @property
    def part_kinds(self) -> list[Items]:
        """The amounts of each kind of part of the bounds."""
        return [items for items, _ in self._bounds.part_kinds]

    def allowed(self, selection: Selection) -> Bools:
        """Return which of the selected nodes pass the constraints."""
        return self._allowed.read()[selection]

    def zone_bounds(self, selection: Selection, size: int) -> AlignedBounds:
        """Return the bounds by amounts in zones alone."""
        if self._plan.mode == "aligned" or self._plan.one_zone is not None:
            return self._bounds.aligned(selection, size)
        if self._plan.mode == "unaligned":
            candidates, sure = self._bounds.unaligned(selection, size)
            return AlignedBounds(candidates, sure, NO_LANDING, None, np.ones(size, np.bool_))
        sure = np.full(size, self._plan.mode == "free")
        return AlignedBounds(np.ones(size, np.bool_), sure, NO_LANDING, None, None)

    def run(self, selection: Selection, size: int) -> Ranks:
        """Return ranks and certainty."""
        bounds = self.bounds(selection, size)
        sure, wide = bounds.sure, bounds.wide
        if self._plan.mode == "aligned":
            scores = self._aligned_scores(bounds, selection, size)
        elif self._plan.one_zone is not None and self._strategy.scores_zones(self._plan):
            scores = self._best_zone_scores(*self._plan.one_zone, selection, size)
        else:
            scores = self._whole_scores(selection, size)
        if wide is not None and self._least_spreads is not None:
            scores, sure = self._with_spread(scores, sure, wide, selection)
        if not self._strategy.at_once:
            # These scores are upper bounds.
            sure = np.zeros(size, dtype=np.bool_)
        if self._near:
            scores = scores + CLOSER * self._closeness(selection)
        ruled_out = ~bounds.candidates
        scores[ruled_out] = RULED_OUT
        return scores, sure | ruled_out

    def _closeness(self, selection: Selection) -> Ints:
        """Return the closeness of devices on each selected node."""
        nodes = [self._nodes[slot] for slot in slots_of(selection).tolist()]
        levels = [device_closeness(node, self._plan) if node is not None else 0 for node in nodes]
        return np.array(levels, dtype=np.int64)

    def _with_spread(
        self, scores: Ints, sure: Bools, wide: Bools, selection: Selection
    ) -> tuple[Ints, Bools]:
        """Return upper bounds of the ranks. A rank is sure if a single zone surely does for each
        part; other nodes that may spread the pod (`wide`) are predicted singly.
        """
        assert self._least_spreads is not None
        if not wide.any():
            return scores, sure
        if self._plan.rule.policy == BEST_EFFORT:
            single = self._bounds.each_finds_a_zone(selection, len(scores))
            if single.all():
                return scores, sure
            sure = sure & single
        else:
            sure = sure & ~wide
        least = self._least_spreads.least(slots_of(selection))
        return scores - STEP * np.where(wide, least, 0), sure

    def _aligned_scores(self, bounds: AlignedBounds, selection: Selection, size: int) -> Ints:
        """Return the mean of the parts' scores, rounded down; 0 for a part that no zone holds
        alone. Nodes on which a part needs several zones count as one zone.
        """
        if not self._strategy.at_once:
            return self._highest_scores(selection, size)
        total = np.zeros(size, dtype=np.int64)
        for kind, (items, count) in enumerate(self._bounds.part_kinds):
            if bounds.fits is None:
                scores = self._landing_scores(items, bounds.landing[kind], selection)
            else:
                scores = self._part_scores(items, bounds.fits[kind], selection)
            if count == len(self._plan.parts):
                total = scores
            else:
                total += count * scores
        if len(self._plan.part_kinds) > 1:
            total //= len(self._plan.parts)
        if bounds.wide is None or not bounds.wide.any():
            return total
        return np.where(bounds.wide, self._whole_scores(selection, size), total)

    def _landing_scores(self, items: Items, landing: Slots, selection: Selection) -> Ints:
        """Return the scores if the part gets the lowest zone that holds it; `landing` has the
        positions.
        """
        by_sets = self._lost_by_sets(items, landing, selection)
        landed = self._strategy.landed(items, self._arrays.rows)
        return landed.scores(*self._by_position(), landing, by_sets)

    def best_zone(self, node_info: NodeInfo) -> int | None:
        """Return `StrategyRunner.best_zone` of a node that the arrays have as it is."""
        if not self._rooms:
            best = self._strategy.best_zone(node_info, self._plan)
            return None if best is None else best[1]
        place = self._bounds.compiled.best_zone(self._rooms, node_info.slot)
        return None if place < 0 else node_info.zone_ids[place]

    def _best_zone_scores(
        self, amounts: Items, scored: Items, selection: Selection, size: int
    ) -> Ints:
        """Return the best score of the zones that have these amounts."""
        slots, arrays, best = slots_of(selection), self._arrays, np.zeros(size, dtype=np.int64)
        landed = self._strategy.landed(scored, arrays.rows)
        rows = [arrays.rows[name] for name, _ in amounts]
        asked = np.array([amount for _, amount in amounts], dtype=np.int64)[:, None]
        for zone in range(self._zones):
            fits = (arrays.free_min[rows, zone][:, slots] >= asked).all(axis=0)
            positions = np.where(fits, zone * arrays.capacity + slots, NOWHERE)
            best = np.maximum(best, landed.scores(*self._by_position(), positions))
        return best

    def _by_position(self) -> tuple[Ints, Floats]:
        """Return the free and the whole amounts by [row, position of a zone]."""
        rows = len(self._arrays.free_min), -1
        return self._arrays.free_min.reshape(rows), self._arrays.whole.reshape(rows)

    def _lost_by_sets(self, items: Items, landing: Slots, selection: Selection) -> Floats | None:
        """Return the room that sets of zones lose, on nodes whose kubelets admit pods in several
        zones.
        """
        if self._plan.rule.policy != RESTRICTED or not self._strategy.ranks_by_demand:
            return None
        free = select(self._arrays.free_min, selection)
        whole = select(self._arrays.whole, selection)
        zones = np.maximum(landing, 0) // self._arrays.capacity
        return self._strategy.lost_by_sets(items, self._arrays.rows, zones, free, whole)

    def _part_scores(self, items: Items, fits: Bools, selection: Selection) -> Ints:
        if not self._zones:
            return np.zeros(fits.shape[1], dtype=np.int64)
        rows = [self._arrays.rows[name] for name, _ in items]
        free_min = self._arrays.free_min[rows, : self._zones][:, :, selection]
        whole = self._arrays.whole[rows, : self._zones][:, :, selection]
        return self._strategy.part_on_all(items, free_min, whole, fits)

    def _highest_scores(self, selection: Selection, size: int) -> Ints:
        """Return upper bounds of the scores: those of each part alone, with all that may be
        free.
        """
        highest = np.full(size, HIGHEST, dtype=np.int64)
        if not self._strategy.is_bounded:
            return highest
        limits = self._arrays.limits[selection]
        for items, _ in self._plan.part_kinds:
            requested = tuple(
                (name, amount) for name, amount in items if amount > 0 and name in self._arrays.rows
            )
            if requested:
                free = np.stack(
                    [self._at_best(name, amount, selection) for name, amount in requested]
                )
                highest = np.minimum(highest, self._strategy.highest(requested, free, limits))
        return highest

    def _at_best(self, name: str, amount: int, selection: Selection) -> Ints:
        """Return the most that may be free by zone for the strategy: it ignores groups of zones
        that hold memory, and resources that no zone of the node lists.
        """
        row = self._arrays.rows[name]
        free = self._arrays.free_min[row, : self._zones][:, selection]
        if is_memory(name):
            free_max = self._arrays.free_max[row, : self._zones][:, selection]
            free = np.where(free > 0, free, free_max)
        size = self._arrays.whole[row, : self._zones][:, selection]
        return np.where(size.any(axis=0), free, amount)

    def _whole_scores(self, selection: Selection, size: int) -> Ints:
        """Return the scores of the nodes as one zone each; upper bounds if the zones in use
        count.
        """
        if self._plan.counted_zones:
            return np.full(size, HIGHEST, dtype=np.int64)
        if self._plan.mode == "unaligned" and not self._strategy.at_once:
            return self._highest_scores(selection, size)
        rows = [self._arrays.free_rows.get(name, -1) for name in self._asked]
        if not rows or min(rows) < 0:
            return np.zeros(size, dtype=np.int64)
        names = tuple(self._asked)
        if self._strategy.ranks_by_demand:
            names, rows = tuple(self._arrays.free_rows), list(self._arrays.free_rows.values())
        free, offered = (
            select(array, selection).take(rows, axis=0)
            for array in (self._arrays.free, self._arrays.offered)
        )
        if not self._strategy.at_once:
            items = tuple(self._asked.items())
            return self._strategy.highest(items, free[:, None], np.ones(size, dtype=np.int64))
        if self._strategy.by_landing:
            return self._strategy.whole_by_landing(self._asked, names, free, offered)
        return self._strategy.whole_on_all(self._asked, free, offered)


def _bulk_from(strategy: StrategyRunner) -> int | None:
    if strategy.at_once:
        return BULK_FROM_BY_DEMAND if strategy.ranks_by_demand else BULK_FROM
    return BULK_FROM_BY_SETS if strategy.is_bounded else None
