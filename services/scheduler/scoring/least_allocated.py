"""LeastAllocated: the more of a zone stays free after the pod, the better. Spreads load over nodes.

This one takes the worst zone that fits, like all strategies here. The cycle knows `strategy: LeastAllocated` by a form of its own
(`cycle/scoring.py`) that takes the best zone: that score only falls while reservations fill a node, so that a kept one bounds
the true one and one look is enough; the kubelet may choose another of the zones that fit. Under `compat: upstream` the plugin's
own counts (`compat/score_least_allocated.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.scoring.percent import Floats, floored_percent, weighted_mean, weighted_mean_columns, worst_zone
from services.scheduler.scoring.strategy import Bools, Distances, Ints, ZoneView
from shared.domain.resources import Amounts


class LeastAllocated:
    """100 * (available - request) / allocatable, weighted over resources, in the worst zone that fits."""

    name = "LeastAllocated"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self, request: Amounts, zones: Sequence[ZoneView], distances: Distances, weights: Mapping[str, int], max_zones: int
    ) -> int:
        """0..100; distances and the zone limit play no part."""
        return worst_zone(request, zones, lambda wanted, zone: weighted_mean(wanted, zone, weights, _percent))

    def score_nodes(self, request: Ints, available: Ints, allocatable: Ints, present: Bools, fits: Bools, weights: Ints) -> Ints:
        """The same for columns; see `ColumnStrategy`."""
        return weighted_mean_columns(request, available, allocatable, present, fits, weights, _percent_column)


def _percent(request: int, available: int, allocatable: int) -> int:
    return (available - request) * 100 // allocatable


def _percent_column(request: int, available: Ints, allocatable: Ints, out: Floats) -> None:
    np.subtract(available, request, out=out, casting="unsafe")
    floored_percent(out, allocatable, out)
