"""Scoring a node from the zones that its pod's parts fit: the best zone of each part, averaged over the parts.

A strategy judges one zone: `one` for a single zone in plain Python, `many` the same over columns. Exact integers: a float
quotient of integers below 2^53 cannot cross an integer here. Must not know feasibility or policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from services.scheduler.cycle.branches import fits
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.shape import Plan, Shape
from shared.domain.resources import PODS, Amounts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ZoneStrategy(Protocol):
    """0..100 for placing `asked` where `held` is free. `falls` promises that less free never scores higher."""

    name: str
    falls: bool

    def one(self, asked: Amounts, held: Mapping[str, int]) -> int:
        """The score of one zone that fits."""
        ...

    def many(self, asked: Sequence[int], held: Sequence[npt.NDArray[Any]]) -> Floats:
        """The same, elementwise; anything where it does not fit."""
        ...


class LeastAllocated:
    """Mean over resources of (free - asked) * 100 // free: prefers emptier zones (kube-scheduler, upstream plugin)."""

    name, falls = "LeastAllocated", True

    def one(self, asked: Amounts, held: Mapping[str, int]) -> int:
        """The score of one zone that fits."""
        return sum(100 + (-100 * amount) // held[name] for name, amount in asked.items()) // len(asked)

    def many(self, asked: Sequence[int], held: Sequence[npt.NDArray[Any]]) -> Floats:
        """The same, elementwise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = np.ceil(100.0 * asked[0] / held[0])
            for amount, free in zip(asked[1:], held[1:], strict=True):
                cost += np.ceil(100.0 * amount / free)
            return np.floor((100.0 * len(asked) - cost) / len(asked))


class MostAllocated:
    """Mean over resources of asked * 100 // free: prefers fuller zones."""

    name, falls = "MostAllocated", False

    def one(self, asked: Amounts, held: Mapping[str, int]) -> int:
        """The score of one zone that fits."""
        return sum(100 * amount // held[name] for name, amount in asked.items()) // len(asked)

    def many(self, asked: Sequence[int], held: Sequence[npt.NDArray[Any]]) -> Floats:
        """The same, elementwise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.floor(100.0 * asked[0] / held[0])
            for amount, free in zip(asked[1:], held[1:], strict=True):
                gain += np.floor(100.0 * amount / free)
            return np.floor(gain / len(asked))


STRATEGIES: dict[str, ZoneStrategy] = {each.name: each for each in (LeastAllocated(), MostAllocated())}


def score_node(facts: NodeFacts, shape: Shape, plan: Plan, strategy: ZoneStrategy) -> int:
    """The node's score, assuming that it takes the pod."""
    if plan.mode != "aligned":
        return score_whole(facts, shape, strategy)
    total = 0
    for part in plan.parts:
        fitting = [strategy.one(part.amounts, zone) for zone in facts.lower.values() if fits(part.amounts, zone)]
        total += max(fitting, default=0)
    return total // len(plan.parts)


def score_whole(facts: NodeFacts, shape: Shape, strategy: ZoneStrategy) -> int:
    """The node as one zone, for pods that need no alignment. A pod that asks for nothing scores 0 everywhere."""
    asked = {name: amount for name, amount in shape.request.items() if name != PODS}
    return strategy.one(asked, {name: facts.free(name) for name in asked}) if asked else 0
