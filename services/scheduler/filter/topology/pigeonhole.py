"""The pigeonhole bound: a zone remains for the pod if the other pods are too few to take every
zone. It is sufficient, and takes microseconds even if 40 pods have unknown zones, whose orders no
search could try.

1. Each part of a pending pod is in one zone, or comes later. To keep a part out of a zone, the
   other parts there must take more of some resource than the zone has beyond the part's request:
   the zone's need. A pod that runs already takes a zone, but needs no other one.
2. Counting. If the number of parts that each zone needs, the largest parts first, adds up to more
   than there are, a zone remains (`_too_few_takers`).
3. Covering (bin covering, bounded by fractions). A part covers the share of a need that it takes,
   the largest share over the resources: at most the whole zone, and nothing of a zone where it
   cannot be. If every zone of a set is blocked, then for any weights of zones their sum is at most
   what all parts cover, each part counted where its weighted share is largest. If that fails for
   one set and some weights, a zone remains. Shares are integers, rounded up.
4. The sets are the zone that is hardest to block, the two hardest, and so on. Zones weigh the same,
   or as much as they need of a resource: equal weights count parts, the others add up amounts.
5. The loop form of the covering bound (`is_left_a_zone`) suits a handful of parts, the array form
   (`each_is_left_a_zone`) suits many. Arrays use 64 bits: amounts beyond those of real machines
   count as more than is requested, or less than is free, and large ones are counted in units. So
   the array form may prove less than the loop form, never more.

Must not know hint providers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
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

# The share of a part that blocks a zone alone.
WHOLE = 1 << 30
# Up to this many shares (seekers x parts x zones) plain loops are cheaper: a share takes about 1 us
# in a loop, and the array form at least 100 us.
HANDFUL = 100
# The most cached answers of one node.
MOST_ANSWERS = 256
# The largest amount in arrays: sums of two are exact.
MOST_AMOUNT = 1 << 60
# The largest amount when shares are computed in arrays: products are exact.
MOST_UNITS = 1 << 32
# The largest weight of a zone in arrays: the sum that all parts cover of it stays exact.
MOST_WEIGHT = 1 << 20
# The most numbers that are computed at once.
AT_ONCE = 1 << 18
# In place of a resource's name: every zone weighs the same.
_EQUAL = ""


class PendingPart(NamedTuple):
    """One part of a pending pod: `asked` is the amount that a zone must have for it, `take` the
    most that it then takes of the zone.
    """

    asked: Amounts
    take: Amounts


class PodParts(NamedTuple):
    """The parts of one pending pod or several. The parts in `seek` still look for a zone."""

    every: Sequence[PendingPart]
    seek: Sequence[PendingPart]


# -- the parts of pods


def parts_of(
    demand: Sequence[ContainerDemand],
    policy: str,
    scope: str,
    report: Report,
    admitted: bool = False,
    between: Collection[str] | None = None,
) -> PodParts | None:
    """Return the parts of a pod; None if wider masks, devices between zones or in an amount of 0,
    or init containers that draw others after them, make the bound wrong.

    `between` are the resources with devices between zones, if they are known already. An admitted
    pod has a zone and looks for none. Under best-effort, or if it may be split, it may have been
    placed over several zones, unless it surely found one.
    """
    if between is None:
        between = [name for name, _ in between_zones(report)]
    if any(part.zeros for part in demand):
        return None
    if any(name in part.amounts for part in demand for name in between):
        return None
    draws = _draws(demand)
    seeks = not admitted or policy == BEST_EFFORT or may_be_split(demand, policy, scope)
    if scope == "pod":
        if outside_pod_hint(demand):
            return None
        every = seek = [PendingPart(peak(demand), most(demand, apart=True))]
    elif seeks and draws and not _first_is_enough(demand):
        return None
    else:
        every = [PendingPart(part.amounts, part.amounts) for part in demand]
        seek = every[:1] if draws else every
    single = policy in (SINGLE_NUMA_NODE, BEST_EFFORT)
    if policy == RESTRICTED:
        single = fits_one_zone([part.asked for part in every], capacities(report))
    if not single:
        return None
    return PodParts(every, seek if seeks else ())


def _draws(demand: Sequence[ContainerDemand]) -> bool:
    """Return whether init containers draw later ones to their zones, because they leave CPUs or
    devices to reuse. Memory draws no container (kubelet 1.36).
    """
    for part in demand:
        if part.kind == "init" and not all(is_memory(name) for name in part.amounts):
            return True
    return False


def _first_is_enough(demand: Sequence[ContainerDemand]) -> bool:
    """Return whether the zone of the first init container surely takes all containers: it leaves
    enough for each later container next to running ones.
    """
    first, running = demand[0], dict[str, int]()
    for part in demand[1:]:
        together = {name: amount + running.get(name, 0) for name, amount in part.amounts.items()}
        if not fits(together, first.amounts):
            return False
        if part.kind != "init":
            running |= together
    return first.kind == "init"


def pending_parts_on(node_info: NodeInfo, report: Report) -> PendingParts | None:
    """Return the parts of the node's pending pods; None if one of them need not take single zones
    or is partially admitted.

    A pod that ran in this boot and is no longer listed may hold its earlier amounts or have ended,
    so `base` does not count them as free.
    """
    every: list[PendingPart] = []
    seek: list[PendingPart] = []
    base = {zone: dict(amounts) for zone, amounts in node_info.free_min.items()}
    for charge in node_info.charges():
        ran_in_this_boot = bool(charge.confirmed_zones)
        if not charge.zones or charge.confirmed or ran_in_this_boot:
            continue
        parts = _parts_of_charge(charge, node_info, report)
        if parts is None:
            return None
        every += parts.every
        seek += parts.seek
        restore(base, charge.zones)
    single = node_info.for_single_zones(base)
    empty = PendingParts(single, node_info.free_max, [], Ranks({}), [])
    return empty.joined(PodParts(every, seek))


def joined(
    pending: PendingParts, charge: Charge, node_info: NodeInfo, report: Report
) -> PendingParts | None:
    """Return the parts with one more assumed pod on an otherwise unchanged node."""
    if not charge.zones:
        return pending
    parts = _parts_of_charge(charge, node_info, report)
    return pending.joined(parts) if parts is not None else None


def _parts_of_charge(charge: Charge, node_info: NodeInfo, report: Report) -> PodParts | None:
    """Return the parts; None for a pod that need not take single zones, is partially listed, or may
    have been split next to a pod that ended since.
    """
    node = node_info.ledger
    if any(placement.held for placement in (node.listed or {}).get(charge.key, ())):
        return None
    if (node.ended or node.freed) and may_be_split(charge.demand, report.policy, report.scope):
        return None
    is_admitted = charge.runs_at > 0
    between = node_info.profile.between
    return parts_of(charge.demand, report.policy, report.scope, report, is_admitted, between)


class PendingParts:
    """The parts of all pending pods of one node, and the largest of them that `seek` a zone. `base`
    is `free_min` without these pods, and `rooms` is `free_max`.
    """

    __slots__ = ("_answers", "_packing", "base", "parts", "ranks", "rooms", "seek")

    def __init__(
        self,
        base: Bounds,
        rooms: Bounds,
        parts: list[PendingPart],
        ranks: Ranks,
        seek: list[PendingPart],
    ) -> None:
        self.base, self.rooms, self.parts, self.ranks, self.seek = base, rooms, parts, ranks, seek
        self._packing: Packing | None = None
        self._answers: dict[tuple[int, bool], tuple[Sequence[ContainerDemand], bool]] = {}

    def leave_room_for(
        self,
        demand: Sequence[ContainerDemand],
        policy: str,
        scope: str,
        report: Report,
        between: Collection[str],
        by_counting: bool = False,
    ) -> bool:
        """Return whether a pod with this demand and every other pod find their zones in any order;
        with `by_counting`, whether that follows from their numbers alone.

        The answer is cached, because a refused pod is evaluated again for the explanation.
        """
        key = id(demand), by_counting
        answer = self._answers.get(key)
        if answer is None or answer[0] is not demand:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            newcomer = parts_of(demand, policy, scope, report, between=between)
            finds = newcomer is not None and every_part_finds_a_zone(self, newcomer, by_counting)
            answer = self._answers[key] = demand, finds
        return answer[1]

    @property
    def packing(self) -> Packing:
        """Return the parts as arrays."""
        if self._packing is None:
            self._packing = Packing.of(self.parts, self.base, self.rooms)
        return self._packing

    def joined(self, pod: PodParts) -> PendingParts:
        """Return the parts with one pod more, which leaves the bounds as they are."""
        pending = PendingParts(
            self.base,
            self.rooms,
            [*self.parts, *pod.every],
            self.ranks.joined(_takes(pod.every)),
            _largest([*self.seek, *pod.seek]),
        )
        if self._packing is not None:
            pending._packing = self._packing.joined(pod.every)
        return pending


def every_part_finds_a_zone(
    pending: PendingParts, newcomer: PodParts, by_counting: bool = False
) -> bool:
    """Return True if each pending part and each part of the new pod finds a zone in any order;
    `by_counting` as in `leave_room_for`.
    """
    ranks = pending.ranks.joined(_takes(newcomer.every))
    parts = [*pending.parts, *newcomer.every]

    def is_doubtful(part: PendingPart) -> bool:
        return not _too_few_takers(part.asked, pending.base, ranks, len(parts) - 1)

    if by_counting and any(map(is_doubtful, newcomer.seek)):  # nearly always in a full cluster
        return False
    doubtful = {id(part) for part in _largest([*newcomer.seek, *pending.seek]) if is_doubtful(part)}
    if by_counting or not doubtful:
        return not doubtful
    seekers = [index for index, part in enumerate(parts) if id(part) in doubtful]
    if len(seekers) * len(parts) * len(pending.base) > HANDFUL:
        packed = pending.packing.joined(newcomer.every)
        if each_is_left_a_zone(packed, seekers):
            return True
    return all(
        is_left_a_zone(
            parts[index].asked, pending.base, pending.rooms, parts[:index] + parts[index + 1 :]
        )
        for index in reversed(seekers)
    )


def _takes(parts: Iterable[PendingPart]) -> list[Amounts]:
    return [part.take for part in parts]


def _is_covered_by(part: PendingPart, larger: PendingPart) -> bool:
    """Return whether a zone that remains for the larger part remains for this one, because it fits
    wherever the larger one does and takes no more.
    """
    if part.asked != part.take or larger.asked != larger.take:
        return False
    return part.asked == larger.asked or fits(part.asked, larger.asked)


def _largest(parts: Sequence[PendingPart]) -> list[PendingPart]:
    """Return the parts that no other part covers."""
    largest: list[PendingPart] = []
    for part in parts:
        if not any(_is_covered_by(part, larger) for larger in largest):
            largest = [smaller for smaller in largest if not _is_covered_by(smaller, part)]
            largest.append(part)
    return largest


# -- counting


class Ranks:
    """By resource, the sums of the largest amounts that parts take: how many parts it takes to use
    a given amount.
    """

    __slots__ = ("_amounts", "_sums")

    def __init__(self, amounts: Mapping[str, list[int]]) -> None:
        """`amounts` are negative and ascending: the largest first."""
        self._amounts = amounts
        self._sums: dict[str, list[int]] = {}

    def joined(self, more: Iterable[Amounts]) -> Ranks:
        """Return the ranks with these parts added."""
        joined_amounts = {name: list(amounts) for name, amounts in self._amounts.items()}
        for amounts in more:
            for name, amount in amounts.items():
                insort(joined_amounts.setdefault(name, []), -amount)
        return Ranks(joined_amounts)

    def sums(self, name: str) -> list[int]:
        """Return the sums of the largest part, of the two largest parts, and so on."""
        sums = self._sums.get(name)
        if sums is None:
            largest_first = [-amount for amount in self._amounts.get(name, ())]
            sums = self._sums[name] = list(accumulate(largest_first))
        return sums


def _too_few_takers(asked: Amounts, base: Bounds, others: Ranks, most_parts: int) -> bool:
    """Return whether more than `most_parts` other parts would be needed to take every zone that
    fits.

    It runs for every pending part, so it uses plain loops.
    """
    requests, needed = [(name, amount, others.sums(name)) for name, amount in asked.items()], 0
    for zone in base.values():
        fewest = most_parts + 1
        for name, amount, sums in requests:
            slack = zone.get(name, 0) - amount
            if slack < 0:
                break
            fewest = min(fewest, bisect_right(sums, slack) + 1)
        else:
            needed += fewest
            if needed > most_parts:
                return True
    return False


# -- covering, the loop form


class _Zone(NamedTuple):
    """A zone that could hold the seeker: its needs, and what the other parts cover of it, together
    and each by itself.
    """

    covered: int
    shares: list[int]
    needs: Amounts


def is_left_a_zone(
    asked: Amounts, base: Bounds, rooms: Bounds, others: Sequence[PendingPart]
) -> bool:
    """Return True if a zone remains for the `asked` amounts, wherever the other parts are. Without
    the others, zones have at least `base` and at most `rooms` free.
    """
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
    for count in range(2, len(zones) + 1):
        if any(_is_uncovered(zones[:count], name) for name in (_EQUAL, *wanted)):
            return True
    return False


def _covered(zone: _Zone) -> int:
    return zone.covered


def _may_stand(asked: Amounts, room: Amounts) -> bool:
    """Return whether a part may be in a zone with this room. Only CPUs and memory decide, because a
    device that it holds may have vanished."""
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


def _is_uncovered(zones: Sequence[_Zone], weighed_by: str) -> bool:
    weights = [zone.needs.get(weighed_by, 1) for zone in zones]
    weighted = [
        [weight * share for share in zone.shares]
        for weight, zone in zip(weights, zones, strict=True)
    ]
    covered: int = sum(map(max, zip(*weighted, strict=True)))
    return covered < sum(weights) * WHOLE


# -- covering, the array form


class Packing(NamedTuple):
    """Parts and zones as arrays. `asked` and `take` are [part, resource]. Without the parts, zones
    have at least `base` and at most `rooms` free [zone, resource]. The last resource has no name,
    and no zone has any of it.
    """

    names: tuple[str, ...]
    asked: Ints
    take: Ints
    base: Ints
    rooms: Ints

    @classmethod
    def of(cls, parts: Sequence[PendingPart], base: Bounds, rooms: Bounds) -> Packing:
        """In the order of `parts`, and of the zones in `base`."""
        names = tuple(sorted({name for free in base.values() for name in free}))
        empty = np.zeros((0, len(names) + 1), dtype=np.int64)
        free_min = _rows(list(base.values()), names, MOST_AMOUNT)
        free_max = _rows([rooms.get(zone, {}) for zone in base], names)
        return cls(names, empty, empty, free_min, free_max).joined(parts)

    def joined(self, parts: Sequence[PendingPart]) -> Packing:
        """Return the packing with these parts added."""
        asked = _rows([part.asked for part in parts], self.names)
        take = _rows([part.take for part in parts], self.names)
        return self._replace(
            asked=np.concatenate((self.asked, asked)), take=np.concatenate((self.take, take))
        )


def _rows(parts: Sequence[Amounts], names: tuple[str, ...], limit: int = MOST_AMOUNT + 1) -> Ints:
    """Clip amounts: a free amount then counts as less than a requested one."""
    rows = []
    for amounts in parts:
        row = [amounts.get(name, 0) for name in names]
        row.append(sum(amounts.values()) - sum(row))
        if max(row) > limit or min(row) < -limit:
            row = [max(-limit, min(limit, amount)) for amount in row]
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, len(names) + 1)


def each_is_left_a_zone(packing: Packing, seekers: Sequence[int]) -> bool:
    """Return True if a zone remains for each of these parts, wherever all other parts are."""
    stands = _stands(packing)
    step = max(1, AT_ONCE // max(1, packing.base.size * len(packing.asked)))
    for first in range(0, len(seekers), step):
        some_seekers = np.array(seekers[first : first + step], dtype=np.int64)
        if not _cannot_be_covered(packing, stands, some_seekers):
            return False
    return True


def _stands(packing: Packing) -> Bools:
    """Return [zone, part]: whether the part may be in the zone; see `_may_stand`."""
    plain = [index for index, name in enumerate(packing.names) if not is_device(name)]
    stands: Bools = np.all(packing.asked[:, plain] <= packing.rooms[:, None, plain], axis=2)
    return stands


def _cannot_be_covered(packing: Packing, stands: Bools, seekers: Ints) -> bool:
    """Return True if, for every seeker, the other parts cannot cover all of its zones. Arrays are
    [seeker, zone, ...], zones in the order in which others cover them least; zones that cannot hold
    the seeker come last.
    """
    asked, index = packing.asked[seekers, None, :], np.arange(len(seekers))
    needs = packing.base - asked + 1
    holds = ((needs > 0) | (asked == 0)).all(axis=2)
    needs = np.where((asked > 0) & holds[:, :, None], needs, 0)
    shares = _shares(packing.take, needs) * stands
    shares[index, :, seekers] = 0
    covered = np.where(holds, shares.sum(axis=2), len(packing.take) * WHOLE + 1)
    order = np.argsort(covered, axis=1, kind="stable")
    shares = shares[index[:, None], order]
    weights = _weights(needs, holds)[index[:, None], order]
    weighted = weights[:, :, :, None] * shares[:, :, None, :]
    most_covered = np.maximum.accumulate(weighted, axis=1).sum(axis=3)
    return bool((most_covered < np.cumsum(weights, axis=1) * WHOLE).any(axis=(1, 2)).all())


def _shares(take: Ints, needs: Ints) -> Ints:
    """Return the share of each zone that each part covers [seeker, zone, part]. A need of 0 does
    not count.

    In units that keep products exact, taken amounts are rounded up and needed ones down.
    """
    shares = np.zeros((*needs.shape[:2], len(take)), dtype=np.int64)
    for taken, need in zip(take.T, np.moveaxis(needs, 2, 0)[..., None], strict=True):
        largest = max(int(taken.max(initial=0)), int(need.max(initial=0)))
        if taken.any() and need.any():
            unit = -(-largest // MOST_UNITS)
            share = -(taken // -unit * WHOLE // np.maximum(need // unit, 1))
            np.maximum(shares, share, out=shares, where=need > 0)
    return np.minimum(shares, WHOLE)


def _weights(needs: Ints, holds: Bools) -> Ints:
    """Return the weights [seeker, zone, kind]: 1, and the zone's needs, in units that keep sums
    exact."""
    units = np.maximum(1, -(-needs.max(axis=1, keepdims=True, initial=0) // MOST_WEIGHT))
    return np.concatenate((holds[:, :, None], needs // units), axis=2)
