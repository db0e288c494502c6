"""Runs the configured strategy on nodes: one node at a time, or many at once.

A strategy scores a request on zones (`strategies/strategy.py`). A node's score is the mean over the
pod's parts, each on zones that the other parts leave untouched: only that surely falls while a node
fills. Must not know filters other than the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from services.scheduler.owned.admission import allocate
from services.scheduler.score.strategies.keep_room import CompiledRoom
from services.scheduler.score.strategies.koordinator import strategy_for
from services.scheduler.score.strategies.least_numa_nodes import score_containers
from services.scheduler.score.strategies.registry import COLUMN_STRATEGIES
from services.scheduler.score.strategies.registry import STRATEGIES as REGISTRY
from services.scheduler.score.strategies.strategy import (
    BoundedStrategy,
    Columns,
    DemandClass,
    DemandStrategy,
    Distances,
    Landed,
    LandingStrategy,
    PlainStrategy,
    Strategy,
    ZoneView,
)
from services.scheduler.snapshot.node_arrays import Bools, Floats, Ints, zones_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import BY_KUBELET, AlignedPart, Items, Plan, PodClass
from services.scheduler.snapshot.zone_sizes import fits_one_zone
from shared.domain.pod import Container
from shared.domain.policies import RESTRICTED
from shared.domain.refusal import Refusal
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device
from shared.owned.scores import node_score_by_zones
from shared.owned.values import Strategy as OwnedStrategy

HIGHEST = 100
# A node label chooses between these strategies, so that each node is scored by itself.
CHOSEN_BY_LABEL = "Koordinator"
# Requests that are kept prepared.
REMEMBERED = 1024

STRATEGIES: tuple[str, ...] = tuple(sorted(REGISTRY))


class StrategyRunner:
    """A strategy by its configuration name, with weights by resource (1 if none is named).

    `at_once`: `part_on_all` scores a part on all nodes. `by_landing`: the strategy looks only at
    the zone where a part lands. `is_bounded`: nodes are scored one by one, and `highest` gives an
    upper bound for all. `ranks_by_demand`: the strategy needs the demand weights. `counts_zones`:
    the score is by zones in use. `changes` counts changes of the demand weights.
    """

    def __init__(self, name: str, weights: Mapping[str, int] | None = None) -> None:
        if name not in REGISTRY:
            names = ", ".join(STRATEGIES)
            raise ValueError(f"no strategy is called {name!r}; choose one of {names}")
        self.name, self._weights = name, dict(weights or {})
        self._labelled = name.startswith(CHOSEN_BY_LABEL)
        self.counts_zones = self._labelled
        self._columns = None if self._labelled else COLUMN_STRATEGIES.get(name)
        self._reports: dict[str, tuple[Report, Distances]] = {}
        self._rows, self.changes = 0, 0
        self._use(REGISTRY[name])
        self.at_once = self.by_landing or self._columns is not None
        self.ranks_by_demand = self._demand is not None

    def _use(self, strategy: Strategy) -> None:
        self._strategy = strategy
        unlabelled = None if self._labelled else strategy
        self.by_landing = isinstance(unlabelled, LandingStrategy)
        self._bounded = unlabelled if isinstance(unlabelled, BoundedStrategy) else None
        self._plain = unlabelled.score_plain if isinstance(unlabelled, PlainStrategy) else None
        self._demand = unlabelled if isinstance(unlabelled, DemandStrategy) else None
        self.is_bounded = self._bounded is not None
        self._landed: dict[Items, Landed] = {}

    def rank_by(self, demand_classes: Sequence[DemandClass]) -> None:
        """Score by these demand weights from now on: earlier scores are void."""
        if isinstance(self._strategy, DemandStrategy):
            self._use(self._strategy.given(tuple(demand_classes)))
            self.changes += 1

    # -- many nodes

    def highest(self, items: Items, free: Ints, limits: Ints) -> Ints:
        """Return an upper bound of the part's score on every node; see `BoundedStrategy`."""
        if self._bounded is None:
            return np.full(len(limits), HIGHEST)
        request = np.array([amount for _, amount in items], dtype=np.int64)
        return self._bounded.most_nodes(request, np.maximum(free, 0), limits)

    def landed(self, items: Items, rows: Mapping[str, int]) -> Landed:
        """Return the part prepared for arrays of these rows, which have all of its resources. Rows
        are only ever added.
        """
        if self._rows != len(rows) or len(self._landed) >= REMEMBERED:
            self._rows, self._landed = len(rows), {}
        landed = self._landed.get(items)
        if landed is None:
            strategy = cast("LandingStrategy", self._strategy)
            landed = self._landed[items] = strategy.landed(items, tuple(rows))
        return landed

    def room(self, items: Items, rows: Mapping[str, int], free: Ints, whole: Floats) -> Any:
        """Return the part as the kernel scores it; None if it does not."""
        landed = self.landed(items, rows) if self.by_landing else None
        return landed.room(free, whole) if isinstance(landed, CompiledRoom) else None

    def lost_by_sets(
        self, items: Items, rows: Mapping[str, int], landing: Ints, free: Ints, whole: Floats
    ) -> Floats | None:
        """See `DemandStrategy.lost_by_sets`; None under a strategy without demand."""
        if self._demand is None:
            return None
        return self._demand.lost_by_sets(items, tuple(rows), landing, free, whole)

    def part_on_all(self, items: Items, free: Ints, whole: Floats, fits: Bools) -> Ints:
        """Return the part's score on every node, as `part` gives it: `free` and `whole` are
        [resource of items, zone, node].
        """
        sizes = cast("Ints", whole)  # the same integers as floats, which are faster
        return self._score_nodes(dict(items), np.maximum(free, 0), sizes, fits)

    def whole_on_all(self, asked: Amounts, free: Ints, whole: Ints) -> Ints:
        """Score every node as one zone: `free` and `whole` are [requested resource, node]."""
        available, allocatable = np.clip(free, 0, whole)[:, None, :], whole[:, None, :]
        request = np.array(list(asked.values()), dtype=np.int64)
        fits = np.logical_and.reduce(available >= request[:, None, None], axis=0)
        return self._score_nodes(asked, available, allocatable, fits)

    def whole_by_landing(
        self, asked: Amounts, names: Sequence[str], free: Ints, whole: Ints
    ) -> Ints:
        """Score every node as one zone: `free` and `whole` are [resource of `names`, node]."""
        landed = cast("LandingStrategy", self._strategy).landed(tuple(asked.items()), names)
        # Nodes that do not offer the requested resources are ruled out, whatever they score.
        sizes = np.maximum(whole, 1).astype(np.float64)
        return landed.scores(np.clip(free, 0, whole), sizes, np.arange(free.shape[1]))

    def _score_nodes(self, asked: Amounts, free: Ints, whole: Ints, fits: Bools) -> Ints:
        assert self._columns is not None
        request = np.array(list(asked.values()), dtype=np.int64)
        weights = np.array([self._weights.get(name, 1) for name in asked], dtype=np.int64)
        devices = np.array([is_device(name) for name in asked], dtype=np.bool_)
        return self._columns.score_nodes(
            Columns(request, free, whole, whole > 0, fits, weights, devices)
        )

    # -- one node

    def part(self, items: Items, node_info: NodeInfo, in_sets: bool = False) -> int:
        """Return the score of one part on this node. `in_sets`: its kubelet also admits pods that
        need several zones.
        """
        report = node_info.report
        if report is None:
            return 0
        if self._plain is not None:
            zones = node_info.for_single_zones(node_info.free_min)
            if in_sets and self._demand is not None:
                return self._demand.score_with_sets(items, zones, node_info.sizes)
            return self._plain(items, zones, node_info.sizes)
        distances, views = self._distances(node_info.name, report), self._views(node_info)
        return _clipped(
            self._chosen(node_info).score(
                dict(items), views, distances, self._weights, report.max_numa_nodes
            )
        )

    @property
    def compares_sets(self) -> bool:
        """Whether the strategy compares sets of zones. Such strategies also rank nodes for a pod
        that may need several zones.
        """
        return REGISTRY[self.name].combine == "least"

    def sets(self, parts: Sequence[AlignedPart], node_info: NodeInfo) -> int:
        """Return the pod's score, each part on what the parts before it leave."""
        report = node_info.report
        if report is None:
            return 0
        views = []
        for zone, whole in node_info.sizes.items():
            free = node_info.free_min.get(zone)
            if free is not None:
                available = {name: max(0, amount) for name, amount in free.items()}
                views.append(ZoneView(zone, available, whole))
        containers = [Container(part.name, part.kind, part.amounts) for part in parts]
        distances = self._distances(node_info.name, report)
        limit = report.max_numa_nodes
        return _clipped(
            score_containers(
                REGISTRY[self.name], containers, views, distances, self._weights, limit
            )
        )

    def whole(self, asked: Amounts, node_info: NodeInfo) -> int:
        """Score the node as one zone, for pods that need no alignment. A pod that requests nothing
        scores 0 everywhere.
        """
        if not asked:
            return 0
        if self._demand is not None:
            allocatable = node_info.allocatable
            of_node = {name: node_info.free(name) for name in allocatable}
            return self._demand.score_plain(tuple(asked.items()), {0: of_node}, {0: allocatable})
        free = {name: node_info.free(name) for name in asked}
        whole = {name: node_info.allocatable.get(name, 0) for name in asked}
        used = any(free[name] < whole[name] for name in asked)
        view = ZoneView(0, free, whole, used)
        return _clipped(self._chosen(node_info).score(asked, [view], {}, self._weights, 1))

    def _views(self, node_info: NodeInfo) -> Sequence[ZoneView]:
        """The node's zones, kept until it changes: several pod classes ask for them in a row."""
        kept: tuple[int, Sequence[ZoneView]] | None = node_info.views
        if kept is None or kept[0] != node_info.version:
            free_min = node_info.for_single_zones(node_info.free_min)
            views = [
                ZoneView(zone, free_min[zone], whole, self._is_used(free_min[zone], whole))
                for zone, whole in node_info.sizes.items()
                if zone in free_min
            ]
            node_info.views = kept = node_info.version, views
        return kept[1]

    def _is_used(self, available: Amounts, whole: Amounts) -> bool:
        """Only Koordinator's strategies ask whether anything in the zone is in use."""
        return self._labelled and any(
            available.get(name, 0) < amount for name, amount in whole.items()
        )

    def _distances(self, name: str, report: Report) -> Distances:
        kept = self._reports.get(name)
        if kept is None or kept[0] is not report:
            distances = {}
            for zone in report.zones:
                for to_zone, cost in zone.costs.items():
                    distances[zone.id, to_zone] = cost
            kept = self._reports[name] = report, distances
        return kept[1]

    def _chosen(self, node_info: NodeInfo) -> Strategy:
        if not self._labelled:
            return REGISTRY[self.name]
        labels = node_info.observed.labels if node_info.observed is not None else {}
        return REGISTRY[strategy_for(labels, self.name).strategy]

    def best_zone(self, node_info: NodeInfo, plan: Plan) -> tuple[int, int] | None:
        """Return score and id of the best zone for an owned plan, of equals the lowest; None
        without a zone, or if the node's own strategy decides.
        """
        if plan.one_zone is None or not self.scores_zones(plan):
            return None
        amounts, scored = plan.one_zone
        zones, _, sizes = zones_of(node_info)
        best = None
        for zone, free in zones.items():
            if all(free.get(name, 0) >= amount for name, amount in amounts):
                assert self._plain is not None
                score = self._plain(scored, {zone: free}, sizes)
                if best is None or score > best[0]:
                    best = score, zone
        return best

    def scores_zones(self, plan: Plan) -> bool:
        """Return whether the strategy chooses between the zones of an owned plan's node."""
        return plan.one_zone is not None and self.by_landing and not plan.counted_zones


def score_node(
    node_info: NodeInfo, pod_class: PodClass, plan: Plan, strategy: StrategyRunner
) -> int:
    """Return the node's score, assuming that it takes the pod.

    A node on which some part may need several zones counts as one zone, except under strategies
    that compare sets of zones; those put each part on what the parts before it leave.
    """
    if strategy.compares_sets and plan.mode in BY_KUBELET:
        return strategy.sets(plan.parts, node_info)
    if plan.mode == "owned" and (plan.counted_zones or strategy.counts_zones):
        chosen = plan.counted_zones or strategy.name.removeprefix(CHOSEN_BY_LABEL)
        return _score_of_owned(node_info, plan, cast("OwnedStrategy", chosen))
    if strategy.scores_zones(plan):
        best = strategy.best_zone(node_info, plan)
        return best[0] if best is not None else 0
    if plan.mode != "aligned":
        return strategy.whole(pod_class.asked, node_info)
    parts = [part.amounts for part in plan.parts]
    if plan.rule.policy == RESTRICTED and not fits_one_zone(parts, node_info.machine.capacities):
        return strategy.whole(pod_class.asked, node_info)
    in_sets = plan.rule.policy == RESTRICTED
    total = sum(
        count * strategy.part(items, node_info, in_sets) for items, count in plan.part_kinds
    )
    return total // len(parts)


def _score_of_owned(node_info: NodeInfo, plan: Plan, strategy: OwnedStrategy) -> int:
    """Return the score by the zones in use after the placement."""
    allocation, state = allocate(node_info, plan), node_info.owned_state()
    if isinstance(allocation, Refusal):
        return 0
    node = msgspec.structs.replace(state.node, node_strategy=strategy)
    return node_score_by_zones(node, state.free, allocation)


def _clipped(score: int) -> int:
    return max(0, min(HIGHEST, score))
