"""Too few to take every zone: a cheap sufficient test where pods of unknown zone are many.

Each part of a pod on its way stands in one zone, or comes later. To keep a part out, others must take enough of every zone that
would hold it; if even the largest of them, counted anew for each zone, are not enough in number, a zone remains, whatever the
order. On a node with 40 such pods a search over orders never ends; this does in microseconds. Must not know hint providers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from services.scheduler.deciding.feasibility.bounds import Bounds, fits
from services.scheduler.deciding.feasibility.zone_sizes import fits_one_zone
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.shape import Plan
from shared.domain.demand import peak
from shared.domain.report import Report
from shared.domain.resources import Amounts
from shared.ledger.state import Charge, ZoneAmounts
from shared.ledger.view import restore


class Ranks:
    """By resource the amounts that some parts ask for, as sums of the largest ones: how many parts does it take?"""

    __slots__ = ("_largest", "_sums")

    def __init__(self, amounts: Mapping[str, list[int]]) -> None:
        """`amounts` in ascending order of their negatives: the largest first."""
        self._largest = amounts
        self._sums = {name: list(accumulate(-each for each in many)) for name, many in amounts.items()}

    @classmethod
    def of(cls, many: Iterable[Amounts]) -> Ranks:
        """Of all these parts."""
        found: dict[str, list[int]] = {}
        for amounts in many:
            for name, amount in amounts.items():
                found.setdefault(name, []).append(-amount)
        return cls({name: sorted(each) for name, each in found.items()})

    def beside(self, amounts: Amounts) -> Ranks:
        """With one part more."""
        found = {name: list(many) for name, many in self._largest.items()}
        for name, amount in amounts.items():
            insort(found.setdefault(name, []), -amount)
        return Ranks(found)

    def needed(self, name: str, slack: int) -> int:
        """How many of the largest take more than `slack` together; one more than there are when all do not."""
        return bisect_right(self._sums.get(name, ()), slack) + 1


class Waiting:
    """The parts of all pods on their way to one node. `base` is the lower bound without them."""

    def __init__(self, parts: Sequence[Amounts], base: ZoneAmounts) -> None:
        self.base, self.ranks, self.count = base, Ranks.of(parts), len(parts)
        self.asked = list({tuple(part.items()): part for part in parts}.values())


def waiting_on(facts: NodeFacts, report: Report) -> Waiting | None:
    """Those on their way; None where one of them need not take single zones, or holds something already."""
    parts: list[Amounts] = []
    base = {zone: dict(amounts) for zone, amounts in facts.firm(facts.lower).items()}
    for charge in facts.charges():
        if not charge.zones or charge.proven:
            continue
        found = _parts(charge, report)
        if found is None or charge.held or (facts.ledger.listed or {}).get(charge.key):
            return None
        parts += found
        restore(base, charge.zones)
    return Waiting(parts, base)


def _parts(charge: Charge, report: Report) -> list[Amounts] | None:
    """What goes into one zone together, part by part; None where init containers or wider masks make it another matter."""
    if any(part.kind == "init" for part in charge.demand):
        return None
    parts = [peak(charge.demand)] if report.scope == "pod" else [part.amounts for part in charge.demand]
    single = report.policy == "single-numa-node" or (report.policy == "restricted" and fits_one_zone(parts, report))
    return parts if single else None


def everybody_finds_a_zone(waiting: Waiting, plan: Plan) -> bool:
    """True when each part on its way, and each of the newcomer's, surely finds a zone, whoever comes first. False says
    nothing. Not for newcomers with init containers."""
    everybody = waiting.ranks
    for part in plan.parts:
        everybody = everybody.beside(part.amounts)
    others = waiting.count + len(plan.parts) - 1
    asked = [*waiting.asked, *(dict(items) for items, _ in plan.kinds)]
    return all(_remains(amounts, waiting.base, everybody, others) for amounts in asked)


def _remains(asked: Amounts, base: Bounds, others: Ranks, most: int) -> bool:
    """True when more than `most` others would be needed to take every zone that fits."""
    needed = 0
    for zone in base.values():
        if fits(asked, zone):
            needed += min([others.needed(name, zone[name] - amount) for name, amount in asked.items()])
            if needed > most:
                return True
    return False
