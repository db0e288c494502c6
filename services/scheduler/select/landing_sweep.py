"""Aligned plans under strategies that look at nothing but the zone where a part lands: some nodes,
or all, at once.

What `sweep` says of such plans, with as few passes over the columns as it takes: a few nodes that
changed are the ordinary case of a decision. Must not know what a strategy looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from services.scheduler.score.runner import Registered
from services.scheduler.select.few_zones import in_as_few_zones
from services.scheduler.select.standing import Standing
from services.scheduler.snapshot.columnar import Bools, Ints, Selection, Slots
from services.scheduler.snapshot.node_arrays import Columns
from services.scheduler.snapshot.pod_class import Items, Plan
from services.scheduler.snapshot.zone_sizes import several_kinds_of_memory
from shared.domain import policies
from shared.domain.resources import Amounts

NOT = -1
STANDING_FROM = 256
"""Nodes from which it is cheaper to keep what their zones are worth as they stand than to compute it anew."""


class LandingSweep:
    """One plan of a shape, made ready once: as long as the columns have these rows and zones."""

    def __init__(
        self,
        columns: Columns,
        standing: Standing,
        plan: Plan,
        request: Amounts,
        zones: int,
        strategy: Registered,
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
        least = [_least(dict(items), columns.rows) for items, _ in self._kinds] + [
            least for _, _, least in self._together
        ]
        self._least = (
            np.stack(least) if least else np.zeros((0, len(columns.rows), 1, 1), dtype=np.int64)
        )

    def run(self, selection: Selection, size: int, unbarred: Bools) -> tuple[Ints, Bools]:
        """Scores (-1: ruled out) and certainty (no exact judgement needed) of so many selected
        nodes. `unbarred` is where the shape's constraints let it go."""
        taken = _of(self._columns.free_min, selection)[:, : self._zones]
        fits = np.logical_and.reduce(taken >= self._least, axis=1)
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
        fits = np.logical_and.reduce(free_max >= self._least[: len(self._kinds)], axis=1)
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
            found.append((at, kinds[tuple(part.amounts.items())], _least(together, rows)))
    return found


def _least(amounts: Amounts, rows: Mapping[str, int]) -> Ints:
    """What a zone must have at least [resource, 1, 1]."""
    least: Ints = np.array([amounts.get(name, -(1 << 63)) for name in rows], dtype=np.int64)[
        :, None, None
    ]
    return least
