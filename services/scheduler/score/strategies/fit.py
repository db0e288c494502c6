"""Which zones can hold a request alone, for scoring.

A requested resource that no zone of the node lists is the host's business and constrains no zone,
unless it is cpu, memory or hugepages, which zones must list. Zero requests constrain nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from services.scheduler.score.strategies.strategy import Items, ZoneView
from shared.domain.resources import Amounts, is_numa_affine


def zoned(request: Amounts, zones: Iterable[ZoneView]) -> Amounts:
    """The part of the request, above zero, that zones decide on, sorted by name."""
    listed = {name for zone in zones for name in zone.allocatable}
    return {
        name: request[name]
        for name in sorted(request)
        if request[name] > 0 and (name in listed or is_numa_affine(name))
    }


def fitting(request: Amounts, zones: Sequence[ZoneView]) -> list[ZoneView]:
    """The zones, in ascending order of id, that list and have every zoned amount of the request."""
    wanted = zoned(request, zones)
    return [zone for zone in sorted(zones, key=lambda each: each.id) if _holds(zone, wanted)]


def available_of(zone: ZoneView, name: str) -> int:
    """The zone's available amount, held within 0 and allocatable whatever the report said; 0 if it
    is not listed.
    """
    return max(0, min(zone.available.get(name, 0), zone.allocatable.get(name, 0)))


def lowest_plain(
    asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
) -> int | None:
    """The lowest zone with room for all that is asked, by what is free and what is allocatable; see
    `PlainStrategy`. Runs for every node that changed: plain loops."""
    for number in sorted(zones):
        if sizes.get(number):
            zone = zones[number]
            for name, amount in asked:
                if zone.get(name, 0) < amount:
                    break
            else:
                return number
    return None


def _holds(zone: ZoneView, wanted: Amounts) -> bool:
    return bool(zone.allocatable) and all(
        available_of(zone, name) >= amount for name, amount in wanted.items()
    )
