"""The restricted policy where a part is larger than any one zone: the kubelet then prefers sets of the least number of
zones that could ever hold it, the same set for every resource (kubelet 1.36: preferred hints, identical masks).

How a part's amounts are split over its zones is not known: what it takes of another set is bounded from both sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import msgspec

from services.scheduler.deciding.feasibility.branches import Bounds, Budget, LimitError
from services.scheduler.deciding.feasibility.capacity import capacities, size_in
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.shape import Part, Plan
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_memory
from shared.ledger.state import Charge

MOST_SETS = 512
ZoneSet = tuple[int, ...]


class _Taken(msgspec.Struct, frozen=True):
    """What a part before took, somewhere in its zones."""

    zones: ZoneSet
    amounts: Amounts


def narrow(facts: NodeFacts, plan: Plan) -> bool:
    """True when every amount fits one zone's capacity: the preferred hints are then single zones."""
    if facts.report is None:
        return True
    largest = capacities(facts.report)
    return all(largest.get(name, 0) >= held for part in plan.parts for name, held in part.amounts.items())


def admitted(facts: NodeFacts, plan: Plan, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """True when every part finds a set of zones of the preferred size on every branch. Raises LimitError."""
    if facts.report is None or (plan.inits and (len(plan.parts) > 1 or plan.rule.scope == "pod")):
        return False
    sets = [preferred_sets(part, facts.report) for part in plan.parts]
    if not all(sets):
        return False
    return _Search(facts, list(plan.parts), sets, lower, upper, budget).walk(0, ())


def memory_admitted(facts: NodeFacts, parts: list[Part], lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """The same for the Memory Manager alone, which takes any set of zones that it accepts. Raises LimitError."""
    zones = sorted(lower)
    if 1 << len(zones) > MOST_SETS:
        raise LimitError
    every = [chosen for size in range(1, len(zones) + 1) for chosen in combinations(zones, size)]
    return _Search(facts, parts, [every] * len(parts), lower, upper, budget).walk(0, ())


def possible(facts: NodeFacts, plan: Plan, upper: Bounds) -> bool:
    """Could some state hold it?"""
    if facts.report is None:
        return False
    report = facts.report
    return all(any(_sums(part, chosen, upper) for chosen in preferred_sets(part, report)) for part in plan.parts)


def preferred_sets(part: Part, report: Report) -> list[ZoneSet]:
    """The sets of zones that the kubelet could prefer: of one size that is the least for each resource, none when the least
    sizes differ. Memory and hugepages count together. Raises LimitError for too many sets."""
    memory = [name for name in part.amounts if is_memory(name)]
    groups = [[name] for name in part.amounts if not is_memory(name)] + ([memory] if memory else [])
    sizes = {_least_size({name: part.amounts[name] for name in group}, report) for group in groups}
    if len(sizes) != 1:
        return []
    size = sizes.pop()
    found: list[ZoneSet] = []
    for chosen in combinations(sorted(zone.id for zone in report.zones), size) if size else ():
        found.append(chosen)
        if len(found) > MOST_SETS:
            raise LimitError
    return found


def _least_size(amounts: Amounts, report: Report) -> int:
    """The least number of zones that hold all of `amounts` when empty; 0 when all zones together do not."""
    if len(amounts) == 1:
        ((name, amount),) = amounts.items()
        left = amount
        for count, size in enumerate(sorted((size_in(zone, name) for zone in report.zones), reverse=True), start=1):
            left -= size
            if left <= 0:
                return count
        return 0
    tried = 0
    for count in range(1, len(report.zones) + 1):
        for chosen in combinations(report.zones, count):
            tried += 1
            if tried > MOST_SETS:
                raise LimitError
            if all(sum(size_in(zone, name) for zone in chosen) >= amount for name, amount in amounts.items()):
                return count
    return 0


def _sums(part: Part, chosen: ZoneSet, bounds: Bounds) -> bool:
    return all(
        sum(bounds[zone].get(name, 0) for zone in chosen if zone in bounds) >= amount for name, amount in part.amounts.items()
    )


class _Search:
    """One walk over all branches. Sets come in order of their size."""

    def __init__(
        self, facts: NodeFacts, parts: list[Part], sets: list[list[ZoneSet]], lower: Bounds, upper: Bounds, budget: Budget
    ) -> None:
        self._parts, self._sets, self._lower, self._upper, self._budget = parts, sets, lower, upper, budget
        self._groups = _groups(facts)
        self._clean = _clean_zones(facts, lower)
        self._tied = facts.tied

    def walk(self, at: int, taken: tuple[_Taken, ...]) -> bool:
        """True when the parts from `at` on are admitted on every branch. No set is taken that is larger than one that surely
        can be (kubelet 1.36: the preferred size, which is the least, or else the narrowest)."""
        self._budget.spend()
        part, sets = self._parts[at], self._sets[at]
        sure = next((chosen for chosen in sets if self._surely(part, chosen, taken)), None)
        if sure is None:
            return False
        if at == len(self._parts) - 1:
            return True
        branches = [chosen for chosen in sets if len(chosen) <= len(sure) and self._perhaps(part, chosen, taken)]
        return all(self.walk(at + 1, (*taken, _Taken(chosen, part.amounts))) for chosen in branches)

    def _surely(self, part: Part, chosen: ZoneSet, taken: tuple[_Taken, ...]) -> bool:
        for name, amount in part.amounts.items():
            held = sum(self._lower[zone].get(name, 0) for zone in chosen if zone in self._lower)
            if held - sum(self._most(each, name, chosen) for each in taken) < amount:
                return False
        return not any(is_memory(name) for name in part.amounts) or self._grouping(chosen, taken)

    def _perhaps(self, part: Part, chosen: ZoneSet, taken: tuple[_Taken, ...]) -> bool:
        for name, amount in part.amounts.items():
            held = sum(self._upper[zone].get(name, 0) for zone in chosen if zone in self._upper)
            if held - sum(self._least(each, name, chosen) for each in taken) < amount:
                return False
        return True

    def _most(self, each: _Taken, name: str, chosen: ZoneSet) -> int:
        amount = each.amounts.get(name, 0)
        if not amount or set(each.zones) <= set(chosen):
            return amount
        return min(amount, self._held(name, (zone for zone in each.zones if zone in chosen)))

    def _least(self, each: _Taken, name: str, chosen: ZoneSet) -> int:
        amount = each.amounts.get(name, 0)
        return max(0, amount - self._held(name, (zone for zone in each.zones if zone not in chosen))) if amount else 0

    def _held(self, name: str, zones: Iterable[int]) -> int:
        return sum(max(0, self._upper[zone].get(name, 0)) for zone in zones if zone in self._upper)

    def _grouping(self, chosen: ZoneSet, taken: tuple[_Taken, ...]) -> bool:
        """Does the Memory Manager surely accept these zones together?"""
        others = [each.zones for each in taken if any(is_memory(name) for name in each.amounts)]
        for zone in chosen:
            now = [zones for zones in others if zone in zones]
            if any(zones != chosen for zones in now):
                return False
            if not now and not self._accepts(zone, chosen):
                return False
        return True

    def _accepts(self, zone: int, chosen: ZoneSet) -> bool:
        if len(chosen) == 1:
            return zone not in self._tied
        return zone in self._clean or self._groups.get(zone) == chosen


def _groups(facts: NodeFacts) -> dict[int, ZoneSet]:
    """Zone -> the only set of zones that memory blocks over it are listed with."""
    found: dict[int, set[ZoneSet]] = {}
    for placements in (facts.ledger.listed or {}).values():
        for placement in placements:
            for item in placement.held:
                if is_memory(item.resource):
                    for zone in item.zones:
                        found.setdefault(zone, set()).add(tuple(sorted(item.zones)))
    return {zone: sets.pop() for zone, sets in found.items() if len(sets) == 1}


def _clean_zones(facts: NodeFacts, lower: Bounds) -> set[int]:
    """Zones in which surely no memory is held."""
    report = facts.report
    return {
        zone.id
        for zone in (report.zones if report is not None else ())
        if all(
            lower.get(zone.id, {}).get(name, 0) >= held.allocatable for name, held in zone.resources.items() if is_memory(name)
        )
    }


def grouped_zones(facts: NodeFacts, lower: Bounds) -> set[int]:
    """Zones that may belong to a group of several: those of listed blocks over several zones, and, where there may be blocks
    that are not listed, all that are neither clean nor alone. A pod that came and went may have split a group, so that a listing
    does not tell more."""
    if facts.ledger.listed is None:
        return set(lower) - _clean_zones(facts, lower)
    together, _ = _listed_zones(facts)
    if not any(_holds_memory(charge) for charge in facts.charges()):
        return together
    loose = set(lower) - alone_zones(facts, lower)
    return loose if len(loose) > 1 else together


def alone_zones(facts: NodeFacts, lower: Bounds) -> set[int]:
    """Zones that surely are no part of a group, and become none: a block of their own stands there, or there is no other zone."""
    together, alone = _listed_zones(facts)
    return set(lower) if len(lower) == 1 else alone - together


def _listed_zones(facts: NodeFacts) -> tuple[set[int], set[int]]:
    """(zones of listed blocks over several zones, zones of blocks of their own that pods not known to have ended hold)."""
    together: set[int] = set()
    alone: set[int] = set()
    for key, placements in (facts.ledger.listed or {}).items():
        for item in (item for placement in placements for item in placement.held if is_memory(item.resource)):
            if len(item.zones) > 1:
                together.update(item.zones)
            elif key not in facts.ledger.ended:
                alone.update(item.zones)
    return together, alone


def _holds_memory(charge: Charge) -> bool:
    """True for a pod with memory that no listing shows; that of init containers is never shown."""
    return not (charge.proven and charge.admitted) and any(is_memory(name) for held in charge.zones.values() for name in held)
