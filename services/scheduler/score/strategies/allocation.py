"""Strategies by the used share of a zone: MostAllocated, LeastAllocated, BalancedAllocation.

1. The percentage of each requested resource that the zone lists is floored; resources that it does
   not list take no part, so that ephemeral storage and host-level devices dilute nothing. Loops and
   columns floor alike.
2. A zone's score is their weighted mean, or for BalancedAllocation their balance.
3. A node's score is that of its worst zone that fits, because the kubelet, not the scheduler,
   chooses the zone. LeastAllocated takes the best zone: that score only falls while reservations
   fill a node, so that a kept score bounds the true one. A worst zone that no longer fits drops out
   and lifts the score. With the upstream plugin's caches its own counts apply
   (`plugins/upstream_compat`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.fit import available_of, fitting
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Columns,
    Distances,
    Floats,
    Ints,
    ZoneView,
    weight_of,
)
from shared.domain.resources import Amounts

# (request, available, allocatable) -> 0..100.
Percent = Callable[[int, int, int], int]
# (request, available[Z,N], allocatable[Z,N], out[Z,N]): writes floored percentages.
PercentColumn = Callable[[int, Ints, Ints, Floats], None]


class MostAllocated:
    """100 * (allocatable - available + request) / allocatable, weighted over resources, in the
    worst zone that fits: packs load onto few nodes.
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
        """Return 0..100; distances and the limit do not matter."""
        scores = _zone_scores(request, zones, _mean_of(used_percent, weights))
        return min(scores, default=WORST)

    def score_nodes(self, columns: Columns) -> Ints:
        """See `ColumnStrategy`."""
        total, divisor = _weighted_sums(columns, used_percent_column)
        worst = _extreme_mean(total, divisor, columns.fits, np.minimum, np.inf)
        worst[worst > BEST] = WORST
        return worst.astype(np.int64)


class LeastAllocated:
    """100 * (available - request) / allocatable, weighted over resources, in the best zone that
    fits: spreads load over nodes.
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
        """Return 0..100; distances and the limit do not matter."""
        scores = _zone_scores(request, zones, _mean_of(free_percent, weights))
        return max(scores, default=WORST)

    def score_nodes(self, columns: Columns) -> Ints:
        """See `ColumnStrategy`."""
        total, divisor = _weighted_sums(columns, free_percent_column)
        best = _extreme_mean(total, divisor, columns.fits, np.maximum, -np.inf)
        best[best < WORST] = WORST
        return best.astype(np.int64)


class BalancedAllocation:
    """100 less the standard deviation, floored, of the used percentages in the worst zone that
    fits: the closer together the resources are used, the less is stranded.

    The population standard deviation, as in Kubernetes' NodeResourcesBalancedAllocation. It exists
    for one resource (0), needs no float, and weights do not matter.
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
        """Return 50..100 if a zone fits; weights, distances and the limit do not matter."""
        return min(_zone_scores(request, zones, _balance), default=WORST)

    def score_nodes(self, columns: Columns) -> Ints:
        """See `ColumnStrategy`."""
        request, available, allocatable, present, fits, _, _ = columns
        total, squares, share = (np.zeros(fits.shape) for _ in range(3))
        count: Floats | float = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            for row in np.flatnonzero(request > 0):
                used_percent_column(int(request[row]), available[row], allocatable[row], share)
                count = count + _weight_column(1, present[row], share)
                np.add(total, share, out=total)
                np.add(squares, np.multiply(share, share, out=share), out=squares)
            np.multiply(squares, count, out=squares)
            np.subtract(squares, np.multiply(total, total, out=total), out=squares)
            return _least_balanced(squares, count, fits)


# -- one zone


def _zone_scores(
    request: Amounts, zones: Sequence[ZoneView], score: Callable[[Amounts, ZoneView], int]
) -> list[int]:
    """The score of each zone that fits; 100 if it lists nothing of the request."""
    scores = []
    for zone in fitting(request, zones):
        listed = {
            name: amount
            for name, amount in request.items()
            if amount > 0 and zone.allocatable.get(name, 0) > 0
        }
        scores.append(score(listed, zone) if listed else BEST)
    return scores


def _mean_of(percent: Percent, weights: Mapping[str, int]) -> Callable[[Amounts, ZoneView], int]:
    def mean(listed: Amounts, zone: ZoneView) -> int:
        total = divisor = 0
        for name, amount in listed.items():
            weight = weight_of(name, weights)
            total += weight * percent(amount, available_of(zone, name), zone.allocatable[name])
            divisor += weight
        return total // divisor

    return mean


def _balance(listed: Amounts, zone: ZoneView) -> int:
    used = [
        used_percent(amount, available_of(zone, name), zone.allocatable[name])
        for name, amount in listed.items()
    ]
    spread = len(used) * sum(percent * percent for percent in used) - sum(used) ** 2
    return BEST - isqrt(spread) // len(used)


def used_percent(request: int, available: int, allocatable: int) -> int:
    """Return how full the zone is with the request in it."""
    return (allocatable - available + request) * 100 // allocatable


def free_percent(request: int, available: int, allocatable: int) -> int:
    """Return how much of the zone stays free."""
    return (available - request) * 100 // allocatable


# -- columns


def used_percent_column(request: int, available: Ints, allocatable: Ints, out: Floats) -> None:
    """`used_percent` for columns."""
    np.subtract(allocatable, available, out=out, casting="unsafe")
    np.add(out, request, out=out)
    _floor_percent(out, allocatable)


def free_percent_column(request: int, available: Ints, allocatable: Ints, out: Floats) -> None:
    """`free_percent` for columns."""
    np.subtract(available, request, out=out, casting="unsafe")
    _floor_percent(out, allocatable)


def _floor_percent(out: Floats, whole: Ints) -> None:
    np.multiply(out, 100.0, out=out)
    np.divide(out, whole, out=out, casting="unsafe")
    np.floor(out, out=out)


def _weighted_sums(columns: Columns, percent: PercentColumn) -> tuple[Floats, Floats | float]:
    """The weighted sum of percentages of each zone, and the sum of weights: one number if all zones
    list all resources.
    """
    request, available, allocatable, present, _, weights, _ = columns
    total, share = np.zeros(present.shape[1:]), np.empty(present.shape[1:])
    divisor: Floats | float = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for row in np.flatnonzero(request > 0):
            weight = max(1, int(weights[row]))
            percent(int(request[row]), available[row], allocatable[row], share)
            if weight > 1:
                np.multiply(share, weight, out=share)
            divisor = divisor + _weight_column(weight, present[row], share)
            np.add(total, share, out=total)
    return total, divisor


def _weight_column(weight: int, listed: Bools, share: Floats) -> Floats | float:
    """The weight if the zone lists the resource, else 0 (and no share)."""
    if listed.all():
        return float(weight)
    np.copyto(share, 0.0, where=~listed)
    return np.multiply(listed, weight, dtype=np.float64)


def _extreme_mean(
    total: Floats, divisor: Floats | float, fits: Bools, extreme: np.ufunc, excluded: float
) -> Floats:
    """The extreme floored mean over fitting zones, `excluded` if none fits. With one divisor for
    all, only the extreme totals need dividing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if not isinstance(divisor, float):
            np.floor(np.divide(total, divisor, out=total), out=total)
            divisor = 1.0
        np.copyto(total, excluded, where=~fits)
        mean: Floats = np.floor(extreme.reduce(total, axis=0, initial=excluded) / divisor)
    mean[np.isnan(mean)] = BEST
    return mean


def _least_balanced(spread: Floats, count: Floats | float, fits: Bools) -> Ints:
    """100 less the largest deviation over fitting zones. With one count for all, only the largest
    spreads need the root.
    """
    if not isinstance(count, float):
        np.floor(np.floor(np.sqrt(spread)) / count, out=spread)
        np.multiply(spread, spread, out=spread)
        count = 1.0
    np.copyto(spread, -1.0, where=~fits)
    worst = np.maximum.reduce(spread, axis=0, initial=-1.0)
    deviation = np.floor(np.floor(np.sqrt(np.maximum(worst, 0))) / max(count, 1.0))
    scores: Ints = np.where(worst < 0, WORST, BEST - np.nan_to_num(deviation)).astype(np.int64)
    return scores
