"""BestFit: strand no devices, and leave as little as possible of the requested resources, so that
other zones stay whole for later pods.

The score looks at the zone where the kubelet will put the request: the lowest that fits. Devices
that stay free there count most, requested or not: a pod without devices avoids them, and a pod with
devices prefers a zone in which it takes the last one. The rest is plain best fit. The expected loss
of room over recent pods (Weng et al., USENIX ATC 2023) was no better for scarce devices, and needs
a memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.fit import lowest_plain, plain
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Distances,
    Floats,
    Ints,
    Items,
    Landed,
    ZoneView,
)
from shared.domain.resources import Amounts, is_device

# The most free devices that count one by one; more devices in a zone count in ninths.
LEVELS = 9
# The weight of one device.
STEP = 5
# The weight of the share that is left of the requested resources.
REST = BEST - LEVELS * STEP


class BestFit:
    """100, less 5 for each device left free in the zone (up to 9), less up to 55 by the mean share
    left of the requested resources.
    """

    name = "BestFit"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """Return 1..100 if a zone fits; weights, distances and the limit do not matter."""
        return self.score_plain(*plain(request, zones))

    def score_plain(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """See `PlainStrategy`."""
        landing = lowest_plain(asked, zones, sizes)
        if landing is None:
            return WORST
        wanted, zone = dict(asked), zones[landing]
        stranded = shares = counted = 0
        for name, size in sizes[landing].items():
            amount = wanted.get(name, 0)
            if size <= 0 or not (amount or is_device(name)):
                continue
            rest = max(0, min(zone.get(name, 0), size)) - amount
            if amount:
                shares, counted = shares + rest * 100 // size, counted + 1
            if is_device(name):
                stranded -= -rest * LEVELS // max(size, LEVELS)
        if not counted:
            return BEST
        return BEST - STEP * min(stranded, LEVELS) - shares * REST // (counted * 100)

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """See `LandingStrategy`."""
        return _Landed(items, names)


class _Landed:
    def __init__(self, items: Items, names: Sequence[str]) -> None:
        asked = dict(items)
        self._request = np.array([[asked.get(name, 0)] for name in names], dtype=np.float64)
        self._asked = np.flatnonzero(self._request[:, 0])
        devices = [row for row, name in enumerate(names) if is_device(name)]
        self._devices = np.array(devices, dtype=np.intp)

    def scores(
        self, free: Ints, whole: Floats, positions: Ints, lost_besides: Floats | None = None
    ) -> Ints:
        free, whole = free.take(positions, axis=1), whole.take(positions, axis=1)
        rest = np.maximum(free, 0.0) - self._request
        devices, asked = self._devices, self._asked
        stranded = _levels(rest.take(devices, axis=0), whole.take(devices, axis=0)).sum(axis=0)
        sizes = np.maximum(whole.take(asked, axis=0), 1)
        shares = np.floor(rest.take(asked, axis=0) * 100.0 / sizes).sum(axis=0)
        lost = np.floor(shares * REST / (len(asked) * 100))
        scores = (BEST - STEP * np.minimum(stranded, LEVELS) - lost).astype(np.int64)
        return np.where(positions < 0, WORST, scores)


def _levels(rest: Floats, size: Floats) -> Floats:
    levels: Floats = np.ceil(rest * LEVELS / np.maximum(size, LEVELS))
    return levels
