"""LeastNUMANodes: the fewer zones the request needs, the better; a set as near together as any of its size gains half a
step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from services.scheduler.scoring.fit import zoned
from services.scheduler.scoring.strategy import BEST, WORST, Distances, ZoneView
from services.scheduler.scoring.zone_sets import smallest_set
from shared.domain.resources import Amounts

LIMIT_ZONES = 64


class LeastNumaNodes:
    """With a limit of m zones a set of n scores 100 * (2m - 2n) / 2m, or one half step (100 / 2m) more when nearest."""

    name = "LeastNUMANodes"
    combine: Literal["mean", "least"] = "least"

    def score(
        self, request: Amounts, zones: Sequence[ZoneView], distances: Distances, weights: Mapping[str, int], max_zones: int
    ) -> int:
        """0..100; weights play no part."""
        if not zoned(request, zones):
            return BEST if zones else WORST
        limit = min(max(1, max_zones), LIMIT_ZONES)
        found = smallest_set(request, zones, distances, limit)
        if found is None:
            return WORST
        return BEST * (2 * (limit - len(found.ids)) + found.nearest) // (2 * limit)
