"""The zones that can hold a request alone, for scoring.

A requested resource that no zone of the node lists belongs to the node as a whole and constrains no
zone. cpu, memory and hugepages are different: zones must list them. Zero requests constrain
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from services.scheduler.score.strategies.strategy import Items, ZoneView
from shared.domain.resources import Amounts, is_numa_affine


def zoned(request: Amounts, zones: Iterable[ZoneView]) -> Amounts:
    """Return the part of the request, above zero, that zones decide on, sorted by name."""
    listed = {name for zone in zones for name in zone.allocatable}
    return {
        name: request[name]
        for name in sorted(request)
        if request[name] > 0 and (name in listed or is_numa_affine(name))
    }


def fitting(request: Amounts, zones: Sequence[ZoneView]) -> list[ZoneView]:
    """Return the zones, in ascending order of id, that list and have all of the request."""
    wanted = zoned(request, zones)
    return [zone for zone in sorted(zones, key=_id) if _holds(zone, wanted)]


def _id(zone: ZoneView) -> int:
    return zone.id


def _holds(zone: ZoneView, wanted: Amounts) -> bool:
    return bool(zone.allocatable) and all(
        available_of(zone, name) >= amount for name, amount in wanted.items()
    )


def available_of(zone: ZoneView, name: str) -> int:
    """Return the zone's available amount, bounded by 0 and its allocatable amount."""
    return max(0, min(zone.available.get(name, 0), zone.allocatable.get(name, 0)))


def plain(
    request: Amounts, zones: Sequence[ZoneView]
) -> tuple[Items, dict[int, Amounts], dict[int, Amounts]]:
    """Return the arguments of `PlainStrategy.score_plain`."""
    free = {
        zone.id: {name: available_of(zone, name) for name in zone.allocatable} for zone in zones
    }
    sizes = {zone.id: zone.allocatable for zone in zones}
    return tuple(zoned(request, zones).items()), free, sizes


def lowest_plain(
    asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
) -> int | None:
    """Return the lowest zone with room for all that is asked; see `PlainStrategy`. Runs for every
    node that changed: plain loops.
    """
    for number in sorted(zones):
        if sizes.get(number):
            zone = zones[number]
            for name, amount in asked:
                if zone.get(name, 0) < amount:
                    break
            else:
                return number
    return None
