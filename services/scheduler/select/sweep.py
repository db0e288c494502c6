"""All nodes of one profile at once: which could take a shape, with what score, and which surely do.

A vectorised necessary condition, and a sufficient one where it is cheap: what lies between is left
to the exact judgement of one node. Single parts are decided here entirely.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from services.scheduler.score.runner import HIGHEST, Registered
from services.scheduler.score.scores import Scorer, ZoneStrategy
from services.scheduler.select.few_zones import in_as_few_zones
from services.scheduler.snapshot.columnar import Bools, Selection
from services.scheduler.snapshot.node_arrays import Columns
from services.scheduler.snapshot.pod_class import Items, Part, Plan, Shape
from services.scheduler.snapshot.zone_sizes import several_kinds_of_memory
from shared.domain import policies
from shared.domain.demand import most
from shared.domain.resources import Amounts, is_device, is_memory, memory_of

Scores = npt.NDArray[np.int16]

NOT = -1


class Sweep:
    """`scores` (-1: ruled out) and `sure` (no exact judgement needed) for the nodes of `selection`."""

    def __init__(
        self, columns: Columns, selection: Selection, count: int, zones: int, strategy: Scorer
    ) -> None:
        self._columns, self._selection, self._count = columns, selection, count
        self._zones, self._strategy = zones, strategy
        self._gathered: dict[str, npt.NDArray[np.int64]] = {}
        self._fit_cache: dict[tuple[tuple[str, int], ...], Bools | None] = {}
        self._points_cache: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        self._singly = (
            strategy if isinstance(strategy, Registered) and not strategy.at_once else None
        )
        """A strategy that scores node by node: here are upper bounds of its scores."""

    def run(self, shape: Shape, plan: Plan, unbarred: Bools) -> tuple[Scores, Bools]:
        """Judge the shape; scores and certainty in the selection's order. `unbarred` is where its
        constraints let it go.
        """
        if plan.mode == "aligned":
            candidates, sure, scores = self._aligned(plan)
        elif plan.mode == "unaligned":
            candidates, sure, scores = (
                *self._unaligned(plan),
                self._whole(shape) if self._singly is None else self._most(plan),
            )
        else:
            candidates, sure, scores = self._every(), self._every(), self._whole(shape)
        if self._singly is not None:
            sure[:] = False
        if plan.one_by_one:
            candidates, sure = self._every(), ~self._every()
        candidates &= unbarred & self._fits_node(shape.request)
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
        if isinstance(self._strategy, Registered):
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

    def _whole(self, shape: Shape) -> npt.NDArray[Any]:
        asked = shape.asked
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
        if isinstance(self._strategy, Registered):
            return self._strategy.whole_column(asked, np.stack(free), np.stack(whole))
        scores = self._strategy.many(tuple(asked.items()), free, whole)
        return np.nan_to_num(scores, nan=0.0, posinf=0.0, neginf=0.0).clip(0, 100)

    def _every(self) -> Bools:
        return np.ones(self._count, dtype=np.bool_)
