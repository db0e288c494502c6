"""Can the others on a node keep a part out of every zone? Bin covering, bounded by fractions.

To keep it out of a zone, the others there must take more of some resource than the zone has beside
what the part asks for: the zone's need. Let one part cover of a zone what it takes of a need, the
largest such share over the resources: at most the whole zone, and nothing of one where it cannot
stand. A blocked zone is covered by those that stand in it, and each stands in one zone. So if every
zone of a set is blocked, then for any weights of zones their sum is at most what all parts cover,
each counted where its weighted share is largest. Where that fails for one set and some weights, a
zone is left. Shares are integers, rounded up.

The sets are the zone that is hardest to block, the two hardest, and so on. Zones weigh the same, or
what they need of a resource: the former tells how many parts there are, the latter adds up what
they take. Plain loops, which suit a handful of parts; crowds have arrays (`packing.py`). Must not
know pods, the ledger or hint providers.

The bound of `covering.py` in arrays, for crowds: all seekers at once.

Arithmetic is that of 64 bits. Amounts beyond what machines have count as more than is asked for, or
less than is free, and large ones are counted in units, what is taken rounded up and what is needed
down: so the bound says yes here and there less often. Must not know pods, the ledger or hint
providers.

Too few to take every zone: a cheap sufficient test where pods of unknown zone are many.

Each part of a pod on its way stands in one zone, or comes later. To keep a part out, others must
take enough of some resource in every zone that would hold it. They are too few where even the
largest of them, counted anew for each zone, are not enough in number, or where all together cannot
cover these zones (`covering.py`). Then a zone remains, whatever the order. On a node with 40 such
pods a search over orders never ends; this does in microseconds. Who runs already takes a zone, and
looks for none any more. Must not know hint providers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from services.scheduler.filter.topology.bounds import Bounds, fits
from services.scheduler.snapshot.node_arrays import Bools, Ints
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.zone_sizes import capacities, fits_one_zone
from shared.domain.demand import ContainerDemand, may_be_split, most, outside_pod_hint, peak
from shared.domain.device_zones import between_zones
from shared.domain.policies import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device, is_memory
from shared.ledger.state import Charge
from shared.ledger.view import restore

WHOLE = 1 << 30
"""The share of a part that blocks a zone alone."""

_COUNTED = ""
"""No resource's name: every zone weighs the same."""


class Part(NamedTuple):
    """What a zone must hold for a part to stand there (`asked`), and the most that it takes of the
    zone then.
    """

    asked: Amounts
    take: Amounts


class _Zone(NamedTuple):
    """A zone that would hold the seeker: what the others cover of it together and each by itself,
    and its needs.
    """

    covered: int
    shares: list[int]
    needs: Amounts


def is_left_a_zone(asked: Amounts, base: Bounds, rooms: Bounds, others: Sequence[Part]) -> bool:
    """True when some zone surely remains for what is `asked`, wherever the others stand: zones have
    beside them at least `base`, and at most `rooms`. False says nothing."""
    wanted = {name: amount for name, amount in asked.items() if amount}
    zones = []
    for zone, free in base.items():
        needs = {name: free.get(name, 0) - amount + 1 for name, amount in wanted.items()}
        if min(needs.values(), default=1) > 0:
            room = rooms.get(zone, {})
            shares = [
                _share(part.take, needs) if _may_stand(part.asked, room) else 0 for part in others
            ]
            zones.append(_Zone(sum(shares), shares, needs))
    zones.sort(key=_covered)
    if not zones or zones[0].covered < WHOLE:
        return bool(zones)
    return any(
        _uncovered(zones[:count], name)
        for count in range(2, len(zones) + 1)
        for name in (_COUNTED, *wanted)
    )


def _covered(zone: _Zone) -> int:
    return zone.covered


def _may_stand(asked: Amounts, room: Amounts) -> bool:
    """Devices may have gone that a part holds: where it may stand is told by CPUs and memory."""
    for name, amount in asked.items():
        if amount > room.get(name, 0) and not is_device(name):
            return False
    return True


def _share(take: Amounts, needs: Amounts) -> int:
    share = 0
    for name, need in needs.items():
        taken = take.get(name, 0)
        if taken >= need:
            return WHOLE
        share = max(share, -(-taken * WHOLE // need))
    return share


def _uncovered(zones: Sequence[_Zone], name: str) -> bool:
    """A zone alone needs no weight."""
    weights = [zone.needs.get(name, 1) for zone in zones]
    weighted = [
        [weight * share for share in zone.shares]
        for weight, zone in zip(weights, zones, strict=True)
    ]
    covered: int = sum(map(max, zip(*weighted, strict=True)))
    return covered < sum(weights) * WHOLE


MOST_AMOUNT = 1 << 60
"""Of a resource: sums of two are exact."""

MOST_UNITS = 1 << 32
"""Of a resource, when shares are made: products are exact."""

MOST_WEIGHT = 1 << 20
"""Of a zone: what all parts cover of it stays exact."""

AT_ONCE = 1 << 18
"""Numbers that are looked at together."""


class Packing(NamedTuple):
    """Parts, and the zones among which they are to stand. `asked` and `take` are [part, resource];
    what zones have beside all parts at least (`base`) and at most (`rooms`) is [zone, resource]. No
    zone has any of the last resource, which has no name."""

    names: tuple[str, ...]
    asked: Ints
    take: Ints
    base: Ints
    rooms: Ints

    @classmethod
    def of(cls, parts: Sequence[Part], base: Bounds, rooms: Bounds) -> Packing:
        """In the order of `parts`, and of the zones in `base`."""
        names = tuple(sorted({name for free in base.values() for name in free}))
        empty = np.zeros((0, len(names) + 1), dtype=np.int64)
        least, most = (
            _rows(list(base.values()), names, MOST_AMOUNT),
            _rows([rooms.get(zone, {}) for zone in base], names),
        )
        return cls(names, empty, empty, least, most).beside(parts)

    def beside(self, parts: Sequence[Part]) -> Packing:
        """With these parts more."""
        asked, take = (
            _rows(each, self.names)
            for each in ([part.asked for part in parts], [part.take for part in parts])
        )
        return self._replace(
            asked=np.concatenate((self.asked, asked)), take=np.concatenate((self.take, take))
        )


def _rows(many: Sequence[Amounts], names: tuple[str, ...], most: int = MOST_AMOUNT + 1) -> Ints:
    """What is more than counts is less than is asked for, and not more than may be free."""
    rows = []
    for amounts in many:
        row = [amounts.get(name, 0) for name in names]
        row.append(sum(amounts.values()) - sum(row))
        if max(row) > most or min(row) < -most:
            row = [max(-most, min(most, amount)) for amount in row]
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, len(names) + 1)


def each_is_left_a_zone(packing: Packing, seekers: Sequence[int]) -> bool:
    """True when some zone surely remains for each of these parts, wherever all others stand. False
    says nothing.
    """
    stands = _may_stand_arrays(packing)
    step = max(1, AT_ONCE // max(1, packing.base.size * len(packing.asked)))
    chunks = (
        np.array(seekers[first : first + step], dtype=np.int64)
        for first in range(0, len(seekers), step)
    )
    return all(_cannot_be_covered(packing, stands, chunk) for chunk in chunks)


def _may_stand_arrays(packing: Packing) -> Bools:
    """[zone, part]. Devices may have gone that a part holds: where it may stand is told by CPUs and
    memory.
    """
    told = [at for at, name in enumerate(packing.names) if not is_device(name)]
    found: Bools = np.all(packing.asked[:, told] <= packing.rooms[:, None, told], axis=2)
    return found


def _cannot_be_covered(packing: Packing, stands: Bools, seekers: Ints) -> bool:
    """Arrays are [seeker, zone, ...], zones in the order of what others cover of them, those that
    do not hold it last.
    """
    asked, numbers = packing.asked[seekers, None, :], np.arange(len(seekers))
    needs = packing.base - asked + 1
    holds = ((needs > 0) | (asked == 0)).all(axis=2)
    needs = np.where((asked > 0) & holds[:, :, None], needs, 0)
    shares = _share_arrays(packing.take, needs) * stands
    shares[numbers, :, seekers] = 0
    order = np.argsort(
        np.where(holds, shares.sum(axis=2), len(packing.take) * WHOLE + 1), axis=1, kind="stable"
    )
    shares, weights = (
        shares[numbers[:, None], order],
        _weights(needs, holds)[numbers[:, None], order],
    )
    covered = np.maximum.accumulate(weights[:, :, :, None] * shares[:, :, None, :], axis=1).sum(
        axis=3
    )
    return bool((covered < np.cumsum(weights, axis=1) * WHOLE).any(axis=(1, 2)).all())


def _share_arrays(take: Ints, needs: Ints) -> Ints:
    """What each part covers of each zone [seeker, zone, part]; a need of 0 does not count. In units
    that keep products exact, what is taken is rounded up, and what is needed down."""
    found = np.zeros((*needs.shape[:2], len(take)), dtype=np.int64)
    for taken, need in zip(take.T, np.moveaxis(needs, 2, 0)[..., None], strict=True):
        largest = max(int(taken.max(initial=0)), int(need.max(initial=0)))
        if taken.any() and need.any():
            unit = -(-largest // MOST_UNITS)
            share = -(taken // -unit * WHOLE // np.maximum(need // unit, 1))
            np.maximum(found, share, out=found, where=need > 0)
    return np.minimum(found, WHOLE)


def _weights(needs: Ints, holds: Bools) -> Ints:
    """Of each zone by kind [seeker, zone, kind]: 1, and its need of each resource, in units that
    keep sums exact.
    """
    units = np.maximum(1, -(-needs.max(axis=1, keepdims=True, initial=0) // MOST_WEIGHT))
    return np.concatenate((holds[:, :, None], needs // units), axis=2)


HANDFUL = 100
"""Shares of zones, by zone, part and seeker, up to which plain loops are cheaper: one takes some 1 us, a few in arrays 100."""

MOST_TOLD = 256
"""Answers that are remembered of one node."""


class Ranks:
    """By resource the amounts that some parts ask for, as sums of the largest ones: how many parts
    does it take?
    """

    __slots__ = ("_largest", "_sums")

    def __init__(self, amounts: Mapping[str, list[int]]) -> None:
        """`amounts` in ascending order of their negatives: the largest first."""
        self._largest = amounts
        self._sums: dict[str, list[int]] = {}

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
            found = self._sums[name] = list(
                accumulate([-each for each in self._largest.get(name, ())])
            )
        return found


class Parts(NamedTuple):
    """Of a pod on its way, or of several: what goes into one zone together, and those of these
    parts that `seek` a zone.
    """

    every: Sequence[Part]
    seek: Sequence[Part]


class Waiting:
    """The parts of all pods on their way to one node, their ranks, and the largest that `seek` a
    zone. `base` is the lower bound without them, `rooms` the upper bound."""

    __slots__ = ("_packing", "_told", "base", "parts", "ranks", "rooms", "seek")

    def __init__(
        self, base: Bounds, rooms: Bounds, parts: list[Part], ranks: Ranks, seek: list[Part]
    ) -> None:
        self.base, self.rooms, self.parts, self.ranks, self.seek = base, rooms, parts, ranks, seek
        self._packing: Packing | None = None
        self._told: dict[int, tuple[Sequence[ContainerDemand], bool]] = {}

    def leave_room_for(
        self, demand: Sequence[ContainerDemand], policy: str, scope: str, report: Report
    ) -> bool:
        """True when a pod that asks for this surely finds its zones, and so does everybody else.
        Remembered: whoever is refused is asked for again, to tell why."""
        known = self._told.get(id(demand))
        if known is None or known[0] is not demand:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            newcomer = parts_of(demand, policy, scope, report)
            known = self._told[id(demand)] = (
                demand,
                newcomer is not None and everybody_finds_a_zone(self, newcomer),
            )
        return known[1]

    @property
    def packing(self) -> Packing:
        """The same in arrays."""
        if self._packing is None:
            self._packing = Packing.of(self.parts, self.base, self.rooms)
        return self._packing

    def joined(self, parts: Parts) -> Waiting:
        """With one pod more, which leaves the bounds as they are."""
        ranks, seek = self.ranks.beside(_takes(parts.every)), _largest([*self.seek, *parts.seek])
        found = Waiting(self.base, self.rooms, [*self.parts, *parts.every], ranks, seek)
        if self._packing is not None:
            found._packing = self._packing.beside(parts.every)
        return found


def waiting_on(node_info: NodeInfo, report: Report) -> Waiting | None:
    """Those on their way; None where one of them need not take single zones, or is half-way in. Who
    ran in this boot, and is listed no more, holds what it held or has gone: `base` goes without
    that."""
    every: list[Part] = []
    seek: list[Part] = []
    base = {zone: dict(amounts) for zone, amounts in node_info.free_min.items()}
    for charge in node_info.charges():
        if (
            not charge.zones
            or charge.confirmed
            or (charge.confirmed_zones and charge.confirmed_boot == report.boot_id)
        ):
            continue
        found = _parts_of(charge, node_info, report)
        if found is None:
            return None
        every += found.every
        seek += found.seek
        restore(base, charge.zones)
    return Waiting(node_info.for_single_zones(base), node_info.free_max, [], Ranks({}), []).joined(
        Parts(every, seek)
    )


def joined(waiting: Waiting, charge: Charge, node_info: NodeInfo, report: Report) -> Waiting | None:
    """With an own reservation more, on a node that is otherwise as it was."""
    if not charge.zones:
        return waiting
    found = _parts_of(charge, node_info, report)
    return waiting.joined(found) if found is not None else None


def _parts_of(charge: Charge, node_info: NodeInfo, report: Report) -> Parts | None:
    """None for a pod that need not take single zones, is listed with a part of what it asks for, or
    may have been split beside who ended since."""
    node = node_info.ledger
    if any(placement.held for placement in (node.listed or {}).get(charge.key, ())):
        return None
    if (node.ended or node.freed) and may_be_split(charge.demand, report.policy, report.scope):
        return None
    return parts_of(charge.demand, report.policy, report.scope, report, charge.is_admitted)


def parts_of(
    demand: Sequence[ContainerDemand],
    policy: str,
    scope: str,
    report: Report,
    admitted: bool = False,
) -> Parts | None:
    """None where wider masks, devices between zones or of which none are asked for, or init
    containers that draw others after them, make it another matter. Who was `admitted` found a zone,
    and looks for none; under best-effort, or where it may be split, it may have been placed over
    several, unless it surely found one."""
    between = between_zones(report)
    if any(part.zeros for part in demand):
        return None
    if between and any(name in part.amounts for part in demand for name, _ in between):
        return None
    draws, seeks = (
        _draws(demand),
        not admitted or policy == BEST_EFFORT or may_be_split(demand, policy, scope),
    )
    if scope == "pod":
        if outside_pod_hint(demand):
            return None
        every = seek = [Part(peak(demand), most(demand, apart=True))]
    elif seeks and draws and not _first_is_enough(demand):
        return None
    else:
        every = [Part(part.amounts, part.amounts) for part in demand]
        seek = every[:1] if draws else every
    asked = [each.asked for each in every]
    single = policy in (SINGLE_NUMA_NODE, BEST_EFFORT) or (
        policy == RESTRICTED and fits_one_zone(asked, capacities(report))
    )
    return Parts(every, seek if seeks else ()) if single else None


def _draws(demand: Sequence[ContainerDemand]) -> bool:
    """Later containers go where init containers leave CPUs or devices to reuse; memory draws nobody
    (kubelet 1.36).
    """
    return any(
        part.kind == "init" and not all(is_memory(name) for name in part.amounts) for part in demand
    )


def _first_is_enough(demand: Sequence[ContainerDemand]) -> bool:
    """Whatever zone takes the first init container takes all: what it leaves to be reused is enough
    for each of those that come after it, beside those that run."""
    first, running = demand[0], dict[str, int]()
    for part in demand[1:]:
        beside = {name: amount + running.get(name, 0) for name, amount in part.amounts.items()}
        if not fits(beside, first.amounts):
            return False
        if part.kind != "init":
            running |= beside
    return first.kind == "init"


def everybody_finds_a_zone(waiting: Waiting, newcomer: Parts) -> bool:
    """True when each part on its way, and each of the newcomer's, surely finds a zone, whoever
    comes first. False says nothing."""
    everybody, parts = (
        waiting.ranks.beside(_takes(newcomer.every)),
        [*waiting.parts, *newcomer.every],
    )
    doubtful = {
        id(each)
        for each in _largest([*newcomer.seek, *waiting.seek])
        if not _too_few_takers(each.asked, waiting.base, everybody, len(parts) - 1)
    }
    seekers = [at for at, part in enumerate(parts) if id(part) in doubtful]
    if len(seekers) * len(parts) * len(waiting.base) > HANDFUL:
        return each_is_left_a_zone(waiting.packing.beside(newcomer.every), seekers)
    return all(
        is_left_a_zone(
            parts[at].asked, waiting.base, waiting.rooms, [*parts[:at], *parts[at + 1 :]]
        )
        for at in seekers
    )


def _takes(parts: Iterable[Part]) -> list[Amounts]:
    return [part.take for part in parts]


def _covers_part(one: Part, other: Part) -> bool:
    """A zone that remains for this part remains for the other, which may stand wherever this one
    does and takes no more.
    """
    return one.asked == one.take and other.asked == other.take and fits(other.asked, one.asked)


def _largest(parts: Sequence[Part]) -> list[Part]:
    """Those that no other covers."""
    found: list[Part] = []
    for part in parts:
        if not any(_covers_part(other, part) for other in found):
            found = [other for other in found if not _covers_part(part, other)]
            found.append(part)
    return found


def _too_few_takers(asked: Amounts, base: Bounds, others: Ranks, most: int) -> bool:
    """True when more than `most` others would be needed to take every zone that fits. Runs for
    every part on its way: plain loops."""
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
