"""Distances between a node's zones, as the report has them (SLIT: 10 is the zone itself)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations

from services.scheduler.snapshot.zone_sizes import MOST_ZONES
from shared.domain.report import Report
from shared.hints.observing import UNKNOWN_DISTANCE
from shared.kubelet.masks import mask_of, nodes_of

# Above every `nearness`.
FAR = 1024
# A mean with one such distance is above FAR, of however many zones.
LARGEST = 1 << 24
# Mean distances are integers in quarters.
QUARTERS = 4

# (zone id, zone id) -> distance; a missing pair counts as UNKNOWN_DISTANCE.
Distances = Mapping[tuple[int, int], int]
# The distances as a value that equal machines share.
Costs = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def costs_of(report: Report) -> Costs:
    return tuple([(zone.id, tuple(zone.costs.items())) for zone in report.zones])


def distances_of(report: Report) -> Distances:
    """Return the distance of each pair of zones that the report names."""
    return _distances(costs_of(report))


@lru_cache(maxsize=1024)
def _distances(costs: Costs) -> Distances:
    return {(zone, to_zone): cost for zone, row in costs for to_zone, cost in row}


def distance_rows(costs: Costs) -> list[list[int]]:
    """Return the distances by place of a zone in ascending order. Larger ones than LARGEST count as
    that, which no `nearness` shows.
    """
    distances, zones = _distances(costs), sorted({zone for zone, _ in costs})
    return [
        [min(LARGEST, distances.get((zone, other), UNKNOWN_DISTANCE)) for other in zones]
        for zone in zones
    ]


def nearness(mask: int, distances: Distances) -> int:
    """Return the mean distance between two zones of the mask, in quarters, rounded down and below
    FAR; 0 for a single zone.
    """
    zones = nodes_of(mask)
    if len(zones) < 2:
        return 0
    pairs = [(zone, to_zone) for zone in zones for to_zone in zones if zone != to_zone]
    total = sum([distances.get(pair, UNKNOWN_DISTANCE) for pair in pairs])
    return min(FAR - 1, total * QUARTERS // len(pairs))


@lru_cache(maxsize=1024)
def nearest_by_count(costs: Costs) -> tuple[int, ...]:
    """Return the least `nearness` of 1, 2, ... zones. On machines of many zones the nearest pair
    stands for all larger sets, because no set is nearer than its nearest pair.
    """
    distances, zones = _distances(costs), sorted({zone for zone, _ in costs})
    nearest = [0]
    for count in range(2, len(zones) + 1):
        if count > 2 and len(zones) > MOST_ZONES:
            nearest.append(nearest[1])
        else:
            sets = combinations(zones, count)
            nearest.append(min([nearness(mask_of(chosen), distances) for chosen in sets]))
    return tuple(nearest)
