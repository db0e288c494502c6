"""From percentages of single resources to a node's score: weighted mean in a zone, then the worst
zone that fits, or the best.

The worst counts because the kubelet, not the scheduler, picks the zone; LeastAllocated says why it
takes the best. Only requested resources that the zone lists take part, so ephemeral storage and
host-level devices dilute nothing. Percentages are floored one by one, in integers and in columns
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.fit import available_of, fitting
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
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
