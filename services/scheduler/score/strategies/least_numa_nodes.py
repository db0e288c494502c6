"""The smallest set of zones that can hold a request together, and whether a nearer set of that size
exists.

A set needs the amounts in sum, not each resource in each zone, so a device on one zone and cpu
spread over two are held by two. Search is bounded: sizes that cannot suffice are passed over, and
the sets of one size are looked at, lowest ids first, until the size's share of `LIMIT_PAIRS`
distances is used up (never up to 14 zones).

A pod's score by a strategy that compares sets of zones: the least over its containers, each on
what those before it leave.

An app container or sidecar holds its share from then on, an ordinary init container leaves nothing
held (its CPUs and devices are reused by the containers after it). Each container is taken to land
as the kubelet would put it: lowest single zone, else smallest set.

LeastNUMANodes: the fewer zones the request needs, the better; a set as near together as any of
its size gains half a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def score_containers(
    strategy: Strategy,
    containers: Iterable[Container],
    zones: Sequence[ZoneView],
    distances: Distances,
    weights: Mapping[str, int],
    max_zones: int,
) -> int:
    """0..100 over the containers that ask something of zones; 0 as soon as one of them has no
    place.
    """
    scores = []
    for container in containers:
        if not zoned(container.requests, zones):
            continue
        held_in = _landing(container.requests, zones, distances, max_zones)
        if not held_in:
            return WORST
        scores.append(strategy.score(container.requests, zones, distances, weights, max_zones))
        if container.kind != "init":
            zones = take(container.requests, zones, held_in)
    if not scores:
        return BEST if zones else WORST
    return min(scores)


def take(
    request: Amounts, zones: Sequence[ZoneView], held_in: Sequence[int]
) -> tuple[ZoneView, ...]:
    """The zones after the request took what it can from those of `held_in`, lowest id first."""
    left = zoned(request, zones)
    after = []
    for zone in sorted(zones, key=lambda each: each.id):
        if zone.id in held_in:
            taken = {
                name: min(amount, zone.available.get(name, 0)) for name, amount in left.items()
            }
            left = {name: amount - taken[name] for name, amount in left.items()}
            remaining = {
                name: amount - taken.get(name, 0) for name, amount in zone.available.items()
            }
            zone = msgspec.structs.replace(
                zone, available=remaining, used=zone.used or any(taken.values())
            )
        after.append(zone)
    return tuple(after)


def _landing(
    request: Amounts, zones: Sequence[ZoneView], distances: Distances, max_zones: int
) -> tuple[int, ...]:
    alone = fitting(request, zones)
    if alone:
        return (alone[0].id,)
    found = smallest_set(request, zones, distances, max_zones)
    return found.ids if found else ()


LIMIT_ZONES = 64


class LeastNumaNodes:
    """With a limit of m zones a set of n scores 100 * (2m - 2n) / 2m, or one half step (100 / 2m)
    more when nearest.
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
        """0..100; weights play no part."""
        if not zoned(request, zones):
            return BEST if zones else WORST
        limit = min(max(1, max_zones), LIMIT_ZONES)
        found = smallest_set(request, zones, distances, limit)
        if found is None:
            return WORST
        return BEST * (2 * (limit - len(found.ids)) + found.nearest) // (2 * limit)

    def most_nodes(self, request: Ints, available: Ints, limits: Ints) -> Ints:
        """The same if the fewest zones that may hold the request do so, and are nearest; see
        `BoundedStrategy`.
        """
        if not len(request):
            return np.full(len(limits), BEST)
        fewest, limit = fewest_zones(request, available), np.clip(limits, 1, LIMIT_ZONES)
        most: Ints = BEST * (2 * (limit - fewest) + 1) // (2 * limit)
        return np.where(fewest > np.minimum(limit, available.shape[1]), WORST, most)
