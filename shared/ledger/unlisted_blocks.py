"""Memory blocks that a report without placements counts but does not list: every way in which they
may lie in zones.

1. The pods are known, because a fingerprint confirmed them, and each container has one block: all
   its memory and hugepages, on one zone or on a group of zones.

2. resource-topology-exporter counts a block over several zones in full in each of them, and no
   zone below 0. NFD drains the zones in turn, so that its amounts do not show a group. An object
   that does not say who wrote it may be counted either way.

3. Groups never overlap (kubelet 1.36, Memory Manager). Under restricted only a container that no
   empty zone holds gets a group; under best-effort and none any container may have one.

4. Only what a kubelet's state depends on is enumerated: the groups, the bytes in each, and what
   zones of a group hold besides. The number of blocks in a zone does not matter until one ends.

Must not know CPUs, devices or states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from shared.domain.demand import ContainerDemand
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Report, ZonedAmount
from shared.domain.resources import is_memory
from shared.hints.splits import TooManyChoicesError
from shared.ledger.confirmation import is_confirmed_by_match
from shared.ledger.state import LedgerNode

# Steps of the enumeration. Half-full nodes need a few dozen.
MOST_STEPS = 4000
# Different sizes of blocks of which every division over zones is tried.
MOST_SIZES = 6

# Amounts of a block, or of a zone, in the order of `_Search.names`.
Sizes = tuple[int, ...]
Way = tuple[ZonedAmount, ...]


class _Zone(NamedTuple):
    """`is_full`: by resource, nothing is reported as free, so that more than `used` may be
    counted."""

    id: int
    allocatable: Sizes
    used: Sizes
    is_full: tuple[bool, ...]


def ways_on(node: LedgerNode, policy: str = "") -> list[Way] | None:
    """Return every way in which memory blocks may lie on a node whose basis lists no placements,
    under its own policy or another one; None if that is not known: pods ended since, or there are
    too many ways."""
    basis = node.basis
    if basis is None or node.freed:
        return None
    # Not `charge.confirmed`: bounds are computed before the charges are compared with a report.
    demands = [
        charge.demand for charge in node.charges.values() if is_confirmed_by_match(node, charge)
    ]
    try:
        return ways_to_lie(basis, demands, policy or basis.policy) or None
    except TooManyChoicesError:
        return None


def zones_in_groups(node: LedgerNode) -> frozenset[int]:
    """Return the zones of a node without placements that may hold a part of a block over several
    zones."""
    basis = node.basis
    if basis is None or basis.policy == SINGLE_NUMA_NODE or not _uses_memory(basis):
        return frozenset()
    ways = ways_on(node)
    if ways is None:
        return frozenset(zone.id for zone in basis.zones)
    return frozenset(
        zone for way in ways for item in way if len(item.zones) > 1 for zone in item.zones
    )


def _uses_memory(report: Report) -> bool:
    for zone in report.zones:
        for name, amounts in zone.resources.items():
            if is_memory(name) and amounts.available < amounts.allocatable:
                return True
    return False


def ways_to_lie(
    report: Report, demands: Iterable[tuple[ContainerDemand, ...]], policy: str
) -> list[Way]:
    """Return every way in which the blocks of these pods may lie, as the amounts held in zones and
    groups; empty if no way explains the report. Raises TooManyChoicesError."""
    tracked = {name for zone in report.zones for name in zone.resources if is_memory(name)}
    names = tuple(sorted(tracked.intersection(report.tracked)))
    blocks = [
        tuple([part.amounts.get(name, 0) for name in names])
        for demand in demands
        for part in demand
        if part.kind != "init"
    ]
    blocks = sorted([block for block in blocks if any(block)], reverse=True)
    zones = [_zone(report, number, names) for number in range(len(report.zones))]
    ways = dict.fromkeys(_Search(names, zones, policy, True).ways(blocks))
    if not report.counts_blocks_in_full:
        ways |= dict.fromkeys(_Search(names, zones, policy, False).ways(blocks))
    return list(ways)


def _zone(report: Report, number: int, names: Sequence[str]) -> _Zone:
    zone = report.zones[number]
    amounts = [zone.resources.get(name) for name in names]
    allocatable = tuple([each.allocatable if each is not None else 0 for each in amounts])
    free = [min(each.available, each.allocatable) if each is not None else 0 for each in amounts]
    used = tuple([most - rest for most, rest in zip(allocatable, free, strict=True)])
    full = [most > 0 and not rest for most, rest in zip(allocatable, free, strict=True)]
    return _Zone(zone.id, allocatable, used, tuple(full))


# Group of zones, by position -> bytes in it.
Groups = dict[tuple[int, ...], Sizes]
# What each zone holds.
Division = tuple[Sizes, ...]


class _Search:
    """`in_full`: a block over several zones is counted in each of them."""

    def __init__(
        self, names: Sequence[str], zones: Sequence[_Zone], policy: str, in_full: bool
    ) -> None:
        self.names, self.zones, self.policy, self.in_full = names, zones, policy, in_full
        self.rows = range(len(names))
        self.nothing: Sizes = (0,) * len(names)
        self.steps = MOST_STEPS
        self.excess: list[int | None] = []
        self._ways: dict[Way, None] = {}

    def ways(self, blocks: Sequence[Sizes]) -> Iterable[Way]:
        self.excess = [self._excess(blocks, row) for row in self.rows]
        if any(excess is not None and excess < 0 for excess in self.excess):
            return ()
        if self.in_full and all(excess == 0 for excess in self.excess):
            return [self._way({}, tuple([zone.used for zone in self.zones]))]
        self._choose(blocks, 0, {}, [])
        return self._ways

    def _excess(self, blocks: Sequence[Sizes], row: int) -> int | None:
        """Return by how much more is counted than there is, because of groups; None if a full zone
        leaves that open."""
        counted = sum(zone.used[row] for zone in self.zones)
        excess = counted - sum(block[row] for block in blocks)
        if not self.in_full:
            return 0 if excess == 0 else -1
        return None if any(zone.is_full[row] for zone in self.zones) else excess

    def _choose(
        self, blocks: Sequence[Sizes], position: int, groups: Groups, singles: list[Sizes]
    ) -> None:
        """Choose for each block whether it lies in one zone or in which group."""
        self.steps -= 1
        if self.steps < 0:
            raise TooManyChoicesError
        if position == len(blocks):
            if all(over in (0, None) for over in self._unexplained(groups)):
                self._fill_zones(groups, singles)
            return
        block = blocks[position]
        fits_one_zone = any(_holds(zone.allocatable, block) for zone in self.zones)
        if fits_one_zone:
            self._choose(blocks, position + 1, groups, [*singles, block])
        if self.policy == SINGLE_NUMA_NODE or (self.policy == RESTRICTED and fits_one_zone):
            return
        for mask in self._masks(groups):
            larger = {**groups, mask: _plus(groups.get(mask, self.nothing), block)}
            if self._may_hold(mask, larger[mask]) and not any(
                over is not None and over < 0 for over in self._unexplained(larger)
            ):
                self._choose(blocks, position + 1, larger, singles)

    def _unexplained(self, groups: Groups) -> list[int | None]:
        if not self.in_full:
            return []
        more = [
            sum((len(mask) - 1) * size[row] for mask, size in groups.items()) for row in self.rows
        ]
        return [
            excess if excess is None else excess - counted
            for excess, counted in zip(self.excess, more, strict=True)
        ]

    def _masks(self, groups: Groups) -> list[tuple[int, ...]]:
        """Return the groups there are, and the further ones that do not overlap them."""
        taken = {number for mask in groups for number in mask}
        others = [number for number in range(len(self.zones)) if number not in taken]
        more = [mask for size in range(2, len(others) + 1) for mask in combinations(others, size)]
        return [*groups, *more]

    def _may_hold(self, mask: tuple[int, ...], size: Sizes) -> bool:
        zones = [self.zones[number] for number in mask]
        for row, amount in enumerate(size):
            if amount > sum(zone.allocatable[row] for zone in zones):
                return False
            if not self.in_full:
                if amount > sum(zone.used[row] for zone in zones):
                    return False
            elif any(amount > zone.used[row] and not zone.is_full[row] for zone in zones):
                return False
        return True

    def _fill_zones(self, groups: Groups, singles: Sequence[Sizes]) -> None:
        """Add every way in which the other blocks explain what the groups do not."""
        least, most = self._left_for_singles(groups)
        if least == most and len(dict.fromkeys(singles)) > MOST_SIZES:
            ways = [least]  # too many to try: some division is assumed to exist
        else:
            ways = self._divisions(singles, least, most)
        for division in ways:
            if self._explains(groups, division):
                self._ways[self._way(groups, division)] = None

    def _left_for_singles(self, groups: Groups) -> tuple[Division, Division]:
        """Return by zone the least and the most that blocks of its own take."""
        group_of = {number: mask for mask in groups for number in mask}
        least, most = [], []
        for number, zone in enumerate(self.zones):
            mask = group_of.get(number)
            if mask is None:
                least.append(zone.used)
                most.append(zone.used)
            elif self.in_full:
                pairs = zip(zone.used, groups[mask], strict=True)
                rest = tuple([max(0, used - size) for used, size in pairs])
                triples = zip(rest, zone.is_full, zone.allocatable, strict=True)
                least.append(rest)
                most.append(tuple([room if full else amount for amount, full, room in triples]))
            else:
                least.append(self.nothing)
                most.append(zone.allocatable)
        return tuple(least), tuple(most)

    def _explains(self, groups: Groups, division: Division) -> bool:
        """Compare each group's sum with its zones."""
        for mask, size in groups.items():
            for row in self.rows:
                total = size[row] + sum(division[number][row] for number in mask)
                zones = [self.zones[number] for number in mask]
                if total > sum(zone.allocatable[row] for zone in zones):
                    return False
                if not self.in_full and total != sum(zone.used[row] for zone in zones):
                    return False
        return True

    def _divisions(
        self, singles: Sequence[Sizes], least: Division, most: Division
    ) -> list[Division]:
        """Return what zones may hold of these blocks together, between `least` and `most`."""
        reached = {tuple([self.nothing] * len(self.zones)): None}
        for block in singles:
            further: dict[Division, None] = {}
            for division in reached:
                for number in range(len(self.zones)):
                    self.steps -= 1
                    if self.steps < 0:
                        raise TooManyChoicesError
                    more = _plus(division[number], block)
                    if _holds(most[number], more):
                        further[(*division[:number], more, *division[number + 1 :])] = None
            reached = further
        return [
            division
            for division in reached
            if all(_holds(amounts, floor) for amounts, floor in zip(division, least, strict=True))
        ]

    def _way(self, groups: Groups, held: Division) -> Way:
        """Blocks of one zone are shown as one."""
        items = [
            ZonedAmount(name, (zone.id,), sizes[row])
            for zone, sizes in zip(self.zones, held, strict=True)
            for row, name in enumerate(self.names)
            if sizes[row]
        ]
        items += [
            ZonedAmount(name, tuple(self.zones[number].id for number in mask), sizes[row])
            for mask, sizes in sorted(groups.items())
            for row, name in enumerate(self.names)
            if sizes[row]
        ]
        return tuple(items)


def _holds(room: Sizes, block: Sizes) -> bool:
    return all(amount <= rest for amount, rest in zip(block, room, strict=True))


def _plus(sizes: Sizes, others: Sizes) -> Sizes:
    return tuple([size + other for size, other in zip(sizes, others, strict=True)])
