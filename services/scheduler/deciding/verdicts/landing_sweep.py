"""Aligned plans under strategies that look at nothing but the zone where a part lands: some nodes, or all, at once.

What `sweep` says of such plans, with as few passes over the columns as it takes: a few nodes that changed are the ordinary case
of a decision. Must not know what a strategy looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.deciding import policy
from services.scheduler.deciding.registered import Landing, Registered
from services.scheduler.deciding.shape import Plan
from services.scheduler.deciding.verdicts.columns import Columns, Slots
from shared.domain.resources import Amounts

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

NOT = -1


class LandingSweep:
    """One shape on nodes of one profile, made ready once: as long as the columns have these rows and the strategy its wants."""

    def __init__(self, columns: Columns, plan: Plan, request: Amounts, zones: int, strategy: Registered) -> None:
        self._columns, self._plan, self._zones = columns, plan, zones
        landings = [(strategy.landing(items, columns.rows), count) for items, count in plan.kinds]
        self._landings = [(landing, count) for landing, count in landings if landing is not None]
        self._known = len(self._landings) == len(landings)
        self._request = _bound(request, columns.free_rows)
        most: Amounts = {}
        for part in plan.parts:
            most |= {name: max(held, most.get(name, 0)) for name, held in part.amounts.items()}
        self._most = _bound(most, columns.rows) if plan.rule.policy == policy.RESTRICTED else None
        self._together = _togethers(plan, columns.rows)

    def run(self, slots: Slots, gate: Bools) -> tuple[Ints, Bools]:
        """Scores (-1: ruled out) and certainty (no exact judgement needed), slot by slot. `gate` is where the shape's constraints
        let it go."""
        taken = self._columns.lower.take(slots, axis=2)[:, : self._zones]
        scores, necessary, fits = self._scored(taken, slots)
        candidates, sure = necessary, necessary & self._all_find_zones(taken, fits)
        if not necessary.all():
            candidates = necessary | (self._known & self._fits_upper(slots))
        if self._most is not None:
            wide = ~_enough(self._most, self._columns.largest, slots)
            candidates, sure, scores = candidates | wide, sure & ~wide, np.where(wide, 0, scores)
        if self._plan.one_by_one:
            candidates, sure = np.ones_like(gate), np.zeros_like(gate)
        candidates = candidates & gate
        candidates &= _enough(self._request, self._columns.free, slots)
        ruled_out = ~candidates
        scores[ruled_out] = NOT
        return scores, sure | ruled_out

    def _scored(self, taken: Ints, slots: Slots) -> tuple[Ints, Bools, list[Bools]]:
        """The mean of the parts' scores, 0 for one that fits no zone alone; where each fits one; and the zones of each kind."""
        columns, necessary, fits = self._columns, np.full(len(slots), self._known), []
        total: Ints | int = 0
        for landing, count in self._landings:
            fit = np.logical_and.reduce(taken >= landing.least, axis=0)
            fits.append(fit)
            somewhere = fit.any(axis=0)
            at = fit.argmax(axis=0) * columns.capacity
            at += slots
            if somewhere.all():
                found = self._landed(landing, at)
            else:
                found = np.zeros(len(slots), dtype=np.int64)
                found[somewhere] = self._landed(landing, at[somewhere])
                necessary &= somewhere
            total = total + count * found
        return np.zeros(len(slots), dtype=np.int64) + total // len(self._plan.parts), necessary, fits

    def _landed(self, landing: Landing, at: Slots) -> Ints:
        lower, whole = self._columns.lower, self._columns.whole
        free, sizes = lower.reshape(len(lower), -1).take(at, axis=1), whole.reshape(len(whole), -1).take(at, axis=1)
        return landing.landed.scores(free, sizes)

    def _all_find_zones(self, taken: Ints, fits: Sequence[Bools]) -> Bools:
        """Each part finds a zone whatever zones those before it took: enough zones fit it, or one holds it and all of them."""
        found = np.full(taken.shape[2], bool(self._plan.together) and self._known)
        for before, kind, least in self._together:
            beside = np.logical_and.reduce(taken >= least, axis=0).any(axis=0)
            found &= (np.count_nonzero(fits[kind], axis=0) > before) | beside
        return found

    def _fits_upper(self, slots: Slots) -> Bools:
        """Nodes that the upper bound does not rule out: the exact judgement may find them certain."""
        upper = self._columns.upper.take(slots, axis=2)[:, : self._zones]
        fits = [np.logical_and.reduce(upper >= landing.least, axis=0).any(axis=0) for landing, _ in self._landings]
        return np.logical_and.reduce(fits) if fits else np.zeros(len(slots), dtype=np.bool_)


Bound = tuple[npt.NDArray[np.intp], Ints] | None
"""Rows and the least that each must have [row, 1]; None where there is no such row."""


def _bound(amounts: Amounts, rows: Mapping[str, int]) -> Bound:
    if any(name not in rows for name in amounts):
        return None
    at, least = [rows[name] for name in amounts], [[held] for held in amounts.values()]
    return np.array(at, dtype=np.intp), np.array(least, dtype=np.int64).reshape(len(at), 1)


def _enough(bound: Bound, held: Ints, slots: Slots) -> Bools:
    if bound is None:
        return np.zeros(len(slots), dtype=np.bool_)
    enough: Bools = np.logical_and.reduce(held.take(slots, axis=1).take(bound[0], axis=0) >= bound[1], axis=0)
    return enough


def _togethers(plan: Plan, rows: Mapping[str, int]) -> list[tuple[int, int, Ints]]:
    """For each part but the first: how many come before it, its kind, and the least that a zone must have by row for it and them.
    Of parts that are all alike the last says it for all."""
    kinds = {items: number for number, (items, _) in enumerate(plan.kinds)}
    found: list[tuple[int, int, Ints]] = []
    before = Counter[str]()
    for at, part in enumerate(plan.parts):
        before.update(part.amounts)
        if at and (len(plan.kinds) > 1 or at == len(plan.parts) - 1):
            least = np.array([before[name] if name in part.amounts else -(1 << 63) for name in rows], dtype=np.int64)
            found.append((at, kinds[tuple(part.amounts.items())], least[:, None, None]))
    return found
