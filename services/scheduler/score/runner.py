"""Scoring a node from the zones that its pod's parts fit: the best zone of each part, averaged over
the parts.

A strategy judges zones: `best` in plain Python for one node, `many` each zone of all nodes. Exact
integers: a float quotient of integers below 2^53 cannot cross an integer here. Must not know
feasibility or policies.

Strategies of `services.scheduler.score.strategies` in the cycle.

Those of one zone score a part on all nodes at once; the others are scored node by node, when a node
comes out on top, and until then a candidate stands at the most that it may score. A node label may
choose between Koordinator's two strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from services.scheduler.score.strategies.koordinator import strategy_for
from services.scheduler.score.strategies.least_numa_nodes import score_containers
from services.scheduler.score.strategies.registry import COLUMN_STRATEGIES
from services.scheduler.score.strategies.registry import STRATEGIES as REGISTRY
from services.scheduler.score.strategies.strategy import (
    BoundedStrategy,
    DemandClass,
    DemandStrategy,
    Distances,
    Landed,
    LandingStrategy,
    PlainStrategy,
    Strategy,
    ZoneView,
)
from services.scheduler.snapshot.node_arrays import Bools, Floats, Ints
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Items, Part, Plan, PodClass
from services.scheduler.snapshot.zone_sizes import fits_one_zone
from shared.domain.pod import Container
from shared.domain.policies import RESTRICTED
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device

HIGHEST = 100
LABELLED = "Koordinator"
REMEMBERED = 1024
"""Parts that are kept ready; beyond them all are made anew."""


class StrategyRunner:
    """A strategy by its registry name, with weights by resource (1 where none is named)."""

    monotone = even = False

    def __init__(self, name: str, weights: Mapping[str, int] | None = None) -> None:
        self.name, self._weights = name, dict(weights or {})
        self._labelled = name.startswith(LABELLED)
        self._columns = None if self._labelled else COLUMN_STRATEGIES.get(name)
        self._reports: dict[str, tuple[Report, Distances]] = {}
        self._rows = self.generation = 0
        self._take(REGISTRY[name])
        self.ranks_by_demand = isinstance(self._strategy, DemandStrategy)
        """True for a strategy that must be told what pods ask for."""

    def _take(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.by_landing = isinstance(strategy, LandingStrategy) and not self._labelled
        """True for a strategy that looks at nothing but the zone where a part lands."""
        self._bounded = (
            strategy if isinstance(strategy, BoundedStrategy) and not self._labelled else None
        )
        self._landed: dict[Items, Landed] = {}
        self._plain = (
            strategy.score_plain
            if isinstance(strategy, PlainStrategy) and not self._labelled
            else None
        )

    def rank_by(self, wants: Sequence[DemandClass]) -> None:
        """Score by these from now on: earlier scores are void."""
        if isinstance(self._strategy, DemandStrategy):
            self._take(self._strategy.given(tuple(wants)))
            self.generation += 1

    @property
    def at_once(self) -> bool:
        """True where `column` scores a part on all nodes; a strategy that a node's label may change
        does not.
        """
        return self._columns is not None

    @property
    def bounded(self) -> bool:
        """True where nodes are scored one by one, and `most` tells of all what they score at most."""
        return self._bounded is not None

    def most(self, items: Items, free: Ints, limits: Ints) -> Ints:
        """An upper bound of the part's score on every node: `free` is [resource of items, zone,
        node], see `BoundedStrategy`.
        """
        if self._bounded is None:
            return np.full(len(limits), HIGHEST)
        request = np.array([amount for _, amount in items], dtype=np.int64)
        return self._bounded.most_nodes(request, np.maximum(free, 0), limits)

    def beside(self, items: Items, names: Iterable[str]) -> Items:
        """The items, and 0 of each device among `names` that they do not ask for."""
        asked = {name for name, _ in items}
        return items + tuple((name, 0) for name in names if is_device(name) and name not in asked)

    def landed(self, items: Items, rows: Mapping[str, int]) -> Landed:
        """The part made ready for columns of these rows, all of its resources among them. Rows are
        only ever added.
        """
        if self._rows != len(rows) or len(self._landed) >= REMEMBERED:
            self._rows, self._landed = len(rows), {}
        found = self._landed.get(items)
        if found is None:
            found = self._landed[items] = cast("LandingStrategy", self._strategy).landed(
                items, tuple(rows)
            )
        return found

    def standing(self, free: Ints, whole: Floats, rows: Mapping[str, int]) -> Floats:
        """See `WantStrategy`; of a strategy that `looks_at_wants`."""
        return cast("DemandStrategy", self._strategy).standing(free, whole, tuple(rows))

    def column(self, items: Items, free_min: Ints, whole: Floats, fit: Bools) -> Floats:
        """The part's score on every node, as `part` gives it: `free_min` and `whole` are [resource of
        items, zone, node].
        """
        assert self._columns is not None
        request = np.array([amount for _, amount in items], dtype=np.int64)
        weights = np.array([self._weights.get(name, 1) for name, _ in items], dtype=np.int64)
        devices = np.array([is_device(name) for name, _ in items], dtype=np.bool_)
        sizes = cast("Ints", whole)  # the same integers as floats, which are faster
        found = self._columns.score_nodes(
            request, np.maximum(free_min, 0), sizes, whole > 0, fit, weights, devices
        )
        return found.astype(np.float64)

    def whole_column(self, asked: Amounts, free: Ints, whole: Ints) -> Ints:
        """Every node as one zone, as `whole` gives it: `free` and `whole` are [resource asked for,
        node].
        """
        assert self._columns is not None
        request = np.array(list(asked.values()), dtype=np.int64)
        weights = np.array([self._weights.get(name, 1) for name in asked], dtype=np.int64)
        devices = np.array([is_device(name) for name in asked], dtype=np.bool_)
        available, allocatable = np.clip(free, 0, whole)[:, None, :], whole[:, None, :]
        fits = np.logical_and.reduce(available >= request[:, None, None], axis=0)
        return self._columns.score_nodes(
            request, available, allocatable, allocatable > 0, fits, weights, devices
        )

    def part(self, items: Items, node_info: NodeInfo) -> int:
        """The score of one part on this node."""
        report = node_info.report
        if report is None:
            return 0
        if self._plain is not None:
            return self._plain(
                items, node_info.for_single_zones(node_info.free_min), node_info.sizes
            )
        distances, views = self._distances(node_info.name, report), self._views(node_info)
        found = self._chosen(node_info).score(
            dict(items), views, distances, self._weights, report.max_numa_nodes
        )
        return max(0, min(HIGHEST, found))

    def _views(self, node_info: NodeInfo) -> Sequence[ZoneView]:
        """The node's zones, kept until it changes: several shapes ask for them in a row."""
        kept: tuple[int, Sequence[ZoneView]] | None = node_info.views
        if kept is None or kept[0] != node_info.version:
            free_min = node_info.for_single_zones(node_info.free_min)
            sized = [
                (zone, free_min[zone], whole)
                for zone, whole in node_info.sizes.items()
                if zone in free_min
            ]
            views = [
                ZoneView(zone, held, whole, self._used(held, whole)) for zone, held, whole in sized
            ]
            node_info.views = kept = node_info.version, views
        return kept[1]

    @property
    def over_sets(self) -> bool:
        """True for strategies that compare sets of zones: they have an opinion where a pod may need
        several, too.
        """
        return REGISTRY[self.name].combine == "least"

    def sets(self, parts: Sequence[Part], node_info: NodeInfo) -> int:
        """The pod's score, each part on what those before it leave."""
        report = node_info.report
        if report is None:
            return 0
        free = {
            zone: {name: max(0, held) for name, held in amounts.items()}
            for zone, amounts in node_info.free_min.items()
        }
        views = [
            ZoneView(zone, free[zone], whole)
            for zone, whole in node_info.sizes.items()
            if zone in free
        ]
        containers = [Container(part.name, part.kind, part.amounts) for part in parts]
        distances = self._distances(node_info.name, report)
        found = score_containers(
            REGISTRY[self.name], containers, views, distances, self._weights, report.max_numa_nodes
        )
        return max(0, min(HIGHEST, found))

    def _distances(self, name: str, report: Report) -> Distances:
        known = self._reports.get(name)
        if known is None or known[0] is not report:
            found = {
                (zone.id, other): cost
                for zone in report.zones
                for other, cost in zone.costs.items()
            }
            known = self._reports[name] = report, found
        return known[1]

    def _used(self, available: Amounts, whole: Amounts) -> bool:
        """Only Koordinator's strategies ask whether anything in the zone is in use."""
        return self._labelled and any(
            available.get(name, 0) < amount for name, amount in whole.items()
        )

    def whole(self, asked: Amounts, free: Amounts, node_info: NodeInfo) -> int:
        """The node as one zone."""
        whole = {name: node_info.allocatable.get(name, 0) for name in asked}
        used = any(free[name] < whole[name] for name in asked)
        found = self._chosen(node_info).score(
            asked, [ZoneView(0, free, whole, used)], {}, self._weights, 1
        )
        return max(0, min(HIGHEST, found))

    def _chosen(self, node_info: NodeInfo) -> Strategy:
        if not self._labelled:
            return REGISTRY[self.name]
        labels = node_info.observed.labels if node_info.observed is not None else {}
        return REGISTRY[strategy_for(labels, self.name).strategy]


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


Scorer = ZoneStrategy | StrategyRunner

STRATEGIES: tuple[str, ...] = tuple(sorted(REGISTRY))
"""Every strategy's name. LeastAllocated is scored zone by zone with scores that only fall; the others are the registry's."""


def scorer(name: str, weights: Mapping[str, int] | None = None) -> Scorer:
    """The strategy of this configuration name. Raises ValueError for an unknown one."""
    if name not in STRATEGIES:
        raise ValueError(f"no strategy is called {name!r}; choose one of {', '.join(STRATEGIES)}")
    return LeastAllocated(weights) if name == LeastAllocated.name else StrategyRunner(name, weights)


def score_node(node_info: NodeInfo, pod_class: PodClass, plan: Plan, strategy: Scorer) -> int:
    """The node's score, assuming that it takes the pod: the mean over its parts, each on zones that
    the others left untouched, as only that surely falls while a node fills. Pods that need several
    zones at once score 0 everywhere, except by strategies that compare sets of zones; those put
    each part on what the parts before it leave."""
    if isinstance(strategy, StrategyRunner) and strategy.over_sets and plan.mode != "free":
        return strategy.sets(plan.parts, node_info)
    if plan.mode != "aligned":
        return score_whole(node_info, pod_class, strategy)
    if plan.rule.policy == RESTRICTED and not fits_one_zone(
        [part.amounts for part in plan.parts], node_info.machine.capacities
    ):
        return 0
    total = 0
    if isinstance(strategy, StrategyRunner):
        return sum(count * strategy.part(items, node_info) for items, count in plan.kinds) // len(
            plan.parts
        )
    zones = node_info.for_single_zones(node_info.free_min)
    for items, count in plan.kinds:
        total += count * max(0, strategy.best(items, zones, node_info.sizes))
    return total // len(plan.parts)


def score_whole(node_info: NodeInfo, pod_class: PodClass, strategy: Scorer) -> int:
    """The node as one zone, for pods that need no alignment. A pod that asks for nothing scores 0
    everywhere.
    """
    if not pod_class.asked:
        return 0
    free = {name: node_info.free(name) for name in pod_class.asked}
    if isinstance(strategy, StrategyRunner):
        return strategy.whole(pod_class.asked, free, node_info)
    return max(
        0, strategy.best(tuple(pod_class.asked.items()), {0: free}, {0: node_info.allocatable})
    )
