"""Strategies of `services.scheduler.score.strategies` in the cycle.

Those of one zone score a part on all nodes at once; the others are scored node by node, when a node
comes out on top, and until then a candidate stands at the most that it may score. A node label may
choose between Koordinator's two strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from services.scheduler.score.strategies.containers import score_containers
from services.scheduler.score.strategies.node_label import strategy_for
from services.scheduler.score.strategies.registry import COLUMN_STRATEGIES
from services.scheduler.score.strategies.registry import STRATEGIES as REGISTRY
from services.scheduler.score.strategies.strategy import (
    BoundedStrategy,
    Distances,
    Landed,
    LandingStrategy,
    PlainStrategy,
    Strategy,
    Want,
    WantStrategy,
    ZoneView,
)
from services.scheduler.snapshot.columnar import Bools, Floats, Ints
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Items, Part
from shared.domain.pod import Container
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device

HIGHEST = 100
LABELLED = "Koordinator"
REMEMBERED = 1024
"""Parts that are kept ready; beyond them all are made anew."""


__all__ = ["HIGHEST", "REGISTRY", "Registered"]


class Registered:
    """A strategy by its registry name, with weights by resource (1 where none is named)."""

    monotone = even = False

    def __init__(self, name: str, weights: Mapping[str, int] | None = None) -> None:
        self.name, self._weights = name, dict(weights or {})
        self._labelled = name.startswith(LABELLED)
        self._columns = None if self._labelled else COLUMN_STRATEGIES.get(name)
        self._reports: dict[str, tuple[Report, Distances]] = {}
        self._rows = self.generation = 0
        self._take(REGISTRY[name])
        self.looks_at_wants = isinstance(self._strategy, WantStrategy)
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

    def want(self, wants: Sequence[Want]) -> None:
        """Score by these from now on: earlier scores are void."""
        if isinstance(self._strategy, WantStrategy):
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
        return cast("WantStrategy", self._strategy).standing(free, whole, tuple(rows))

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
            return self._plain(items, node_info.firm(node_info.free_min), node_info.sizes)
        distances, views = self._distances(node_info.name, report), self._views(node_info)
        found = self._chosen(node_info).score(
            dict(items), views, distances, self._weights, report.max_numa_nodes
        )
        return max(0, min(HIGHEST, found))

    def _views(self, node_info: NodeInfo) -> Sequence[ZoneView]:
        """The node's zones, kept until it changes: several shapes ask for them in a row."""
        kept: tuple[int, Sequence[ZoneView]] | None = node_info.views
        if kept is None or kept[0] != node_info.version:
            free_min = node_info.firm(node_info.free_min)
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
