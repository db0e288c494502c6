"""A pod's score by a strategy that compares sets of zones: the least over its containers, each on
what those before it leave.

An app container or sidecar holds its share from then on, an ordinary init container leaves nothing
held (its CPUs and devices are reused by the containers after it). Each container is taken to land
as the kubelet would put it: lowest single zone, else smallest set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from services.scheduler.score.strategies.fit import fitting, zoned
from services.scheduler.score.strategies.strategy import BEST, WORST, Distances, Strategy, ZoneView
from services.scheduler.score.strategies.zone_sets import smallest_set
from shared.domain.pod import Container
from shared.domain.resources import Amounts


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
