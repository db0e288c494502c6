"""Aligned plans under strategies that look at nothing but the zone where a part lands: some shapes at once, on some nodes or all.

What `sweep` says of such plans, with as few passes over the columns as it takes: one node that changed, for every shape that is
asked for in turn, is the ordinary case of a decision. Must not know what a strategy looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from services.scheduler.deciding import policy
from services.scheduler.deciding.registered import Registered
from services.scheduler.deciding.shape import Items, Plan
from services.scheduler.deciding.verdicts.columns import Columns, Slots
from shared.domain.resources import Amounts

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

NOT = -1
ANY, NEVER = -(1 << 63), (1 << 63) - 1
"""Bounds that every amount meets, and that none does."""


class LandingSweep:
    """Shapes, each a plan and a request, on nodes of one profile, made ready once: as long as the columns have these rows and the
    strategy its wants. What parts ask for alike is one kind."""

    def __init__(
        self, columns: Columns, plans: Sequence[Plan], requests: Sequence[Amounts], zones: int, strategy: Registered
    ) -> None:
        self._columns, self._zones = columns, zones
        kinds = {items: at for at, items in enumerate(dict.fromkeys(items for plan in plans for items, _ in plan.kinds))}
        later = _later_parts(plans, kinds)
        self._least = _least([*(dict(items) for items in kinds), *(part.least for part in later)], columns.rows)[..., None]
        self._before = np.array([[part.before] for part in later], dtype=np.int8)
        self._kinds = np.array([part.kind for part in later], dtype=np.intp)
        self._whose = np.array([[part.shape == at for part in later] for at in range(len(plans))]).reshape(len(plans), -1)
        self._landed = strategy.landed(list(kinds), columns.rows)
        counts = [[dict(plan.kinds).get(items, 0) for items in kinds] for plan in plans]
        self._counts, self._parts = np.array(counts, dtype=np.int64), np.array([[len(plan.parts)] for plan in plans])
        self._asks = self._counts > 0
        self._request = _least(requests, columns.free_rows)
        most = [_most(plan) if plan.rule.policy == policy.RESTRICTED else {} for plan in plans]
        self._most = _least(most, columns.rows) if any(most) else None
        self._together = np.array([[bool(plan.together)] for plan in plans])
        one_by_one = np.array([[plan.one_by_one] for plan in plans])
        self._one_by_one = one_by_one if one_by_one.any() else None

    def run(self, slots: Slots, gates: Bools) -> tuple[Ints, Bools]:
        """Scores (-1: ruled out) and certainty (no exact judgement needed) [shape, slot]. `gates` [shape, slot] is where the
        shapes' constraints let them go."""
        taken = self._columns.lower.take(slots, axis=2)[:, : self._zones]
        found, kinds = _all(taken[:, None] >= self._least), self._asks.shape[1]
        fits, anywhere = found[:kinds], np.logical_or.reduce(found, axis=1)
        somewhere, beside = anywhere[:kinds], anywhere[kinds:]
        scores = self._scored(fits, somewhere, slots)
        necessary = ~(self._asks @ ~somewhere)
        candidates, sure = necessary, necessary & self._all_find_zones(fits, beside)
        if not necessary.all():
            candidates = necessary | self._fits_upper(slots)
        if self._most is not None:
            wide = _any(self._columns.largest.take(slots, axis=1)[:, None] < self._most)
            candidates, sure, scores = candidates | wide, sure & ~wide, np.where(wide, 0, scores)
        if self._one_by_one is not None:
            candidates, sure = candidates | self._one_by_one, sure & ~self._one_by_one
        candidates = candidates & gates
        candidates &= _all(self._columns.free.take(slots, axis=1)[:, None] >= self._request)
        ruled_out = ~candidates
        scores[ruled_out] = NOT
        return scores, sure | ruled_out

    def _scored(self, fits: Bools, somewhere: Bools, slots: Slots) -> Ints:
        """The mean of the parts' scores, each where it lands, 0 for one that fits no zone alone."""
        columns = self._columns
        at = fits.argmax(axis=1) * columns.capacity
        at += slots
        lower, whole = columns.lower, columns.whole
        free, sizes = lower.reshape(len(lower), -1).take(at, axis=1), whole.reshape(len(whole), -1).take(at, axis=1)
        total = self._counts @ (self._landed.scores(free, sizes) * somewhere)
        total //= self._parts
        return total

    def _all_find_zones(self, fits: Bools, beside: Bools) -> Bools:
        """Each part finds a zone whatever zones those before it took: enough fit it, or one holds it `beside` all of them."""
        if not len(beside):
            return self._together
        zones = np.add.reduce(fits.take(self._kinds, axis=0).view(np.int8), axis=1, dtype=np.int8)
        find = (zones > self._before) | beside
        found: Bools = self._together & ~(self._whose @ ~find)
        return found

    def _fits_upper(self, slots: Slots) -> Bools:
        """Nodes that the upper bound does not rule out: the exact judgement may find them certain."""
        upper = self._columns.upper.take(slots, axis=2)[:, : self._zones]
        somewhere = _all(upper[:, None] >= self._least[:, : self._asks.shape[1]]).any(axis=1)
        return ~(self._asks @ ~somewhere)


def _all(found: Bools) -> Bools:
    """In every row."""
    every: Bools = np.logical_and.reduce(found, axis=0)
    return every


def _any(found: Bools) -> Bools:
    """In some row."""
    some: Bools = np.logical_or.reduce(found, axis=0)
    return some


def _least(asked: Sequence[Mapping[str, int]], rows: Mapping[str, int]) -> Ints:
    """The least of each row [row, asked, 1]. What asks for something that has no row finds it nowhere."""
    least = np.full((len(rows), len(asked), 1), ANY, dtype=np.int64)
    for at, amounts in enumerate(asked):
        for name, amount in amounts.items():
            if name in rows:
                least[rows[name], at] = amount
            else:
                least[:, at] = NEVER
                break
    return least


def _most(plan: Plan) -> Amounts:
    """The most that a part asks for, by resource."""
    most: Amounts = {}
    for part in plan.parts:
        most |= {name: max(held, most.get(name, 0)) for name, held in part.amounts.items()}
    return most


class _Later(NamedTuple):
    """A part with others before it: its kind, how many come before, the least that a zone must have for it and them, and the
    number of its shape."""

    kind: int
    before: int
    least: Amounts
    shape: int


def _later_parts(plans: Sequence[Plan], kinds: Mapping[Items, int]) -> list[_Later]:
    """Of parts that are all alike the last says it for all."""
    found = []
    for number, plan in enumerate(plans):
        before = Counter[str]()
        for at, part in enumerate(plan.parts):
            before.update(part.amounts)
            if at and (len(plan.kinds) > 1 or at == len(plan.parts) - 1):
                least = {name: before[name] for name in part.amounts}
                found.append(_Later(kinds[tuple(part.amounts.items())], min(at, 127), least, number))
    return found
