"""Scoring a node from the zones that its pod's parts fit: the best zone of each part, averaged over
the parts.

A strategy judges zones: `best` in plain Python for one node, `many` each zone of all nodes. Exact
integers: a float quotient of integers below 2^53 cannot cross an integer here. Must not know
feasibility or policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from services.scheduler.score.runner import REGISTRY, Registered
from services.scheduler.snapshot.columnar import Floats
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Items, Plan, Shape
from services.scheduler.snapshot.zone_sizes import fits_one_zone
from shared.domain.policies import RESTRICTED

Column = npt.NDArray[Any]
Zones = Mapping[int, Mapping[str, int]]

NONE_FITS = -1


class ZoneStrategy(Protocol):
    """0..100 for placing `asked` where some is free of the whole. `monotone` promises that less
    free never scores higher, `even` that a zone's score is the mean over its resources of whole
    points of a hundred."""

    name: str
    monotone: bool

    @property
    def even(self) -> bool:
        """See above."""
        ...

    def best(self, asked: Items, zones: Zones, sizes: Zones) -> int:
        """The score of the best zone that fits, NONE_FITS when none does. `sizes` is what is
        allocatable in each zone.
        """
        ...

    def many(self, asked: Items, free: Sequence[Column], whole: Sequence[Column]) -> Floats:
        """The same, elementwise; anything where it does not fit."""
        ...

    def points(self, amount: int, free: Column, whole: Column) -> Floats:
        """What `many` takes of one resource: parts that ask for as much of it share it."""
        ...

    def mean(self, asked: Items, points: Sequence[Floats]) -> Floats:
        """What `many` makes of all resources' points."""
        ...


class LeastAllocated:
    """Weighted mean over resources of (free - asked) * 100 // allocatable in the zone that suits
    best: what the registry's strategy of this name counts, made for speed. It only falls while a
    node fills, so that a kept score bounds later ones."""

    name, monotone = "LeastAllocated", True

    def __init__(self, weights: Mapping[str, int] | None = None) -> None:
        self._weights = {name: weight for name, weight in (weights or {}).items() if weight > 1}

    @property
    def even(self) -> bool:
        """True while no resource has a weight of its own."""
        return not self._weights

    def best(self, asked: Items, zones: Zones, sizes: Zones) -> int:
        """The score of the best zone that fits, NONE_FITS when none does."""
        if self._weights:
            return self._weighted(asked, zones, sizes)
        most = NONE_FITS
        for number, zone in zones.items():
            whole, gain = sizes[number], 0
            for name, amount in asked:
                left = zone.get(name, 0) - amount
                if left < 0:
                    break
                gain += 100 * left // whole[name]
            else:
                most = max(gain, most)
        return min(100, most // len(asked))

    def _weighted(self, asked: Items, zones: Zones, sizes: Zones) -> int:
        weights = [self._weights.get(name, 1) for name, _ in asked]
        gains = [
            sum(
                weight * (100 * (zone[name] - amount) // sizes[number][name])
                for weight, (name, amount) in zip(weights, asked, strict=True)
            )
            for number, zone in zones.items()
            if all(zone.get(name, 0) >= amount for name, amount in asked)
        ]
        return min(100, max(gains) // sum(weights)) if gains else NONE_FITS

    def many(self, asked: Items, free: Sequence[Column], whole: Sequence[Column]) -> Floats:
        """The same, elementwise."""
        points = [
            self.points(amount, left, size)
            for (_, amount), left, size in zip(asked, free, whole, strict=True)
        ]
        return self.mean(asked, points)

    def points(self, amount: int, free: Column, whole: Column) -> Floats:
        """One resource: what would be left, in whole points of a hundred."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.subtract(free, float(amount))
            gain *= 100.0
            gain /= whole
            return np.floor(gain, out=gain)

    def mean(self, asked: Items, points: Sequence[Floats]) -> Floats:
        """The weighted mean of the resources' points, rounded down, at most 100."""
        weights = [self._weights.get(name, 1) for name, _ in asked]
        with np.errstate(invalid="ignore"):
            total = np.zeros_like(points[0]) if points else np.zeros(1)
            for weight, gain in zip(weights, points, strict=True):
                total += gain if weight == 1 else gain * weight
            total /= sum(weights) or 1
            np.floor(total, out=total)
            return np.fmin(total, 100.0, out=total)


Scorer = ZoneStrategy | Registered

STRATEGIES: tuple[str, ...] = tuple(sorted(REGISTRY))
"""Every strategy's name. LeastAllocated is scored zone by zone with scores that only fall; the others are the registry's."""


def scorer(name: str, weights: Mapping[str, int] | None = None) -> Scorer:
    """The strategy of this configuration name. Raises ValueError for an unknown one."""
    if name not in STRATEGIES:
        raise ValueError(f"no strategy is called {name!r}; choose one of {', '.join(STRATEGIES)}")
    return LeastAllocated(weights) if name == LeastAllocated.name else Registered(name, weights)


def score_node(node_info: NodeInfo, shape: Shape, plan: Plan, strategy: Scorer) -> int:
    """The node's score, assuming that it takes the pod: the mean over its parts, each on zones that
    the others left untouched, as only that surely falls while a node fills. Pods that need several
    zones at once score 0 everywhere, except by strategies that compare sets of zones; those put
    each part on what the parts before it leave."""
    if isinstance(strategy, Registered) and strategy.over_sets and plan.mode != "free":
        return strategy.sets(plan.parts, node_info)
    if plan.mode != "aligned":
        return score_whole(node_info, shape, strategy)
    if plan.rule.policy == RESTRICTED and not fits_one_zone(
        [part.amounts for part in plan.parts], node_info.make.capacities
    ):
        return 0
    total = 0
    if isinstance(strategy, Registered):
        return sum(count * strategy.part(items, node_info) for items, count in plan.kinds) // len(
            plan.parts
        )
    zones = node_info.firm(node_info.free_min)
    for items, count in plan.kinds:
        total += count * max(0, strategy.best(items, zones, node_info.sizes))
    return total // len(plan.parts)


def score_whole(node_info: NodeInfo, shape: Shape, strategy: Scorer) -> int:
    """The node as one zone, for pods that need no alignment. A pod that asks for nothing scores 0
    everywhere.
    """
    if not shape.asked:
        return 0
    free = {name: node_info.free(name) for name in shape.asked}
    if isinstance(strategy, Registered):
        return strategy.whole(shape.asked, free, node_info)
    return max(0, strategy.best(tuple(shape.asked.items()), {0: free}, {0: node_info.allocatable}))
