"""Koordinator's LeastAllocated by used NUMA nodes: go where zones are still untouched.

Chosen for a node by its label `node.koordinator.sh/numa-allocate-strategy`; see `node_label`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Distances,
    Ints,
    ZoneView,
)
from services.scheduler.score.strategies.used_zones import (
    used_percent_of_zones,
    used_percent_of_zones_columns,
)
from shared.domain.resources import Amounts


class KoordinatorLeastAllocated:
    """100 less the percentage of zones in use after placement."""

    name = "KoordinatorLeastAllocated"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """0..100; amounts, weights, distances and the zone limit play no part."""
        used = used_percent_of_zones(request, zones)
        return WORST if used is None else BEST - used

    def score_nodes(
        self,
        request: Ints,
        available: Ints,
        allocatable: Ints,
        present: Bools,
        fits: Bools,
        weights: Ints,
        devices: Bools,
    ) -> Ints:
        """The same for columns; see `ColumnStrategy`."""
        used = used_percent_of_zones_columns(available, allocatable, present, fits)
        return np.where(fits.any(axis=0), BEST - used, WORST)
