"""The sizes of a node's empty zones: they decide how many zones the kubelet prefers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations
from typing import NamedTuple

from shared.domain.report import Report, Zone
from shared.domain.resources import Amounts, is_memory, memory_of

# Up to this many zones all sets are tried; it is the kubelet's own limit unless that is raised.
MOST_ZONES = 8


class Capacities(NamedTuple):
    """`largest` zone by resource. `uneven` has the kinds of memory of each zone if no zone has the
    most of every kind, and is empty otherwise. Read only.
    """

    largest: Amounts
    uneven: tuple[Amounts, ...] = ()


# One node is asked for many times in a row, and reports are values.
_latest: tuple[Report | None, Capacities] = (None, Capacities({}))


def capacities(report: Report) -> Capacities:
    """Return the capacities of the zones when they are empty."""
    global _latest
    if _latest[0] is not report:
        largest: Amounts = {}
        for zone in report.zones:
            for name in zone.resources:
                largest[name] = max(largest.get(name, 0), size_in(zone, name))
        kinds = several_kinds_of_memory(largest)
        zones = tuple([{name: size_in(zone, name) for name in kinds} for zone in report.zones])
        _latest = report, Capacities(largest, () if _one_holds(kinds, zones) else zones)
    return _latest[1]


def size_in(zone: Zone, name: str) -> int:
    """Return the size that the kubelet counts for preferred hints: CPUs and devices whole, also
    reserved or unhealthy ones; memory by allocatable (kubelet 1.36).
    """
    resource = zone.resources.get(name)
    if resource is None:
        return 0
    return resource.allocatable if is_memory(name) else resource.capacity


def several_kinds_of_memory(amounts: Amounts) -> Amounts:
    """Return the memory and hugepages of these amounts if they are of more than one kind."""
    memory = memory_of(amounts)
    return memory if len(memory) > 1 else {}


def _one_holds(amounts: Amounts, zones: Iterable[Amounts]) -> bool:
    """Return whether one zone has all of it."""
    if not amounts:
        return True
    for zone in zones:
        if all(zone.get(name, 0) >= amount for name, amount in amounts.items()):
            return True
    return False


def fits_one_zone(parts: Iterable[Amounts], zones: Capacities) -> bool:
    """Return whether each part fits the largest zone, resource by resource, and one zone that has
    all the kinds of memory that it requests: the preferred hints are then single zones. The Memory
    Manager gives one hint for all kinds (kubelet 1.36).
    """
    for part in parts:
        if not all(zones.largest.get(name, 0) >= amount for name, amount in part.items()):
            return False
        if zones.uneven and not _one_holds(several_kinds_of_memory(part), zones.uneven):
            return False
    return True


def widths_at_most(part: Amounts, report: Report) -> Amounts:
    """Return by resource as many zones as the kubelet prefers, or more: cheap. Of several kinds of
    memory, all zones.
    """
    several = several_kinds_of_memory(part)
    widths: Amounts = {}
    for name, amount in part.items():
        if name in several:
            widths[name] = len(report.zones)
        else:
            widths[name] = _largest_first([size_in(zone, name) for zone in report.zones], amount)
    return widths


def preferred_widths(part: Amounts, report: Report) -> Amounts:
    """Return by resource the fewest zones that hold that much when they are empty: the kubelet
    prefers that many. It is one number for all kinds of memory, and all zones if they are too few.
    """
    memory = memory_of(part)
    together = _fewest(memory, report) if memory else 0
    return {
        name: together if name in memory else _fewest({name: amount}, report)
        for name, amount in part.items()
    }


def _fewest(amounts: Amounts, report: Report) -> int:
    """Return the fewest zones: of one resource the largest zones; of several kinds of memory at
    least as many as of each alone.
    """
    zones = [[size_in(zone, name) for name in amounts] for zone in report.zones]
    least = max(
        [
            _largest_first([zone[row] for zone in zones], amount)
            for row, amount in enumerate(amounts.values())
        ],
        default=len(zones),
    )
    if len(amounts) == 1:
        return least
    for count in range(least, len(zones) if len(zones) <= MOST_ZONES else 0):
        if any(_hold(chosen, amounts) for chosen in combinations(zones, count)):
            return count
    return len(zones)


def _hold(chosen: Sequence[list[int]], amounts: Amounts) -> bool:
    sums = map(sum, zip(*chosen, strict=True))
    return all(size >= amount for size, amount in zip(sums, amounts.values(), strict=True))


def _largest_first(sizes: Sequence[int], amount: int) -> int:
    """Return how many of the largest zones hold the amount; all of them if they are too few."""
    for count, total in enumerate(accumulate(sorted(sizes, reverse=True)), 1):
        if total >= amount:
            return count
    return len(sizes)
