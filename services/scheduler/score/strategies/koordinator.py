"""A node's own wish for its strategy: the label `node.koordinator.sh/numa-allocate-strategy`.

The label speaks of Koordinator's used-zone strategies, whose default is MostAllocated (proposal
20230415); it is heeded only where one of them is configured. `DistributeEvenly` is a defined value
that nobody implements.

How many of a node's zones are in use once the pod is placed: the measure of Koordinator's two
strategies.

The pod is taken to land in the lowest zone that fits, as the kubelet would have it. In columns a
zone is in use when any resource in it is not wholly available. Source: Koordinator proposal
20230415, "Score" (4 zones, 1 full and 1 more needed: 50).

Koordinator's LeastAllocated by used NUMA nodes: go where zones are still untouched.

Chosen for a node by its label `node.koordinator.sh/numa-allocate-strategy`; see `node_label`.

Koordinator's MostAllocated by used NUMA nodes: fill nodes whose zones are mostly in use already.

Chosen for a node by its label `node.koordinator.sh/numa-allocate-strategy`; see `node_label`.
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
    """The strategy's name, and what is wrong with the label (empty: nothing) when the fallback had
    to serve.
    """

    strategy: str
    problem: str = ""


def strategy_for(labels: Mapping[str, str], configured: str = DEFAULT) -> Choice:
    """The strategy that scores a node with these labels, given the configured one."""
    value = labels.get(LABEL, "")
    if configured not in _BY_VALUE.values() or not value:
        return Choice(configured)
    if value in _BY_VALUE:
        return Choice(_BY_VALUE[value])
    wanted = " or ".join(sorted(_BY_VALUE))
    return Choice(
        configured, f"label {LABEL}={value} is not implemented; set it to {wanted}, or remove it"
    )


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


class KoordinatorLeastAllocated:
    """100 less the percentage of zones in use after placement."""

    name = "KoordinatorLeastAllocated"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """0..100; amounts, weights, distances and the zone limit play no part."""
        used = used_percent_of_zones(request, zones)
        return WORST if used is None else BEST - used

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
        used = used_percent_of_zones_columns(available, allocatable, present, fits)
        return np.where(fits.any(axis=0), BEST - used, WORST)


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
        """0..100; amounts, weights, distances and the zone limit play no part."""
        used = used_percent_of_zones(request, zones)
        return WORST if used is None else used

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
        used = used_percent_of_zones_columns(available, allocatable, present, fits)
        return np.where(fits.any(axis=0), used, WORST)
