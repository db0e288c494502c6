"""Scoring a node from the zones that its pod's parts fit: the best zone of each part, averaged over the parts.

A strategy judges zones: `best` in plain Python for one node, `many` each zone of all nodes. Exact integers: a float
quotient of integers below 2^53 cannot cross an integer here. Must not know feasibility or policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.policy import RESTRICTED
from services.scheduler.cycle.registered import REGISTRY, Registered
from services.scheduler.cycle.shape import Items, Plan, Shape
from services.scheduler.cycle.spans import narrow

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NONE_FITS = -1
_NEVER = 1 << 62


class ZoneStrategy(Protocol):
    """0..100 for placing `asked` where `held` is free. `falls` promises that less free never scores higher."""

    name: str
    falls: bool

    def best(self, asked: Items, zones: Iterable[Mapping[str, int]]) -> int:
        """The score of the best zone that fits, NONE_FITS when none does."""
        ...

    def many(self, asked: Items, held: Sequence[npt.NDArray[Any]]) -> Floats:
        """The same, elementwise; anything where it does not fit."""
        ...


class LeastAllocated:
    """Weighted mean over resources of (free - asked) * 100 // free: prefers emptier zones (kube-scheduler, upstream plugin)."""

    name, falls = "LeastAllocated", True

    def __init__(self, weights: Mapping[str, int] | None = None) -> None:
        self._weights = {name: weight for name, weight in (weights or {}).items() if weight > 1}

    def best(self, asked: Items, zones: Iterable[Mapping[str, int]]) -> int:
        """The score of the best zone that fits, NONE_FITS when none does."""
        if self._weights:
            return self._weighted(asked, zones)
        least = _NEVER
        for zone in zones:
            cost = 0
            for name, amount in asked:
                free = zone.get(name, 0)
                if free < amount:
                    break
                cost -= -100 * amount // free
            else:
                least = min(cost, least)
        return (100 * len(asked) - least) // len(asked) if least < _NEVER else NONE_FITS

    def _weighted(self, asked: Items, zones: Iterable[Mapping[str, int]]) -> int:
        weights = [self._weights.get(name, 1) for name, _ in asked]
        fitting = [zone for zone in zones if all(zone.get(name, 0) >= amount for name, amount in asked)]
        costs = [
            sum(weight * -(-100 * amount // zone[name]) for weight, (name, amount) in zip(weights, asked, strict=True))
            for zone in fitting
        ]
        return (100 * sum(weights) - min(costs)) // sum(weights) if costs else NONE_FITS

    def many(self, asked: Items, held: Sequence[npt.NDArray[Any]]) -> Floats:
        """The same, elementwise."""
        weights = [self._weights.get(name, 1) for name, _ in asked]
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = weights[0] * np.ceil(100.0 * asked[0][1] / held[0])
            for weight, (_, amount), free in zip(weights[1:], asked[1:], held[1:], strict=True):
                cost += weight * np.ceil(100.0 * amount / free)
            return np.floor((100.0 * sum(weights) - cost) / sum(weights))


Scorer = ZoneStrategy | Registered

STRATEGIES: tuple[str, ...] = tuple(sorted(REGISTRY))
"""Every strategy's name. The default is scored zone by zone with scores that only fall; the others are the registry's."""


def scorer(name: str, weights: Mapping[str, int] | None = None) -> Scorer:
    """The strategy of this configuration name. Raises ValueError for an unknown one."""
    if name not in STRATEGIES:
        raise ValueError(f"no strategy is called {name!r}; choose one of {', '.join(STRATEGIES)}")
    return LeastAllocated(weights) if name == LeastAllocated.name else Registered(name, weights)


def score_node(facts: NodeFacts, shape: Shape, plan: Plan, strategy: Scorer) -> int:
    """The node's score, assuming that it takes the pod. Pods that need several zones at once score 0 everywhere."""
    if plan.mode != "aligned":
        return score_whole(facts, shape, strategy)
    if plan.rule.policy == RESTRICTED and not narrow(facts, plan):
        return 0
    total = 0
    if isinstance(strategy, Registered):
        return sum(count * strategy.part(items, facts) for items, count in plan.kinds) // len(plan.parts)
    zones = facts.firm(facts.lower).values()
    for items, count in plan.kinds:
        total += count * max(0, strategy.best(items, zones))
    return total // len(plan.parts)


def score_whole(facts: NodeFacts, shape: Shape, strategy: Scorer) -> int:
    """The node as one zone, for pods that need no alignment. A pod that asks for nothing scores 0 everywhere."""
    if not shape.asked:
        return 0
    free = {name: facts.free(name) for name in shape.asked}
    if isinstance(strategy, Registered):
        return strategy.whole(shape.asked, free, facts)
    return max(0, strategy.best(tuple(shape.asked.items()), (free,)))
