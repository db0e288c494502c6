"""Parts that no zone holds even when it is empty, under restricted, on many nodes: which have
enough in as few zones as it takes?

Restricted admits no hint that is not preferred, and of a resource so many zones are preferred as
would do if they were empty (kubelet 1.36). What `feasibility.bounds` says of one node. Must not
know scores.

What each zone is worth as it stands, whatever is asked of it: half of a score under strategies
that look at room.

Kept for sweeps over many nodes, each of which would compute it anew; brought up to date when one
begins, for the nodes that changed since. Must not know requests.

All nodes of one profile at once: which could take a shape, with what score, and which surely do.

A vectorised necessary condition, and a sufficient one where it is cheap: what lies between is left
to the exact judgement of one node. Single parts are decided here entirely.

Aligned plans under strategies that look at nothing but the zone where a part lands: some nodes,
or all, at once.

What `sweep` says of such plans, with as few passes over the columns as it takes: a few nodes that
changed are the ordinary case of a decision. Must not know what a strategy looks at.

A shape on the nodes of one profile: its plan, and the sweep that answers for them, each made
once.

Must not know the table of verdicts, nor which nodes changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.predicates import ConstraintColumns
from services.scheduler.filter.topology.fit import blocked, plan_for
from services.scheduler.score.runner import HIGHEST, Scorer, StrategyRunner, ZoneStrategy
from services.scheduler.select.verdict_cache import RULED_OUT
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import (
    Bools,
    Floats,
    Ints,
    NodeArrays,
    Selection,
    Slots,
)
from services.scheduler.snapshot.node_info import NodeInfo, Profile
from services.scheduler.snapshot.pod_class import Items, Part, Plan, PlanOnNodes, PodClass
from services.scheduler.snapshot.zone_sizes import several_kinds_of_memory
from shared.domain import policies
from shared.domain.demand import most
from shared.domain.resources import Amounts, is_device, is_memory, memory_of

EXACT = 2.0**53
"""Sums of sizes below it are exact in floats."""


def in_as_few_zones(
    columns: NodeArrays, plan: Plan, wide: Bools, selection: Selection, zones: int
) -> Bools:
    """Of the nodes where the plan is `wide`, those that may have enough."""
    enough, overstated = wide.copy(), _overstated(columns, selection, len(wide))
    for part in plan.parts if zones and wide.any() else ():
        several = several_kinds_of_memory(part.amounts)
        for name, amount in part.amounts.items():
            row = columns.rows.get(name)
            if row is not None and name not in plan.placeless:
                free = _freest_first(columns.free_max[row, :zones][:, selection])
                size = _freest_first(columns.whole[row, :zones][:, selection])
                enough &= _within(free, size, amount, overstated | (name in several))
    return enough


def _overstated(columns: NodeArrays, selection: Selection, count: int) -> Bools:
    """Nodes of which it is not known how large their zones are: all may be taken there."""
    if not columns.overstated:
        return np.zeros(count, dtype=np.bool_)
    slots = np.arange(selection.stop) if isinstance(selection, slice) else selection
    return np.isin(slots, list(columns.overstated))


def _within(
    free: npt.NDArray[np.int64], size: npt.NDArray[np.float64], amount: int, all_of_them: Bools
) -> Bools:
    """Of several kinds of memory the kubelet wants one number of zones, which may be more: all may
    be taken.
    """
    last = len(free) - 1
    would_do = (size >= amount) & (size[last] < EXACT) & ~all_of_them
    at = np.where(would_do.any(axis=0), would_do.argmax(axis=0), last)
    return np.asarray(free[at, np.arange(free.shape[1])] >= amount)


def _freest_first(zones: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[n, node]: what the n + 1 largest have together."""
    return np.cumsum(-np.sort(-np.maximum(zones, 0), axis=0), axis=0)


class Standing:
    """Columns [zone, node] of one strategy."""

    def __init__(self, columns: NodeArrays, strategy: StrategyRunner) -> None:
        self._columns, self._strategy = columns, strategy
        self._values: Floats = np.zeros((0, 0))
        self._made_for: object = None

    def of(self, at: Slots) -> Floats | None:
        """Of zones by their place in columns [zone * capacity + node]; None where the strategy has
        nothing to keep.
        """
        if not self._strategy.ranks_by_demand:
            return None
        columns, changed = self._columns, self._columns.take_changed()
        made_for = columns.shape, columns.capacity, self._strategy.generation
        if made_for != self._made_for:
            self._made_for, changed = made_for, np.arange(columns.size)
            self._values = np.zeros((columns.free_min.shape[1], columns.capacity))
        if len(changed):
            self._write(changed)
        found: Floats = self._values.reshape(-1).take(at)
        return found

    def _write(self, slots: Slots) -> None:
        rows, zones = self._columns.free_min.shape[:2]
        free = self._columns.free_min.take(slots, axis=2).reshape(rows, -1)
        whole = self._columns.whole.take(slots, axis=2).reshape(rows, -1)
        self._values[:, slots] = self._strategy.standing(free, whole, self._columns.rows).reshape(
            zones, -1
        )


Scores = npt.NDArray[np.int16]

NOT = -1


class Sweep:
    """`scores` (-1: ruled out) and `sure` (no exact judgement needed) for the nodes of `selection`."""

    def __init__(
        self, columns: NodeArrays, selection: Selection, count: int, zones: int, strategy: Scorer
    ) -> None:
        self._columns, self._selection, self._count = columns, selection, count
        self._zones, self._strategy = zones, strategy
        self._gathered: dict[str, npt.NDArray[np.int64]] = {}
        self._fit_cache: dict[tuple[tuple[str, int], ...], Bools | None] = {}
        self._points_cache: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        self._singly = (
            strategy if isinstance(strategy, StrategyRunner) and not strategy.at_once else None
        )
        """A strategy that scores node by node: here are upper bounds of its scores."""

    def run(self, pod_class: PodClass, plan: Plan, unbarred: Bools) -> tuple[Scores, Bools]:
        """Judge the shape; scores and certainty in the selection's order. `unbarred` is where its
        constraints let it go.
        """
        if plan.mode == "aligned":
            candidates, sure, scores = self._aligned(plan)
        elif plan.mode == "unaligned":
            candidates, sure, scores = (
                *self._unaligned(plan),
                self._whole(pod_class) if self._singly is None else self._most(plan),
            )
        else:
            candidates, sure, scores = self._every(), self._every(), self._whole(pod_class)
        if self._singly is not None:
            sure[:] = False
        if plan.one_by_one:
            candidates, sure = self._every(), ~self._every()
        candidates &= unbarred & self._fits_node(pod_class.request)
        return np.where(candidates, scores, NOT).astype(np.int16), sure | ~candidates

    # -- zones
    # -----------------------------------------------------------------------------------------------------

    def _aligned(self, plan: Plan) -> tuple[Bools, Bools, npt.NDArray[Any]]:
        necessary, sure = self._every(), self._every()
        scores = self._mean_scores(plan) if self._singly is None else self._most(plan)
        before: Amounts = {}
        for at, part in enumerate(plan.parts):
            fit = self._fit(part.amounts)
            if fit is None:
                necessary[:] = False
                continue
            somewhere = fit.any(axis=0)
            necessary &= somewhere
            if at:
                sure &= self._in_spite_of(part, fit, at, before)
            before = {
                name: before.get(name, 0) + part.amounts.get(name, 0)
                for name in {*before, *part.amounts}
            }
        if not plan.together:
            sure[:] = False
        sure &= necessary
        candidates = self._with_upper(plan, necessary)
        if plan.rule.policy == policies.RESTRICTED:
            wide = ~self._fits_one_zone(plan)
            candidates, sure = (
                candidates
                | in_as_few_zones(self._columns, plan, wide, self._selection, self._zones),
                sure & ~wide,
            )
            scores = np.where(wide, 0, scores) if self._singly is None else scores
        return candidates, sure, scores

    def _in_spite_of(self, part: Part, fit: Bools, at: int, before: Amounts) -> Bools:
        """One zone holds this part and all before it, or more zones fit it than there are parts
        before it.
        """
        together = self._fit(
            {name: amount + before.get(name, 0) for name, amount in part.amounts.items()}
        )
        enough: Bools = np.count_nonzero(fit, axis=0) > at
        return enough if together is None else enough | together.any(axis=0)

    def _mean_scores(self, plan: Plan) -> npt.NDArray[Any]:
        """The mean over parts of each part's score, rounded down."""
        total = np.zeros(self._count)
        for items, count in plan.kinds:
            fit = self._fit(dict(items))
            if fit is not None and len(fit):
                total += count * self._part_scores(items, fit)
        return np.floor(total / len(plan.parts))

    def _most(self, plan: Plan) -> npt.NDArray[Any]:
        """An upper bound of the score by a strategy that is asked node by node: of every part
        alone, on all that may be free.
        """
        most, limits = np.full(self._count, HIGHEST), self._columns.limits[self._selection]
        if self._singly is None or not self._singly.bounded:
            return most
        for items, _ in plan.kinds:
            known = tuple(
                (name, amount)
                for name, amount in items
                if amount > 0 and name in self._columns.rows
            )
            if known:
                most = np.minimum(
                    most,
                    self._singly.most(
                        known, np.stack([self._at_best(*item) for item in known]), limits
                    ),
                )
        return most

    def _at_best(self, name: str, amount: int) -> npt.NDArray[np.int64]:
        """What may be free by zone, as far as the strategy looks: it knows no groups of zones that
        hold memory, and passes over what no zone of the node lists."""
        free, size = self._lower(name), self._size(name)
        if is_memory(name):
            free_max = self._columns.free_max[self._columns.rows[name], : self._zones][
                :, self._selection
            ]
            free = np.where(free > 0, free, free_max)
        return np.where(size.any(axis=0), free, amount)

    def _part_scores(self, items: Items, fit: Bools) -> npt.NDArray[Any]:
        if isinstance(self._strategy, StrategyRunner):
            named = self._strategy.beside(items, self._columns.rows)
            free_min, whole = (
                [self._lower(name) for name, _ in named],
                [self._size(name) for name, _ in named],
            )
            return self._strategy.column(named, np.stack(free_min), np.stack(whole), fit)
        scores = self._strategy.mean(items, [self._points(self._strategy, *item) for item in items])
        np.copyto(scores, 0.0, where=~fit)
        best: npt.NDArray[Any] = scores.max(axis=0)
        return best

    def _points(self, strategy: ZoneStrategy, name: str, amount: int) -> npt.NDArray[np.float64]:
        found = self._points_cache.get((name, amount))
        if found is None:
            found = self._points_cache[name, amount] = strategy.points(
                amount, self._lower(name), self._size(name)
            )
        return found

    def _with_upper(self, plan: Plan, necessary: Bools) -> Bools:
        """Nodes that the upper bound does not rule out either: the exact judgement may find them
        certain.
        """
        doubtful = np.flatnonzero(~necessary)
        if not len(doubtful):
            return necessary
        chosen = doubtful if isinstance(self._selection, slice) else self._selection[doubtful]
        possible = np.ones(len(doubtful), dtype=np.bool_)
        for part in plan.parts:
            fit = np.ones((self._zones, len(doubtful)), dtype=np.bool_)
            for name, amount in part.amounts.items():
                row = self._columns.rows.get(name)
                if row is None:
                    return necessary
                fit &= self._columns.free_max[row, : self._zones][:, chosen] >= amount
            possible &= fit.any(axis=0)
        candidates = necessary.copy()
        candidates[doubtful] = possible
        return candidates

    def _fits_one_zone(self, plan: Plan) -> Bools:
        fitting = self._every()
        for part in plan.parts:
            for name, amount in part.amounts.items():
                row = self._columns.rows.get(name)
                fitting &= (
                    self._columns.largest[row, self._selection] >= amount
                    if row is not None
                    else False
                )
            memory = [
                name for name in several_kinds_of_memory(part.amounts) if name in self._columns.rows
            ]
            if memory and self._columns.uneven:
                fitting &= np.all(
                    [self._size(name) >= part.amounts[name] for name in memory], axis=0
                ).any(axis=0)
        return fitting

    def _fit(self, amounts: Amounts) -> Bools | None:
        key = tuple(amounts.items())
        if key in self._fit_cache:
            return self._fit_cache[key]
        fit: Bools | None = None
        for name, amount in key:
            if name not in self._columns.rows:
                fit = None
                break
            enough = self._lower(name) >= amount
            fit = enough if fit is None else np.logical_and(fit, enough, out=fit)
        self._fit_cache[key] = fit
        return fit

    def _lower(self, name: str) -> npt.NDArray[np.int64]:
        zones = self._gathered.get(name)
        if zones is None:
            zones = self._columns.free_min[self._columns.rows[name], : self._zones][
                :, self._selection
            ]
            self._gathered[name] = zones
        return zones

    def _size(self, name: str) -> npt.NDArray[np.float64]:
        return self._columns.whole[self._columns.rows[name], : self._zones][:, self._selection]

    # -- unaligned
    # --------------------------------------------------------------------------------------------------

    def _unaligned(self, plan: Plan) -> tuple[Bools, Bools]:
        held = most(plan.demand)
        memory = memory_of(held)
        rest = {name: amount for name, amount in held.items() if name not in memory}
        candidates, sure = self._every(), self._every()
        for part in plan.parts:
            bounded = {
                name: amount for name, amount in part.amounts.items() if name not in plan.placeless
            }
            candidates &= self._total(self._columns.free_max, bounded)
        for name, amount in rest.items():
            row = self._columns.rows.get(name)
            sure &= (
                self._columns.totals[row, self._selection] >= amount if row is not None else False
            )
        if memory:
            fit = self._fit(memory)
            if plan.rule.policy == policies.BEST_EFFORT:
                plain = self._zones <= 2 and not any(is_device(name) for name in rest)
                sure &= fit.all(axis=0) if plain and fit is not None else False
            else:
                sure &= fit.any(axis=0) if fit is not None else False
        if plan.whole_cores or plan.inits:
            sure[:] = False
        return candidates, sure

    def _total(self, bound: npt.NDArray[np.int64], amounts: Amounts) -> Bools:
        enough = self._every()
        for name, amount in amounts.items():
            row = self._columns.rows.get(name)
            enough &= (
                bound[row][:, self._selection].sum(axis=0) >= amount if row is not None else False
            )
        return enough

    # -- the node as a whole
    # -----------------------------------------------------------------------------------------

    def _fits_node(self, request: Amounts) -> Bools:
        enough = self._every()
        for name, amount in request.items():
            row = self._columns.free_rows.get(name)
            enough &= (
                self._columns.free[row, self._selection] >= amount if row is not None else False
            )
        return enough

    def _whole(self, pod_class: PodClass) -> npt.NDArray[Any]:
        asked = pod_class.asked
        rows = [self._columns.free_rows.get(name) for name in asked]
        if not asked or None in rows:
            return np.zeros(self._count)
        free, whole = (
            [each[row, self._selection] for row in rows]
            for each in (self._columns.free, self._columns.offered)
        )
        if self._singly is not None:
            return self._singly.most(
                tuple(asked.items()), np.stack(free)[:, None], np.ones(self._count, dtype=np.int64)
            )
        if isinstance(self._strategy, StrategyRunner):
            return self._strategy.whole_column(asked, np.stack(free), np.stack(whole))
        scores = self._strategy.many(tuple(asked.items()), free, whole)
        return np.nan_to_num(scores, nan=0.0, posinf=0.0, neginf=0.0).clip(0, 100)

    def _every(self) -> Bools:
        return np.ones(self._count, dtype=np.bool_)


STANDING_FROM = 256
"""Nodes from which it is cheaper to keep what their zones are worth as they stand than to compute it anew."""


class LandingSweep:
    """One plan of a shape, made ready once: as long as the columns have these rows and zones."""

    def __init__(
        self,
        columns: NodeArrays,
        standing: Standing,
        plan: Plan,
        request: Amounts,
        zones: int,
        strategy: StrategyRunner,
    ) -> None:
        self._columns, self._standing, self._strategy = columns, standing, strategy
        self._plan, self._zones = plan, zones
        self._kinds = [
            (items, count)
            for items, count in plan.kinds
            if items and all(name in columns.rows for name, _ in items)
        ]
        self._known = len(self._kinds) == len(plan.kinds)
        self._request = _bound(request, columns.free_rows)
        most: Amounts = {}
        for part in plan.parts:
            most |= {name: max(held, most.get(name, 0)) for name, held in part.amounts.items()}
        self._most = _bound(most, columns.rows) if plan.rule.policy == policies.RESTRICTED else None
        memories = [
            _bound(found, columns.rows)
            for part in plan.parts
            if (found := several_kinds_of_memory(part.amounts))
        ]
        self._memories = [bound for bound in memories if bound is not None]
        self._running, self._side_by_side = (
            plan.running,
            _bound(plan.least, columns.rows) if plan.least else None,
        )
        self._together = _togethers(plan, columns.rows) if plan.together and self._known else []
        self._tells = bool(plan.together) and self._known and not plan.one_by_one
        least = [_least_rows(dict(items), columns.rows) for items, _ in self._kinds] + [
            least for _, _, least in self._together
        ]
        self._least_rows = (
            np.stack(least) if least else np.zeros((0, len(columns.rows), 1, 1), dtype=np.int64)
        )

    def run(self, selection: Selection, size: int, unbarred: Bools) -> tuple[Ints, Bools]:
        """Scores (-1: ruled out) and certainty (no exact judgement needed) of so many selected
        nodes. `unbarred` is where the shape's constraints let it go."""
        taken = _of(self._columns.free_min, selection)[:, : self._zones]
        fits = np.logical_and.reduce(taken >= self._least_rows, axis=1)
        somewhere = np.logical_or.reduce(fits, axis=1)
        scores, necessary = self._scored(fits, somewhere, selection, size)
        sure = self._all_find_zones(fits, somewhere, necessary)
        candidates = (
            necessary
            if np.logical_and.reduce(necessary)
            else necessary | (self._known & self._fits_upper(selection))
        )
        if self._side_by_side is not None and np.logical_and(candidates, ~sure).any():
            candidates &= sure | self._room_for_as_many(*self._side_by_side, selection)
        if self._most is not None:
            wide = ~_enough(self._most, self._columns.largest, selection, size)
            for rows, least in self._memories if self._columns.uneven else ():
                wide |= ~self._one_holds(rows, least, selection)
            few = in_as_few_zones(self._columns, self._plan, wide, selection, self._zones)
            candidates, sure, scores = candidates | few, sure & ~wide, np.where(wide, 0, scores)
        if self._plan.one_by_one:
            candidates = np.ones_like(unbarred)
        candidates = (
            candidates & unbarred & _enough(self._request, self._columns.free, selection, size)
        )
        ruled_out = ~candidates
        scores[ruled_out] = NOT
        return scores, sure | ruled_out

    def _scored(
        self, fits: Bools, somewhere: Bools, selection: Selection, size: int
    ) -> tuple[Ints, Bools]:
        """The mean of the parts' scores, 0 for one that fits no zone alone, and where each fits
        one.
        """
        total, necessary = np.zeros(size, dtype=np.int64), np.full(size, self._known)
        slots = np.arange(selection.stop) if isinstance(selection, slice) else selection
        for kind, (items, count) in enumerate(self._kinds):
            at = fits[kind].argmax(axis=0) * self._columns.capacity
            at += slots
            here = somewhere[kind]
            if np.logical_and.reduce(here):
                found = self._landed(items, at)
            else:
                found = np.zeros(size, dtype=np.int64)
                found[here] = self._landed(items, at[here])
                necessary &= here
            if len(self._kinds) == 1:
                return found, necessary
            total += count * found
        return total // len(self._plan.parts), necessary

    def _landed(self, items: Items, at: Slots) -> Ints:
        free_min, whole = self._columns.free_min, self._columns.whole
        free, sizes = (
            free_min.reshape(len(free_min), -1).take(at, axis=1),
            whole.reshape(len(whole), -1).take(at, axis=1),
        )
        standing = self._standing.of(at) if len(at) >= STANDING_FROM else None
        return self._strategy.landed(items, self._columns.rows).scores(free, sizes, standing)

    def _all_find_zones(self, fits: Bools, somewhere: Bools, necessary: Bools) -> Bools:
        """Each part finds a zone whatever zones those before it took: enough zones fit it, or one
        holds it and all of them.
        """
        found = necessary & self._tells
        for at, (before, kind, _) in enumerate(self._together, start=len(self._kinds)):
            found &= somewhere[at] | (np.add.reduce(fits[kind], axis=0, dtype=np.intp) > before)
        return found

    def _room_for_as_many(self, rows: Slots, least: Ints, selection: Selection) -> Bools:
        """As `bounds.possible` has it, by the upper bound."""
        free_max = _of(self._columns.free_max, selection).take(rows, axis=0)[:, : self._zones]
        room = np.minimum.reduce(free_max // least[:, :, None], axis=0)
        found: Bools = np.maximum(room, 0).sum(axis=0) >= self._running
        return found

    def _one_holds(self, rows: Slots, least: Ints, selection: Selection) -> Bools:
        """One zone holds all of it when it is empty."""
        whole = self._columns.whole[rows, : self._zones][:, :, selection]
        found: Bools = np.logical_or.reduce(
            np.logical_and.reduce(whole >= least[:, :, None], axis=0), axis=0
        )
        return found

    def _fits_upper(self, selection: Selection) -> Bools:
        """Nodes that the upper bound does not rule out: the exact judgement may find them certain."""
        free_max = _of(self._columns.free_max, selection)[:, : self._zones]
        fits = np.logical_and.reduce(free_max >= self._least_rows[: len(self._kinds)], axis=1)
        found: Bools = np.logical_and.reduce(np.logical_or.reduce(fits, axis=1), axis=0)
        return found


Bound = tuple[npt.NDArray[np.intp], Ints] | None
"""Rows and the least that each must have [row, 1]; None where there is no such row."""


def _bound(amounts: Amounts, rows: Mapping[str, int]) -> Bound:
    if any(name not in rows for name in amounts):
        return None
    at, least = [rows[name] for name in amounts], [[held] for held in amounts.values()]
    return np.array(at, dtype=np.intp), np.array(least, dtype=np.int64).reshape(len(at), 1)


def _of(array: Ints, selection: Selection) -> Ints:
    """The selected nodes, which are the last axis; a copy only where some are chosen."""
    return array[..., selection] if isinstance(selection, slice) else array.take(selection, axis=-1)


def _enough(bound: Bound, held: Ints, selection: Selection, size: int) -> Bools:
    if bound is None:
        return np.zeros(size, dtype=np.bool_)
    enough: Bools = np.logical_and.reduce(
        _of(held, selection).take(bound[0], axis=0) >= bound[1], axis=0
    )
    return enough


def _togethers(plan: Plan, rows: Mapping[str, int]) -> list[tuple[int, int, Ints]]:
    """For each part but the first: how many come before it, its kind, and the least that a zone
    must have by row for it and them. Of parts that are all alike the last says it for all."""
    kinds = {items: number for number, (items, _) in enumerate(plan.kinds)}
    found: list[tuple[int, int, Ints]] = []
    before = Counter[str]()
    for at, part in enumerate(plan.parts):
        before.update(part.amounts)
        if at and (len(plan.kinds) > 1 or at == len(plan.parts) - 1):
            together = {name: before[name] for name in part.amounts}
            found.append((at, kinds[tuple(part.amounts.items())], _least_rows(together, rows)))
    return found


def _least_rows(amounts: Amounts, rows: Mapping[str, int]) -> Ints:
    """What a zone must have at least [resource, 1, 1]."""
    least: Ints = np.array([amounts.get(name, -(1 << 63)) for name in rows], dtype=np.int64)[
        :, None, None
    ]
    return least


Nodes = Sequence[NodeInfo | None]
Answers = tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]
"""Scores, and whether each is sure."""

RANKS_FROM = 24
"""Nodes that changed since a shape was asked for from which a sweep that leaves none in doubt is cheaper than to judge each."""
RANKS_FROM_BY_WANTS = 3
"""The same where each node is scored by every want."""
RANKS_FROM_BY_SETS = 1
"""The same where sets of zones are compared: a sweep only tells what scores are at most, and few are then looked at."""


class Selected(NamedTuple):
    """Nodes on which a shape has one plan, and how many they are."""

    planned: PlanOnNodes
    selection: Selection
    size: int


class Sweeping:
    """Reads the cluster's columns, which are up to date; keeps what it made on the shape. `ranks`:
    a sweep knows the scores of nodes that changed, so that they need not be judged one by one to be
    ranked; `singly`: nodes are scored one by one, and a sweep knows at most a bound. `ranks_from`:
    changed nodes from which a sweep is cheaper than to rank each; None where neither is worth it.
    """

    def __init__(
        self,
        columns: NodeArrays,
        constraints: ConstraintColumns,
        config: CycleConfig,
        strategy: Scorer,
    ) -> None:
        self._columns, self._constraints, self._config, self._strategy = (
            columns,
            constraints,
            config,
            strategy,
        )
        registered = strategy if isinstance(strategy, StrategyRunner) else None
        self._standing = Standing(columns, registered) if registered is not None else None
        self._by_landing = registered is not None and registered.by_landing
        self.ranks = registered is not None and registered.at_once
        self.singly = registered is not None and not registered.at_once
        self.ranks_from = _ranks_from(registered) if registered is not None else None

    def plan(self, pod_class: PodClass, profile: Profile, number: int) -> PlanOnNodes:
        """The shape's plan on nodes of the profile of this number."""
        found = pod_class.planned.get(number)
        if found is None:
            plan = plan_for(pod_class, profile, self._config)
            barred = blocked(pod_class, profile, plan, self._config) is not None
            alike = (
                each
                for each in pod_class.planned.values()
                if each.plan == plan and each.barred == barred
            )
            found = pod_class.planned[number] = next(alike, None) or PlanOnNodes(plan, barred)
            found.widen(len(profile[4]))
        return found

    def parted(
        self, pod_class: PodClass, only: Slots | None
    ) -> Iterator[tuple[Selection, Selected]]:
        """All nodes, or those of the slots in `only`, none of which is empty, parted by the shape's
        plan on them: where in `only` they are, and themselves."""
        columns = self._columns
        profiles = columns.profile[: columns.size] if only is None else columns.profile.take(only)
        numbers = columns.in_use() if only is None else dict.fromkeys(profiles.tolist())
        plans: dict[PlanOnNodes, list[int]] = {}
        for number in numbers:
            plans.setdefault(self.plan(pod_class, columns.profiles[number], number), []).append(
                number
            )
        if len(plans) == 1 and (only is not None or columns.filled == columns.size):
            yield (
                slice(None),
                Selected(
                    next(iter(plans)),
                    slice(0, columns.size) if only is None else only,
                    len(profiles),
                ),
            )
            return
        for planned, members in plans.items():
            among = np.zeros(
                len(columns.profiles) + 1, dtype=np.bool_
            )  # the last is that of empty slots
            among[members] = True
            here = np.flatnonzero(among.take(profiles))
            yield here, Selected(planned, here if only is None else only[here], len(here))

    def run(self, pod_class: PodClass, selected: Selected, nodes: Nodes) -> Answers:
        """Scores and certainty of the selected nodes, in their order."""
        planned, selection, size = selected
        if planned.barred:
            return np.full(size, RULED_OUT), np.ones(size, dtype=np.bool_)
        unbarred = self._constraints.allowed(pod_class.pod.constraints, nodes, selection)
        if planned.plan.mode == "aligned" and self._by_landing:
            return self._landing_sweep(pod_class, planned).run(selection, size, unbarred)
        return Sweep(self._columns, selection, size, planned.zones, self._strategy).run(
            pod_class, planned.plan, unbarred
        )

    def _landing_sweep(self, pod_class: PodClass, planned: PlanOnNodes) -> LandingSweep:
        """Kept while the columns have these rows and zones."""
        assert isinstance(self._strategy, StrategyRunner)
        assert self._standing is not None
        made_for = self._columns.shape, planned.zones
        if planned.sweep is None or planned.made_for != made_for:
            planned.made_for = made_for
            given = planned.plan, pod_class.request, planned.zones, self._strategy
            planned.sweep = LandingSweep(self._columns, self._standing, *given)
        found: LandingSweep = planned.sweep
        return found


def _ranks_from(strategy: StrategyRunner) -> int | None:
    if strategy.at_once:
        return RANKS_FROM_BY_WANTS if strategy.ranks_by_demand else RANKS_FROM
    return RANKS_FROM_BY_SETS if strategy.bounded else None
