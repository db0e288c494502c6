"""BalancedAllocation: the closer together the resources of a zone are used, the better, so that
none is stranded.

The measure is the population standard deviation of the used percentages, as in Kubernetes' own
NodeResourcesBalancedAllocation; it exists for one resource (0), needs no float, and weights play no
part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.fit import available_of
from services.scheduler.score.strategies.most_allocated import used_percent, used_percent_column
from services.scheduler.score.strategies.percent import Floats, worst_zone
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Distances,
    Ints,
    ZoneView,
)
from shared.domain.resources import Amounts


class BalancedAllocation:
    """100 less the standard deviation, floored, of the used percentages in the worst zone that
    fits.
    """

    name = "BalancedAllocation"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """50..100 when a zone fits; weights, distances and the zone limit play no part."""
        return worst_zone(request, zones, _zone_score)

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
        total, squares, share = (np.zeros(fits.shape) for _ in range(3))
        count: Floats | int = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            for resource in np.flatnonzero(request > 0):
                used_percent_column(
                    int(request[resource]), available[resource], allocatable[resource], share
                )
                count = count + _listed(present[resource], share)
                np.add(total, share, out=total)
                np.add(squares, np.multiply(share, share, out=share), out=squares)
            np.multiply(squares, count, out=squares)
            np.subtract(squares, np.multiply(total, total, out=total), out=squares)
            return _least_balanced(squares, count, fits)


def _listed(listed: Bools, share: Floats) -> Floats | int:
    """One where the zone lists the resource, else 0 (and no share)."""
    if listed.all():
        return 1
    np.copyto(share, 0.0, where=~listed)
    return listed.astype(np.float64)


def _least_balanced(spread: Floats, count: Floats | int, fits: Bools) -> Ints:
    """100 less the largest deviation over fitting zones; with one count for all, only the largest
    spreads need the root."""
    if not isinstance(count, int):
        np.floor(np.floor(np.sqrt(spread)) / count, out=spread)
        np.multiply(spread, spread, out=spread)
        count = 1
    np.copyto(spread, -1.0, where=~fits)
    worst = np.maximum.reduce(spread, axis=0, initial=-1.0)
    deviation = np.floor(np.floor(np.sqrt(np.maximum(worst, 0))) / max(count, 1))
    scores: Ints = np.where(worst < 0, WORST, BEST - np.nan_to_num(deviation)).astype(np.int64)
    return scores


def _zone_score(wanted: Amounts, zone: ZoneView) -> int:
    used = [
        used_percent(amount, available_of(zone, name), zone.allocatable[name])
        for name, amount in wanted.items()
    ]
    if not used:
        return BEST
    spread = len(used) * sum(percent * percent for percent in used) - sum(used) ** 2
    return BEST - isqrt(spread) // len(used)
