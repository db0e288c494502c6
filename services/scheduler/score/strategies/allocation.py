"""From percentages of single resources to a node's score: weighted mean in a zone, then the worst
zone that fits, or the best.

The worst counts because the kubelet, not the scheduler, picks the zone; LeastAllocated says why it
takes the best. Only requested resources that the zone lists take part, so ephemeral storage and
host-level devices dilute nothing. Percentages are floored one by one, in integers and in columns
alike.

MostAllocated: the fuller a zone becomes by the pod, the better. Packs load onto few nodes.

LeastAllocated: the more of a zone stays free after the pod, the better. Spreads load over nodes.

The zone that suits best counts: its score only falls while reservations fill a node, so that a
score kept from before bounds the true one. The worst zone that fits does not have that: a zone that
no longer fits drops out and lifts it. Deciding has this strategy in a form of its own
(`deciding/scores.py`), for speed; a property test holds the two equal. Under `compat: upstream` the
plugin's own counts (`compat/score_least_allocated.py`).

BalancedAllocation: the closer together the resources of a zone are used, the better, so that
none is stranded.

The measure is the population standard deviation of the used percentages, as in Kubernetes' own
NodeResourcesBalancedAllocation; it exists for one resource (0), needs no float, and weights play no
part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt
from typing import Literal

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.fit import available_of, fitting
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Distances,
    Ints,
    ZoneView,
    weight_of,
)
from shared.domain.resources import Amounts

Floats = npt.NDArray[np.float64]
Percent = Callable[[int, int, int], int]
"""(request, available, allocatable) -> 0..100."""
PercentColumn = Callable[[int, Ints, Ints, Floats], None]
"""(request, available[Z,N], allocatable[Z,N], out[Z,N]): writes floored percentages."""


def worst_zone(
    request: Amounts, zones: Sequence[ZoneView], zone_score: Callable[[Amounts, ZoneView], int]
) -> int:
    """The least zone score among the zones that fit; 0 when none does, 100 when a fitting zone has
    nothing to score.
    """
    wanted = {name: amount for name, amount in request.items() if amount > 0}
    return min(
        (zone_score(_listed(wanted, zone), zone) for zone in fitting(request, zones)), default=WORST
    )


def best_zone(
    request: Amounts, zones: Sequence[ZoneView], zone_score: Callable[[Amounts, ZoneView], int]
) -> int:
    """The most of them."""
    wanted = {name: amount for name, amount in request.items() if amount > 0}
    return max(
        (zone_score(_listed(wanted, zone), zone) for zone in fitting(request, zones)), default=WORST
    )


def weighted_mean(
    wanted: Amounts, zone: ZoneView, weights: Mapping[str, int], percent: Percent
) -> int:
    """Mean of the percentages of `wanted` in the zone, by weight, floored."""
    if not wanted:
        return BEST
    total = sum(
        weight_of(name, weights) * percent(amount, available_of(zone, name), zone.allocatable[name])
        for name, amount in wanted.items()
    )
    return total // sum(weight_of(name, weights) for name in wanted)


def weighted_mean_columns(
    request: Ints,
    available: Ints,
    allocatable: Ints,
    present: Bools,
    fits: Bools,
    weights: Ints,
    percent: PercentColumn,
    best: bool = False,
) -> Ints:
    """`worst_zone`, or `best_zone`, of `weighted_mean` for all nodes: int64[N]."""
    total, share = np.zeros(fits.shape), np.empty(fits.shape)
    divisor: Floats | float = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for resource in np.flatnonzero(request > 0):
            weight = max(1, int(weights[resource]))
            percent(int(request[resource]), available[resource], allocatable[resource], share)
            if weight > 1:
                np.multiply(share, weight, out=share)
            divisor = divisor + _weight_column(weight, present[resource], share)
            np.add(total, share, out=total)
        return _best_mean(total, divisor, fits) if best else _worst_mean(total, divisor, fits)


def _worst_mean(total: Floats, divisor: Floats | float, fits: Bools) -> Ints:
    """The least floored mean over fitting zones; with one divisor for all, only the worst totals
    need dividing.
    """
    if not isinstance(divisor, float):
        np.floor(np.divide(total, divisor, out=total), out=total)
        divisor = 1.0
    np.copyto(total, np.inf, where=~fits)
    worst: Floats = np.floor(np.minimum.reduce(total, axis=0, initial=np.inf) / divisor)
    worst[np.isnan(worst)] = BEST
    worst[worst > BEST] = WORST
    return worst.astype(np.int64)


def _best_mean(total: Floats, divisor: Floats | float, fits: Bools) -> Ints:
    """The largest of them."""
    if not isinstance(divisor, float):
        np.floor(np.divide(total, divisor, out=total), out=total)
        divisor = 1.0
    np.copyto(total, -np.inf, where=~fits)
    found: Floats = np.floor(np.maximum.reduce(total, axis=0, initial=-np.inf) / divisor)
    found[np.isnan(found)] = BEST
    found[found < WORST] = WORST
    return found.astype(np.int64)


def floored_percent(part: npt.NDArray[np.generic], whole: Ints, out: Floats) -> None:
    """100 * part / whole, floored; `part` may be `out` itself."""
    np.multiply(part, 100.0, out=out, casting="unsafe")
    np.divide(out, whole, out=out, casting="unsafe")
    np.floor(out, out=out)


def _weight_column(weight: int, listed: Bools, share: Floats) -> Floats | float:
    """The weight where the zone lists the resource, else 0 (and no share)."""
    if listed.all():
        return float(weight)
    np.copyto(share, 0.0, where=~listed)
    return np.multiply(listed, weight, dtype=np.float64)


def _listed(wanted: Amounts, zone: ZoneView) -> Amounts:
    return {name: amount for name, amount in wanted.items() if zone.allocatable.get(name, 0) > 0}


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
                count = count + _listed_column(present[resource], share)
                np.add(total, share, out=total)
                np.add(squares, np.multiply(share, share, out=share), out=squares)
            np.multiply(squares, count, out=squares)
            np.subtract(squares, np.multiply(total, total, out=total), out=squares)
            return _least_balanced(squares, count, fits)


def _listed_column(listed: Bools, share: Floats) -> Floats | int:
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
