"""Pods whose zones are not known yet: what each may hold where, and whether a pod is admitted whatever they hold.

The bounds charge such a pod in all its zones at once; here its alternatives are told apart where that is too pessimistic.
It may also not be there at all (not admitted yet, or gone). Must not know the ledger's fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import msgspec

from services.scheduler.cycle.branches import Bounds, Budget, minus
from services.scheduler.cycle.capacity import capacities
from shared.domain.demand import ContainerDemand, most, peak
from shared.domain.report import Report
from shared.domain.resources import Amounts
from shared.ledger.charge import WHOLE_POD
from shared.ledger.state import Charge, ZoneAmounts

Holds = Callable[[Bounds, Bounds], bool]


class Unsettled(msgspec.Struct, frozen=True):
    """One pod with several possible places. `charged` is what the lower bound subtracts for it; each outcome is what it
    may hold (at most, at least) by zone when it is there."""

    charged: ZoneAmounts
    outcomes: tuple[tuple[ZoneAmounts, ZoneAmounts], ...]


def alternatives(charge: Charge, report: Report, limit: int) -> Unsettled | None:
    """What an unproven pod may hold; None for a proven one. Where its parts may spread over several zones at once, or the
    alternatives are more than `limit`, all of its charge is the one alternative to its absence."""
    if not charge.zones or charge.proven:
        return None
    groups = None if charge.held else _groups(charge, report)
    count = 1
    for _, zones in groups or ():
        count *= len(zones)
    if groups is None or count > limit:
        return Unsettled(charge.zones, ((charge.zones, {}),))
    return Unsettled(charge.zones, tuple(_outcomes(groups)))


Group = tuple[tuple[ContainerDemand, ...], tuple[int, ...]]


def _groups(charge: Charge, report: Report) -> list[Group] | None:
    whole = charge.possible.get(WHOLE_POD)
    if whole and len(charge.possible) > 1:
        return None
    if whole is None:
        return [((part,), charge.possible.get(part.name, ())) for part in charge.demand]
    if report.policy == "single-numa-node" and report.scope == "pod":
        return [(charge.demand, whole)]
    if report.policy != "restricted":
        return None
    if report.scope == "pod":
        return [(charge.demand, whole)] if _narrow([peak(charge.demand)], report) else None
    narrow = _narrow([part.amounts for part in charge.demand], report)
    return [((part,), whole) for part in charge.demand] if narrow else None


def _narrow(parts: Sequence[Amounts], report: Report) -> bool:
    """True when every amount fits one zone's capacity, so that the restricted policy takes single zones only."""
    largest = capacities(report)
    return all(largest.get(name, 0) >= amount for amounts in parts for name, amount in amounts.items())


def _outcomes(groups: list[Group]) -> Iterator[tuple[ZoneAmounts, ZoneAmounts]]:
    for zones in product(*(zones for _, zones in groups)):
        at_most: ZoneAmounts = {}
        at_least: ZoneAmounts = {}
        for zone in sorted(set(zones)):
            there = [part for (parts, _), where in zip(groups, zones, strict=True) if where == zone for part in parts]
            at_most[zone] = most(there)
            at_least[zone] = most([part for part in there if part.kind != "init"])
        yield at_most, at_least


def admitted_in_every_outcome(holds: Holds, lower: Bounds, upper: Bounds, others: Sequence[Unsettled], budget: Budget) -> bool:
    """`holds(lower, upper)` for every combination of outcomes; a subtree whose bounds hold already is not entered.

    Raises LimitError."""
    budget.spend()
    if holds(lower, upper):
        return True
    if not others:
        return False
    first, rest = others[0], others[1:]
    freed = _plus(lower, first.charged)
    if not admitted_in_every_outcome(holds, freed, upper, rest, budget):
        return False
    for at_most, at_least in first.outcomes:
        above = _less(upper, at_least)
        possible = all(amount >= 0 for zone in at_least if zone in above for amount in above[zone].values())
        if possible and not admitted_in_every_outcome(holds, _less(freed, at_most), above, rest, budget):
            return False
    return True


def _less(bounds: Bounds, taken: Mapping[int, Amounts]) -> dict[int, Amounts]:
    return {zone: minus(held, taken[zone]) if zone in taken else held for zone, held in bounds.items()}


def _plus(bounds: Bounds, given: Mapping[int, Amounts]) -> dict[int, Amounts]:
    raised = {}
    for zone, held in bounds.items():
        extra = given.get(zone)
        raised[zone] = {name: amount + extra.get(name, 0) for name, amount in held.items()} if extra else held
    return raised
