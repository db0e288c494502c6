"""LeastNUMANodes: the fewer zones the request needs, the better; a set as near together as any of
its size gains half a step.

1. A set of zones needs the amounts in sum, not each resource in each zone: a device on one zone and
   cpu spread over two are held by two. The search is bounded: sizes that cannot suffice are
   skipped, and the sets of one size are tried, lowest ids first, until the size's share of
   `LIMIT_PAIRS` distances is used up (never up to 14 zones).
2. A pod's score is the least over its containers, each on what the containers before it leave. An
   app container or sidecar holds its share from then on. An ordinary init container leaves nothing
   held, because its CPUs and devices are reused by the containers after it. Each container lands as
   the kubelet would put it: in the lowest single zone, else in the smallest set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, islice
from typing import Literal

import msgspec
import numpy as np

from services.scheduler.score.strategies.fit import fitting, zoned
from services.scheduler.score.strategies.strategy import (
    BEST,
    UNKNOWN_DISTANCE,
    WORST,
    Distances,
    Ints,
    Strategy,
    ZoneView,
)
from shared.domain.pod import Container
from shared.domain.resources import Amounts

LIMIT_PAIRS = 4_000_000
# A larger request counts as this: the sum over 64 zones is an int64.
LIMIT_AMOUNT = 2**56
LIMIT_ZONES = 64


class LeastNumaNodes:
    """With a limit of m zones a set of n scores 100 * (2m - 2n) / 2m, and half a step (100 / 2m)
    more if it is nearest.
    """

    name = "LeastNUMANodes"
    combine: Literal["mean", "least"] = "least"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """Return 0..100; weights do not matter."""
        if not zoned(request, zones):
            return BEST if zones else WORST
        limit = min(max(1, max_zones), LIMIT_ZONES)
        smallest = smallest_set(request, zones, distances, limit)
        if smallest is None:
            return WORST
        return BEST * (2 * (limit - len(smallest.ids)) + smallest.nearest) // (2 * limit)

    def most_nodes(self, request: Ints, available: Ints, limits: Ints) -> Ints:
        """See `BoundedStrategy`: the fewest zones that may hold the request do, and are nearest."""
        if not len(request):
            return np.full(len(limits), BEST)
        fewest, limit = fewest_zones(request, available), np.clip(limits, 1, LIMIT_ZONES)
        most: Ints = BEST * (2 * (limit - fewest) + 1) // (2 * limit)
        return np.where(fewest > np.minimum(limit, available.shape[1]), WORST, most)


class ZoneSet(msgspec.Struct, frozen=True):
    """Zone ids in ascending order. `nearest`: no set of that size is nearer, whether it fits or
    not.
    """

    ids: tuple[int, ...]
    nearest: bool


def smallest_set(
    request: Amounts, zones: Sequence[ZoneView], distances: Distances, max_zones: int
) -> ZoneSet | None:
    """Return the nearest fitting set of the smallest size up to `max_zones`, lowest ids first among
    equals; None if none fits.
    """
    wanted = zoned(request, zones)
    ordered = sorted(zones, key=lambda zone: zone.id)
    for size in range(1, min(len(ordered), max_zones) + 1):
        if _could_hold(wanted, ordered, size):
            nearest = _nearest(wanted, ordered, distances, size)
            if nearest is not None:
                return nearest
    return None


def fewest_zones(request: Ints, available: Ints) -> Ints:
    """Return int64[N]: the least size at which the fullest zones hold each resource, for request[R]
    above zero and available[R,Z,N]; one more than there are zones if all of them do not.
    """
    asked = np.minimum(request, LIMIT_AMOUNT)[:, None, None]
    fullest = np.cumsum(np.sort(np.minimum(available, asked), axis=1)[:, ::-1], axis=1)
    short: Ints = np.count_nonzero(fullest < asked, axis=1)
    fewest: Ints = short.max(axis=0) + 1
    return fewest


def _nearest(
    wanted: Amounts, zones: Sequence[ZoneView], distances: Distances, size: int
) -> ZoneSet | None:
    least, best, best_distance = None, None, None
    sets = islice(combinations(zones, size), LIMIT_PAIRS // (len(zones) * size * size) + 1)
    for chosen in sets:
        distance = _distance(chosen, distances)
        least = distance if least is None else min(least, distance)
        if (best_distance is None or distance < best_distance) and _holds(wanted, chosen):
            best, best_distance = chosen, distance
    if best is None:
        return None
    return ZoneSet(tuple(zone.id for zone in best), best_distance == least)


def _distance(chosen: Sequence[ZoneView], distances: Distances) -> int:
    """The sum over ordered pairs; sets of one size compare by it as by the mean."""
    ids = [zone.id for zone in chosen]
    return sum(distances.get((a, b), UNKNOWN_DISTANCE) for a in ids for b in ids)


def _could_hold(wanted: Amounts, zones: Sequence[ZoneView], size: int) -> bool:
    """Necessary: for each resource the `size` fullest zones suffice."""
    for name, amount in wanted.items():
        available = sorted((zone.available.get(name, 0) for zone in zones), reverse=True)
        if sum(available[:size]) < amount:
            return False
    return True


def _holds(wanted: Amounts, chosen: Sequence[ZoneView]) -> bool:
    for name, amount in wanted.items():
        if sum(zone.available.get(name, 0) for zone in chosen) < amount:
            return False
    return True


# -- a pod's containers


def score_containers(
    strategy: Strategy,
    containers: Iterable[Container],
    zones: Sequence[ZoneView],
    distances: Distances,
    weights: Mapping[str, int],
    max_zones: int,
) -> int:
    """Return 0..100 over the containers that request something of zones; 0 as soon as one of them
    has no place.
    """
    scores = []
    for container in containers:
        if not zoned(container.requests, zones):
            continue
        landing = _landing(container.requests, zones, distances, max_zones)
        if not landing:
            return WORST
        scores.append(strategy.score(container.requests, zones, distances, weights, max_zones))
        if container.kind != "init":
            zones = take(container.requests, zones, landing)
    if not scores:
        return BEST if zones else WORST
    return min(scores)


def take(
    request: Amounts, zones: Sequence[ZoneView], zone_ids: Sequence[int]
) -> tuple[ZoneView, ...]:
    """Return the zones after the request took its share in `zone_ids`, lowest first."""
    needed = zoned(request, zones)
    remaining = []
    for zone in sorted(zones, key=lambda view: view.id):
        if zone.id in zone_ids:
            taken = {
                name: min(amount, zone.available.get(name, 0)) for name, amount in needed.items()
            }
            needed = {name: amount - taken[name] for name, amount in needed.items()}
            available = {
                name: amount - taken.get(name, 0) for name, amount in zone.available.items()
            }
            used = zone.used or any(taken.values())
            zone = msgspec.structs.replace(zone, available=available, used=used)
        remaining.append(zone)
    return tuple(remaining)


def _landing(
    request: Amounts, zones: Sequence[ZoneView], distances: Distances, max_zones: int
) -> tuple[int, ...]:
    alone = fitting(request, zones)
    if alone:
        return (alone[0].id,)
    smallest = smallest_set(request, zones, distances, max_zones)
    return smallest.ids if smallest else ()
