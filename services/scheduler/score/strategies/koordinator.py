"""Koordinator's two strategies by used NUMA nodes: fill nodes that already use most zones
(MostAllocated), or use nodes with untouched zones (LeastAllocated).

The measure is how many of a node's zones are in use once the pod is placed in the lowest zone that
fits, as the kubelet would. In columns a zone is in use if any resource in it is not wholly
available. Source: Koordinator proposal 20230415, "Score" (4 zones, 1 full and 1 more needed: 50).

A node chooses between the two by its label `node.koordinator.sh/numa-allocate-strategy`; without a
label Koordinator uses MostAllocated. The label counts only if one of the two is configured. No
scheduler implements the defined value `DistributeEvenly`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from services.scheduler.score.strategies.fit import fitting
from services.scheduler.score.strategies.strategy import (
    BEST,
    WORST,
    Bools,
    Columns,
    Distances,
    Ints,
    ZoneView,
)
from shared.domain.resources import Amounts

LABEL = "node.koordinator.sh/numa-allocate-strategy"
DEFAULT = "KoordinatorMostAllocated"
_BY_VALUE = {
    "MostAllocated": "KoordinatorMostAllocated",
    "LeastAllocated": "KoordinatorLeastAllocated",
}


class Choice(msgspec.Struct, frozen=True):
    """The strategy's name, and the label's problem (empty: none) if the fallback is used."""

    strategy: str
    problem: str = ""


def strategy_for(labels: Mapping[str, str], configured: str = DEFAULT) -> Choice:
    """Return the strategy that scores a node with these labels, given the configured one."""
    value = labels.get(LABEL, "")
    if configured not in _BY_VALUE.values() or not value:
        return Choice(configured)
    if value in _BY_VALUE:
        return Choice(_BY_VALUE[value])
    wanted = " or ".join(sorted(_BY_VALUE))
    return Choice(
        configured, f"label {LABEL}={value} is not implemented; set it to {wanted}, or remove it"
    )


def honours(labels: Mapping[str, str], configured: str) -> bool:
    """Return whether the node's label decides how the node is scored."""
    return configured in _BY_VALUE.values() and labels.get(LABEL, "") in _BY_VALUE


class KoordinatorMostAllocated:
    """100 * zones in use after placement / zones of the node."""

    name = "KoordinatorMostAllocated"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """Return 0..100; amounts, weights, distances and the limit do not matter."""
        suited = fitting(request, zones)
        if not suited:
            return WORST
        existing = [zone for zone in zones if zone.allocatable]
        used = {zone.id for zone in existing if zone.used} | {suited[0].id}
        return self._score(len(used) * BEST // len(existing))

    def score_nodes(self, columns: Columns) -> Ints:
        """See `ColumnStrategy`."""
        _, available, allocatable, present, fits, _, _ = columns
        if not fits.any():
            return np.zeros(fits.shape[1], dtype=np.int64)
        used: Bools = np.logical_or.reduce(present & (available < allocatable), axis=0)
        used[fits.argmax(axis=0), np.arange(fits.shape[1])] = True
        total = np.maximum(present.any(axis=0).sum(axis=0), 1)
        scores = self._scores(used.sum(axis=0) * BEST // total)
        return np.where(fits.any(axis=0), scores, WORST)

    def _score(self, used_percent: int) -> int:
        return used_percent

    def _scores(self, used_percent: Ints) -> Ints:
        return used_percent


class KoordinatorLeastAllocated(KoordinatorMostAllocated):
    """100 less the percentage of zones in use after placement."""

    name = "KoordinatorLeastAllocated"

    def _score(self, used_percent: int) -> int:
        return BEST - used_percent

    def _scores(self, used_percent: Ints) -> Ints:
        return BEST - used_percent
