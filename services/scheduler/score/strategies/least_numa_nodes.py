"""LeastNUMANodes: the fewer zones the request needs, the better; a set as near together as any of
its size gains half a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.fit import zoned
from services.scheduler.score.strategies.strategy import BEST, WORST, Distances, Ints, ZoneView
from services.scheduler.score.strategies.zone_sets import fewest_zones, smallest_set
from shared.domain.resources import Amounts

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
