"""How many of a node's zones are in use once the pod is placed: the measure of Koordinator's two
strategies.

The pod is taken to land in the lowest zone that fits, as the kubelet would have it. In columns a
zone is in use when any resource in it is not wholly available. Source: Koordinator proposal
20230415, "Score" (4 zones, 1 full and 1 more needed: 50).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.score.strategies.fit import fitting
from services.scheduler.score.strategies.strategy import BEST, Bools, Ints, ZoneView
from shared.domain.resources import Amounts


def used_percent_of_zones(request: Amounts, zones: Sequence[ZoneView]) -> int | None:
    """100 * zones in use after placement / zones, floored; None when no single zone fits."""
    suited = fitting(request, zones)
    if not suited:
        return None
    existing = [zone for zone in zones if zone.allocatable]
    used = {zone.id for zone in existing if zone.used} | {suited[0].id}
    return len(used) * BEST // len(existing)


def used_percent_of_zones_columns(
    available: Ints, allocatable: Ints, present: Bools, fits: Bools
) -> Ints:
    """The same for all nodes: int64[N], meaningless where nothing fits."""
    if not fits.any():
        return np.zeros(fits.shape[1], dtype=np.int64)
    used: Bools = np.zeros(fits.shape, dtype=np.bool_)
    for held, whole, listed in zip(available, allocatable, present, strict=True):
        used |= listed & (held < whole)
    lowest = fits.argmax(axis=0)
    used[lowest, np.arange(fits.shape[1])] = True
    total = np.maximum(present.any(axis=0).sum(axis=0), 1)
    percent: Ints = used.sum(axis=0) * BEST // total
    return percent
