"""How large a node's zones are when they are empty: what decides how many zones the kubelet
prefers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations
from typing import NamedTuple

from shared.domain.device_zones import between_zones
from shared.domain.report import Report, Zone
from shared.domain.resources import Amounts, is_memory, memory_of

MOST_ZONES = 8
"""Zones of which all sets are looked at; the kubelet's own limit unless it is raised."""


def size_in(zone: Zone, name: str) -> int:
    """What the kubelet counts for the size of preferred hints: CPUs and devices whole, also
    reserved or unhealthy ones; memory by what is allocatable (kubelet 1.36)."""
    held = zone.resources.get(name)
    if held is None:
        return 0
    return held.allocatable if is_memory(name) else held.capacity


def is_plain(report: Report) -> bool:
    """No options, nothing hidden, no groups of zones, no device between zones: what is free in a
    zone is free there alone.
    """
    if report.options or report.hidden or any(zone.group for zone in report.zones):
        return False
    return not between_zones(report) and all(group.zones for group in report.devices or ())


class Capacities(NamedTuple):
    """`largest` zone by resource. `uneven`: what each zone has of the kinds of memory, where none
    has the most of every kind; empty where one does. Read only."""

    largest: Amounts
    uneven: tuple[Amounts, ...] = ()


_latest: tuple[Report | None, Capacities] = (None, Capacities({}))
"""One node is asked about many times in a row; reports are values, so that the answer stays."""


def capacities(report: Report) -> Capacities:
    """Of the zones when they are empty."""
    global _latest
    if _latest[0] is not report:
        largest = _largest(report)
        kinds = several_kinds_of_memory(largest)
        zones = tuple([{name: size_in(zone, name) for name in kinds} for zone in report.zones])
        _latest = report, Capacities(largest, () if _one_holds(kinds, zones) else zones)
    return _latest[1]


def _largest(report: Report) -> Amounts:
    largest: Amounts = {}
    for zone in report.zones:
        for name in zone.resources:
            largest[name] = max(largest.get(name, 0), size_in(zone, name))
    return largest


def several_kinds_of_memory(amounts: Amounts) -> Amounts:
    """The memory and hugepages of these amounts where they are of more than one kind, else nothing."""
    memory = memory_of(amounts)
    return memory if len(memory) > 1 else {}


def _one_holds(amounts: Amounts, zones: Iterable[Amounts]) -> bool:
    """One zone has all of it."""
    return not amounts or any(
        all(zone.get(name, 0) >= held for name, held in amounts.items()) for zone in zones
    )


def fits_one_zone(parts: Iterable[Amounts], zones: Capacities) -> bool:
    """True when each part fits the largest zone, resource by resource, and one that has all the
    kinds of memory that it asks for: the preferred hints are then single zones. The Memory Manager
    gives one hint for all kinds (kubelet 1.36)."""
    for part in parts:
        if not all(zones.largest.get(name, 0) >= held for name, held in part.items()):
            return False
        if zones.uneven and not _one_holds(several_kinds_of_memory(part), zones.uneven):
            return False
    return True


def widths_at_most(part: Amounts, report: Report) -> Amounts:
    """By resource as many zones as the kubelet prefers, or more: cheap. Of several kinds of memory,
    all.
    """
    several = several_kinds_of_memory(part)
    return {
        name: len(report.zones)
        if name in several
        else _largest_first([size_in(zone, name) for zone in report.zones], held)
        for name, held in part.items()
    }


def preferred_widths(part: Amounts, report: Report) -> Amounts:
    """By resource the fewest zones that hold that much when they are empty: so many the kubelet
    prefers. It is one number for all kinds of memory; all zones where they are too few."""
    memory = memory_of(part)
    together = _fewest(memory, report) if memory else 0
    return {
        name: together if name in memory else _fewest({name: held}, report)
        for name, held in part.items()
    }


def _fewest(amounts: Amounts, report: Report) -> int:
    """Of one resource the largest zones; of several kinds of memory at least as many as of each
    alone.
    """
    zones = [[size_in(zone, name) for name in amounts] for zone in report.zones]
    alone = (
        _largest_first(sizes, held)
        for sizes, held in zip(zip(*zones, strict=True), amounts.values(), strict=True)
    )
    least = max(alone, default=len(zones))
    if len(amounts) == 1:
        return least
    for count in range(least, len(zones) if len(zones) <= MOST_ZONES else 0):
        for chosen in combinations(zones, count):
            if all(
                sum(sizes) >= held
                for sizes, held in zip(zip(*chosen, strict=True), amounts.values(), strict=True)
            ):
                return count
    return len(zones)


def _largest_first(sizes: Sequence[int], asked: int) -> int:
    """How many of the largest hold so much, all of them where they are too few."""
    held = accumulate(sorted(sizes, reverse=True))
    return next((count for count, each in enumerate(held, 1) if each >= asked), len(sizes))
