"""Too few to take every zone: a cheap sufficient test where pods of unknown zone are many.

Each part of a pod on its way stands in one zone, or comes later. To keep a part out, others must take enough of some resource in
every zone that would hold it. They are too few where even the largest of them, counted anew for each zone, are not enough in
number, or where all that they ask for of each resource does not go far enough. Then a zone remains, whatever the order. On a node
with 40 such pods a search over orders never ends; this does in microseconds. Must not know hint providers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from services.scheduler.deciding.feasibility.bounds import Bounds, fits
from services.scheduler.deciding.feasibility.zone_sizes import fits_one_zone
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.policy import BEST_EFFORT, RESTRICTED, SINGLE
from shared.domain.demand import ContainerDemand, most, outside_pod_hint, peak
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_memory
from shared.ledger.state import Charge, ZoneAmounts
from shared.ledger.view import restore


class Ranks:
    """By resource the amounts that some parts ask for, as sums of the largest ones: how many parts does it take?"""

    __slots__ = ("_largest", "_sums")

    def __init__(self, amounts: Mapping[str, list[int]]) -> None:
        """`amounts` in ascending order of their negatives: the largest first."""
        self._largest = amounts
        self._sums: dict[str, list[int]] = {}

    @classmethod
    def of(cls, many: Iterable[Amounts]) -> Ranks:
        """Of all these parts."""
        return cls({}).beside(many)

    def beside(self, many: Iterable[Amounts]) -> Ranks:
        """With these parts more."""
        found = {name: list(each) for name, each in self._largest.items()}
        for amounts in many:
            for name, amount in amounts.items():
                insort(found.setdefault(name, []), -amount)
        return Ranks(found)

    def sums(self, name: str) -> list[int]:
        """What the largest one takes, the two largest together, and so on."""
        found = self._sums.get(name)
        if found is None:
            found = self._sums[name] = list(accumulate([-each for each in self._largest.get(name, ())]))
        return found


class Parts(NamedTuple):
    """Of a pod on its way, or of several: what goes into one zone together, part by part, as they `take` of zones, and what a
    zone must hold that they look for (`seek`)."""

    take: Sequence[Amounts]
    seek: Sequence[Amounts]


class Waiting:
    """The parts of all pods on their way to one node: how many, their ranks, and the largest that are `asked` for. `base` is the
    lower bound without them."""

    __slots__ = ("asked", "base", "count", "ranks")

    def __init__(self, base: ZoneAmounts, ranks: Ranks, count: int, asked: list[Amounts]) -> None:
        self.base, self.ranks, self.count, self.asked = base, ranks, count, asked

    def joined(self, parts: Parts) -> Waiting:
        """With one pod more, which leaves `base` as it is."""
        ranks, asked = self.ranks.beside(parts.take), _largest([*self.asked, *parts.seek])
        return Waiting(self.base, ranks, self.count + len(parts.take), asked)


def waiting_on(facts: NodeFacts, report: Report) -> Waiting | None:
    """Those on their way; None where one of them need not take single zones, or is half-way in. Who ran in this boot, and is
    listed no more, holds what it held or has gone: `base` goes without that."""
    take: list[Amounts] = []
    seek: list[Amounts] = []
    base = {zone: dict(amounts) for zone, amounts in facts.firm(facts.lower).items()}
    for charge in facts.charges():
        if not charge.zones or charge.proven or (charge.held and charge.held_boot == report.boot_id):
            continue
        found = _parts_of(charge, facts, report)
        if found is None:
            return None
        take += found.take
        seek += found.seek
        restore(base, charge.zones)
    return Waiting(base, Ranks({}), 0, []).joined(Parts(take, seek))


def joined(waiting: Waiting, charge: Charge, facts: NodeFacts, report: Report) -> Waiting | None:
    """With an own reservation more, on a node that is otherwise as it was."""
    if not charge.zones:
        return waiting
    found = _parts_of(charge, facts, report)
    return waiting.joined(found) if found is not None else None


def _parts_of(charge: Charge, facts: NodeFacts, report: Report) -> Parts | None:
    """None for a pod that need not take single zones, or is listed with a part of what it asks for."""
    if any(placement.held for placement in (facts.ledger.listed or {}).get(charge.key, ())):
        return None
    return parts_of(charge.demand, report.policy, report.scope, report, charge.admitted)


def parts_of(demand: Sequence[ContainerDemand], policy: str, scope: str, report: Report, admitted: bool = False) -> Parts | None:
    """None where wider masks, or init containers that draw others after them, make it another matter. Who was `admitted` found
    a zone, and looks for none; under best-effort it may have been placed over several, unless it surely found one."""
    every = [part.amounts for part in demand]
    draws, seeks = _draws(demand), not admitted or policy == BEST_EFFORT
    if scope == "pod":
        if outside_pod_hint(demand):
            return None
        parts = Parts([most(demand, apart=True)], [peak(demand)])
    elif seeks and draws and not _first_is_enough(demand):
        return None
    else:
        parts = Parts(every, every[:1] if draws else every)
    in_one = parts.seek if scope == "pod" else every
    if policy not in (SINGLE, BEST_EFFORT) and not (policy == RESTRICTED and fits_one_zone(in_one, report)):
        return None
    return parts if seeks else Parts(parts.take, ())


def _draws(demand: Sequence[ContainerDemand]) -> bool:
    """Later containers go where init containers leave CPUs or devices to reuse; memory draws nobody (kubelet 1.36)."""
    return any(part.kind == "init" and not all(is_memory(name) for name in part.amounts) for part in demand)


def _first_is_enough(demand: Sequence[ContainerDemand]) -> bool:
    """Whatever zone takes the first init container takes all: what it leaves to be reused is enough for each of those that come
    after it, beside those that run."""
    first, running = demand[0], dict[str, int]()
    for part in demand[1:]:
        beside = {name: amount + running.get(name, 0) for name, amount in part.amounts.items()}
        if not fits(beside, first.amounts):
            return False
        if part.kind != "init":
            running |= beside
    return first.kind == "init"


def everybody_finds_a_zone(waiting: Waiting, newcomer: Parts) -> bool:
    """True when each part on its way, and each of the newcomer's, surely finds a zone, whoever comes first. False says
    nothing."""
    everybody = waiting.ranks.beside(newcomer.take)
    others = waiting.count + len(newcomer.take) - 1
    return all(
        _too_few_amounts(amounts, waiting.base, everybody) or _too_few_takers(amounts, waiting.base, everybody, others)
        for amounts in _largest([*newcomer.seek, *waiting.asked])
    )


def _too_few_amounts(asked: Amounts, base: Bounds, others: Ranks) -> bool:
    """True when all that others ask for, resource by resource, blocks fewer zones than fit."""
    fitting = [zone for zone in base.values() if fits(asked, zone)]
    return sum(_blocked(name, amount, fitting, others) for name, amount in asked.items()) < len(fitting)


def _blocked(name: str, amount: int, zones: Sequence[Amounts], others: Ranks) -> int:
    """The most zones in which others can leave too little of this resource: those with the least of it, as far as it goes."""
    sums = others.sums(name)
    left = sums[-1] - amount if sums else 0
    blocked = 0
    for slack in sorted([zone[name] - amount for zone in zones]):
        left -= slack + 1
        if left < 0:
            break
        blocked += 1
    return blocked


def _largest(parts: Sequence[Amounts]) -> list[Amounts]:
    """Those that no other asks as much as: a zone that remains for one of these remains for whoever asks for less."""
    found: list[Amounts] = []
    for part in parts:
        if not any(fits(part, other) for other in found):
            found = [other for other in found if not fits(other, part)]
            found.append(part)
    return found


def _too_few_takers(asked: Amounts, base: Bounds, others: Ranks, most: int) -> bool:
    """True when more than `most` others would be needed to take every zone that fits. Runs for every part on its way: plain
    loops."""
    wanted, needed = [(name, amount, others.sums(name)) for name, amount in asked.items()], 0
    for zone in base.values():
        least = most + 1
        for name, amount, sums in wanted:
            slack = zone.get(name, 0) - amount
            if slack < 0:
                break
            least = min(least, bisect_right(sums, slack) + 1)
        else:
            needed += least
            if needed > most:
                return True
    return False
