"""The smallest set of zones that can hold a request together, in the plugin's order of search, with
float32 distances.

The original tries every combination of every size. Here a size is skipped if its best zones cannot
hold the request, with the same answer. Above `LIMIT_ZONES` zones only the first sets of each size
are tried; the original would not finish.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice

import msgspec

from plugins.upstream_compat.amounts import Quantities
from plugins.upstream_compat.zones import NumaZone

UNKNOWN_DISTANCE = 255
LIMIT_PAIRS = 1_000_000
LIMIT_ZONES = 16
Costs = tuple[tuple[int, ...], ...]


class ZoneSet(msgspec.Struct, frozen=True):
    """Positions in the zone list, their distinct ids, and whether no set of that size is nearer."""

    positions: tuple[int, ...]
    ids: frozenset[int]
    nearest: bool


def zones_required(request: Quantities, zones: Sequence[NumaZone]) -> ZoneSet | None:
    """Return the first fitting set of the smallest size at that size's least distance, else the
    nearest fitting one; None if none fits.

    A set counts only if each of its zones names each requested resource, zero quantities included.
    """
    usable = frozenset(
        at for at, zone in enumerate(zones) if all(name in zone.available for name in request)
    )
    costs = tuple(
        tuple(zone.costs.get(other.id, UNKNOWN_DISTANCE) for other in zones) for zone in zones
    )
    for size in range(1, len(zones) + 1):
        if _could_hold(request, [zones[at] for at in usable], size):
            nearest = _nearest(request, zones, usable, costs, size)
            if nearest is not None:
                return nearest
    return None


def _nearest(
    request: Quantities, zones: Sequence[NumaZone], usable: frozenset[int], costs: Costs, size: int
) -> ZoneSet | None:
    least = _least_distance(costs, size)
    best: tuple[int, ...] | None = None
    best_distance = float(UNKNOWN_DISTANCE + 1)
    for positions in _sets(len(zones), size):
        if not usable.issuperset(positions) or not _holds(request, zones, positions):
            continue
        distance = _distance(costs, positions)
        if distance == least:
            return _zone_set(zones, positions, nearest=True)
        if distance < best_distance:
            best, best_distance = positions, distance
    return None if best is None else _zone_set(zones, best, nearest=False)


@lru_cache(maxsize=256)
def _least_distance(costs: Costs, size: int) -> float:
    """Return the least distance of all sets of that size, whether they fit or not; at most that of
    unknown distances.
    """
    sets = _sets(len(costs), size)
    nearest = min(_distance(costs, positions) for positions in sets)
    return min(nearest, float(UNKNOWN_DISTANCE))


def _sets(count: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yield positions in lexicographic order: every set up to `LIMIT_ZONES` zones, beyond that as
    many as the bound allows.
    """
    pairs = LIMIT_PAIRS if count <= LIMIT_ZONES else LIMIT_PAIRS // count
    return islice(combinations(range(count), size), pairs // (size * size) + 1)


def _distance(costs: Costs, positions: tuple[int, ...]) -> float:
    """Return the mean over ordered pairs, each zone with itself included, as a float32."""
    total = sum(costs[one][other] for one in positions for other in positions)
    return _float32(_float32(total) / _float32(len(positions) ** 2))


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _could_hold(request: Quantities, zones: Sequence[NumaZone], size: int) -> bool:
    """Return whether the `size` fullest zones of each resource reach the request, which is
    necessary.
    """
    if len(zones) < size:
        return False
    return all(
        sum(sorted((zone.available[name].nano for zone in zones), reverse=True)[:size])
        >= quantity.nano
        for name, quantity in request.items()
    )


def _holds(request: Quantities, zones: Sequence[NumaZone], positions: tuple[int, ...]) -> bool:
    return all(
        sum(zones[at].available[name].nano for at in positions) >= quantity.nano
        for name, quantity in request.items()
    )


def _zone_set(zones: Sequence[NumaZone], positions: tuple[int, ...], nearest: bool) -> ZoneSet:
    return ZoneSet(positions, frozenset(zones[at].id for at in positions), nearest)
