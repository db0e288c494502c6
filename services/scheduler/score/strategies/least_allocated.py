"""LeastAllocated: the more of a zone stays free after the pod, the better. Spreads load over nodes.

The zone that suits best counts: its score only falls while reservations fill a node, so that a
score kept from before bounds the true one. The worst zone that fits does not have that: a zone that
no longer fits drops out and lifts it. Deciding has this strategy in a form of its own
(`deciding/scores.py`), for speed; a property test holds the two equal. Under `compat: upstream` the
plugin's own counts (`compat/score_least_allocated.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.percent import (
    Floats,
    best_zone,
    floored_percent,
    weighted_mean,
    weighted_mean_columns,
)
from services.scheduler.score.strategies.strategy import Bools, Distances, Ints, ZoneView
from shared.domain.resources import Amounts


class LeastAllocated:
    """100 * (available - request) / allocatable, weighted over resources, in the best zone that
    fits.
    """

    name = "LeastAllocated"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """0..100; distances and the zone limit play no part."""
        return best_zone(
            request, zones, lambda wanted, zone: weighted_mean(wanted, zone, weights, _percent)
        )

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
        return weighted_mean_columns(
            request, available, allocatable, present, fits, weights, _percent_column, best=True
        )


def _percent(request: int, available: int, allocatable: int) -> int:
    return (available - request) * 100 // allocatable


def _percent_column(request: int, available: Ints, allocatable: Ints, out: Floats) -> None:
    np.subtract(available, request, out=out, casting="unsafe")
    floored_percent(out, allocatable, out)
