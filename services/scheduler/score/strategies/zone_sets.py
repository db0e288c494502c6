"""The smallest set of zones that can hold a request together, and whether a nearer set of that size
exists.

A set needs the amounts in sum, not each resource in each zone, so a device on one zone and cpu
spread over two are held by two. Search is bounded: sizes that cannot suffice are passed over, and
the sets of one size are looked at, lowest ids first, until the size's share of `LIMIT_PAIRS`
distances is used up (never up to 14 zones).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

import msgspec
import numpy as np

from services.scheduler.score.strategies.fit import zoned
from services.scheduler.score.strategies.strategy import UNKNOWN_DISTANCE, Distances, Ints, ZoneView
from shared.domain.resources import Amounts

LIMIT_PAIRS = 4_000_000
LIMIT_AMOUNT = 2**56
"""Where more is asked for it counts as this: the sum over 64 zones is an int64."""


class ZoneSet(msgspec.Struct, frozen=True):
    """Zone ids in ascending order; `nearest` says that no set of that size is nearer, whether it
    fits or not.
    """

    ids: tuple[int, ...]
    nearest: bool


def smallest_set(
    request: Amounts, zones: Sequence[ZoneView], distances: Distances, max_zones: int
) -> ZoneSet | None:
    """The nearest fitting set of the smallest size up to `max_zones`, lowest ids first among
    equals; None when none fits."""
    wanted = zoned(request, zones)
    ordered = sorted(zones, key=lambda zone: zone.id)
    for size in range(1, min(len(ordered), max_zones) + 1):
        if _could_hold(wanted, ordered, size):
            found = _nearest(wanted, ordered, distances, size)
            if found is not None:
                return found
    return None


def fewest_zones(request: Ints, available: Ints) -> Ints:
    """int64[N]: the least size at which the fullest zones hold each resource, for request[R] above
    zero and available[R,Z,N]; one more than there are zones where all of them do not."""
    asked = np.minimum(request, LIMIT_AMOUNT)[:, None, None]
    fullest = np.cumsum(np.sort(np.minimum(available, asked), axis=1)[:, ::-1], axis=1)
    short: Ints = np.count_nonzero(fullest < asked, axis=1)
    fewest: Ints = short.max(axis=0) + 1
    return fewest


def _nearest(
    wanted: Amounts, zones: Sequence[ZoneView], distances: Distances, size: int
) -> ZoneSet | None:
    least, best, best_distance = None, None, None
    for chosen in _sets(zones, size):
        distance = _distance(chosen, distances)
        least = distance if least is None else min(least, distance)
        if (best_distance is None or distance < best_distance) and _holds(wanted, chosen):
            best, best_distance = chosen, distance
    return (
        None if best is None else ZoneSet(tuple(zone.id for zone in best), best_distance == least)
    )


def _sets(zones: Sequence[ZoneView], size: int) -> Iterator[tuple[ZoneView, ...]]:
    return islice(combinations(zones, size), LIMIT_PAIRS // (len(zones) * size * size) + 1)


def _distance(chosen: Sequence[ZoneView], distances: Distances) -> int:
    """Sum over ordered pairs; sets of one size compare by it as they would by the mean."""
    return sum(
        distances.get((one.id, other.id), UNKNOWN_DISTANCE) for one in chosen for other in chosen
    )


def _could_hold(wanted: Amounts, zones: Sequence[ZoneView], size: int) -> bool:
    """Necessary: for each resource the `size` fullest zones suffice."""
    return all(
        sum(sorted((zone.available.get(name, 0) for zone in zones), reverse=True)[:size]) >= amount
        for name, amount in wanted.items()
    )


def _holds(wanted: Amounts, chosen: Sequence[ZoneView]) -> bool:
    return all(
        sum(zone.available.get(name, 0) for zone in chosen) >= amount
        for name, amount in wanted.items()
    )
