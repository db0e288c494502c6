"""BestFit: strand no devices, and leave as little as possible of what is asked for. Keeps room
whole for the pods to come.

Judged is the zone where the kubelet will put the request: the lowest that fits. Devices that stay
free there count most, asked for or not: a pod without devices keeps away from them, a pod with one
goes where it takes the last. The rest is plain best fit. docs/quality.md has the measurements, also
of a table of shapes asked for recently (expected loss of room, after Weng et al., USENIX ATC 2023),
which did no better where devices are scarce, and needs a memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from services.scheduler.score.strategies.allocation import Floats
from services.scheduler.score.strategies.fit import available_of, fitting, lowest_plain
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Distances,
    Ints,
    Items,
    Landed,
    ZoneView,
)
from shared.domain.resources import Amounts, is_device

LEVELS = 9
"""Devices left free are counted up to here; of more than that in a zone, ninths of them."""
STEP = 5
"""What one device weighs."""
REST = BEST - LEVELS * STEP
"""What the share left of the requested resources weighs."""


class BestFit:
    """100, less 5 for each device left free in the zone (up to 9), less up to 55 by the mean share
    left of what is asked for.
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
        """1..100 when a zone fits; weights, distances and the zone limit play no part."""
        wanted = {name: amount for name, amount in request.items() if amount > 0}
        landing = fitting(request, zones)
        return _zone_score(wanted, landing[0]) if landing else WORST

    def score_plain(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """The same; see `PlainStrategy`."""
        landing = lowest_plain(asked, zones, sizes)
        return (
            WORST if landing is None else _plain_score(dict(asked), zones[landing], sizes[landing])
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
        if not fits.shape[0]:
            return np.zeros(fits.shape[1], dtype=np.int64)
        nodes = np.arange(fits.shape[1])
        landing = fits.argmax(axis=0)
        stranded, shares, counted = (np.zeros(len(nodes)) for _ in range(3))
        for at in np.flatnonzero(devices | (request > 0)):
            listed, size = (
                present[at, landing, nodes],
                np.maximum(allocatable[at, landing, nodes], 1),
            )
            left = np.maximum(available[at, landing, nodes] - request[at], 0.0)
            if devices[at]:
                stranded += _levels(left, size) * listed
            if request[at] > 0:
                shares += np.floor(left * 100.0 / size) * listed
                counted += listed
        found = (
            BEST
            - STEP * np.minimum(stranded, LEVELS)
            - np.floor(shares * REST / (np.maximum(counted, 1) * 100))
        )
        scores: Ints = np.where(
            fits.any(axis=0), np.where(counted == 0, BEST, found), WORST
        ).astype(np.int64)
        return scores

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """The same where the request lands; see `LandingStrategy`."""
        return _Landed(items, names)


class _Landed:
    """One request, for columns of the zones where it lands."""

    def __init__(self, items: Items, names: Sequence[str]) -> None:
        asked = dict(items)
        self._request = np.array([[asked.get(name, 0)] for name in names], dtype=np.float64)
        self._asked = np.flatnonzero(self._request[:, 0])
        self._devices = np.array(
            [number for number, name in enumerate(names) if is_device(name)], dtype=np.intp
        )

    def scores(self, free: Ints, whole: Floats, standing: Floats | None = None) -> Ints:
        """See `Landed`."""
        left = np.maximum(free, 0.0) - self._request
        stranded = _levels(left.take(self._devices, axis=0), whole.take(self._devices, axis=0)).sum(
            axis=0
        )
        shares = np.floor(
            left.take(self._asked, axis=0) * 100.0 / whole.take(self._asked, axis=0)
        ).sum(axis=0)
        found = (
            BEST
            - STEP * np.minimum(stranded, LEVELS)
            - np.floor(shares * REST / (len(self._asked) * 100))
        )
        scores: Ints = found.astype(np.int64)
        return scores


def _levels(left: Floats, size: Floats) -> Floats:
    levels: Floats = np.ceil(left * LEVELS / np.maximum(size, LEVELS))
    return levels


def _plain_score(wanted: Amounts, zone: Amounts, whole: Amounts) -> int:
    stranded = shares = counted = 0
    for name, size in whole.items():
        if size <= 0:
            continue
        amount = wanted.get(name)
        if amount is None and not is_device(name):
            continue
        left = max(0, min(zone.get(name, 0), size)) - (amount or 0)
        if amount:
            shares, counted = shares + left * 100 // size, counted + 1
        if is_device(name):
            stranded -= -left * LEVELS // (size if size > LEVELS else LEVELS)
    return (
        BEST - STEP * min(stranded, LEVELS) - shares * REST // (counted * 100) if counted else BEST
    )


def _zone_score(wanted: Amounts, zone: ZoneView) -> int:
    left = {
        name: available_of(zone, name) - wanted.get(name, 0)
        for name, size in zone.allocatable.items()
        if size > 0
    }
    asked = [left[name] * 100 // zone.allocatable[name] for name in wanted if name in left]
    if not asked:
        return BEST
    stranded = sum(
        -(-held * LEVELS // max(zone.allocatable[name], LEVELS))
        for name, held in left.items()
        if is_device(name)
    )
    return BEST - STEP * min(stranded, LEVELS) - sum(asked) * REST // (len(asked) * 100)
