"""Pods whose zones are not known yet: what each may hold where, and whether a pod is admitted whatever they hold.

The bounds charge such a pod in all its zones at once; here its alternatives are told apart where that is too pessimistic.
It may also not be there at all (not admitted yet, or gone), or only with some of its containers. Must not know the
ledger's fold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from services.scheduler.deciding.feasibility.branches import Bounds, Budget, minus
from services.scheduler.deciding.feasibility.capacity import capacities
from services.scheduler.deciding.feasibility.crowd import Crowd, Item
from shared.domain.demand import most, peak
from shared.domain.report import Placement, Report
from shared.domain.resources import Amounts
from shared.ledger.charge import WHOLE_POD
from shared.ledger.state import Charge

Holds = Callable[[Bounds, Bounds, Crowd], bool]


def items_of(charge: Charge, report: Report, listed: Sequence[Placement]) -> list[Item]:
    """The parts of an unproven pod; one part without zones where it is not known to take single zones.

    What `listed` shows of a half-admitted pod counts as used in the report already: it need not hold anything more."""
    if not charge.zones or charge.proven:
        return []
    half = any(placement.held for placement in listed)
    whole = charge.possible.get(WHOLE_POD)
    mixed = not charge.possible or (whole is not None and len(charge.possible) > 1)
    if charge.held or mixed or not _takes_single_zones(charge, report):
        return [Item(charge.zones)]
    if report.scope == "pod":
        least = {} if half else most([part for part in charge.demand if part.kind != "init"])
        return [_item(most(charge.demand), least, whole or (), charge)]
    if any(part.kind == "init" for part in charge.demand):
        return [Item(charge.zones)]
    return [
        _item(part.amounts, {} if half else part.amounts, whole or charge.possible[part.name], charge) for part in charge.demand
    ]


def _item(at_most: Amounts, at_least: Amounts, zones: tuple[int, ...], charge: Charge) -> Item:
    charged = {zone: at_most for zone in zones if zone in charge.zones}
    return Item(charged, tuple(charged), at_most, at_least)


def _takes_single_zones(charge: Charge, report: Report) -> bool:
    """single-numa-node does; restricted does where every amount fits the largest zone when it is empty."""
    if report.policy == "single-numa-node":
        return True
    if report.policy != "restricted":
        return False
    largest = capacities(report)
    parts = [peak(charge.demand)] if report.scope == "pod" else [part.amounts for part in charge.demand]
    return all(largest.get(name, 0) >= amount for amounts in parts for name, amount in amounts.items())


def admitted_in_every_outcome(holds: Holds, lower: Bounds, upper: Bounds, crowd: Crowd, budget: Budget) -> bool:
    """`holds` for every combination of where the items are; a subtree that holds as a whole is not entered.

    Raises LimitError."""
    budget.spend()
    if holds(lower, upper, crowd):
        return True
    if not crowd:
        return False
    first, rest = crowd.items[0], crowd.rest()
    freed = plus(lower, first.charged)
    for zone in first.zones:
        above = _less(upper, zone, first.at_least)
        possible = all(amount >= 0 for amount in above[zone].values())
        if possible and not admitted_in_every_outcome(holds, _less(freed, zone, first.at_most), above, rest, budget):
            return False
    return admitted_in_every_outcome(holds, freed, upper, rest, budget)


def _less(bounds: Bounds, zone: int, taken: Amounts) -> dict[int, Amounts]:
    return {**bounds, zone: minus(bounds[zone], taken)}


def plus(bounds: Bounds, given: Mapping[int, Amounts]) -> dict[int, Amounts]:
    """The bounds with what was charged given back."""
    raised = dict(bounds)
    for zone, extra in given.items():
        if zone in raised:
            raised[zone] = {name: amount + extra.get(name, 0) for name, amount in raised[zone].items()}
    return raised
