"""MostAllocated: the fuller a zone becomes by the pod, the better. Packs load onto few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.percent import (
    Floats,
    floored_percent,
    weighted_mean,
    weighted_mean_columns,
    worst_zone,
)
from services.scheduler.score.strategies.strategy import Bools, Distances, Ints, ZoneView
from shared.domain.resources import Amounts


class MostAllocated:
    """100 * (allocatable - available + request) / allocatable, weighted over resources, in the
    worst zone that fits.
    """

    name = "MostAllocated"
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
        return worst_zone(
            request, zones, lambda wanted, zone: weighted_mean(wanted, zone, weights, used_percent)
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
            request, available, allocatable, present, fits, weights, used_percent_column
        )


def used_percent(request: int, available: int, allocatable: int) -> int:
    """How full the zone is with the request in it."""
    return (allocatable - available + request) * 100 // allocatable


def used_percent_column(request: int, available: Ints, allocatable: Ints, out: Floats) -> None:
    """The same for columns."""
    np.subtract(allocatable, available, out=out, casting="unsafe")
    np.add(out, request, out=out)
    floored_percent(out, allocatable, out)
