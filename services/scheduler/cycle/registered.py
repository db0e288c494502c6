"""Strategies of `services.scheduler.scoring` in the cycle: scored node by node, when a node comes out on top.

Until then a candidate stands at the highest score. A node label may choose between Koordinator's two strategies.
"""

from __future__ import annotations

from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.scoring.node_label import strategy_for
from services.scheduler.scoring.registry import STRATEGIES as REGISTRY
from services.scheduler.scoring.strategy import Strategy, ZoneView
from shared.domain.resources import Amounts

HIGHEST = 100

__all__ = ["HIGHEST", "REGISTRY", "Registered"]


class Registered:
    """A strategy by its registry name."""

    falls = False

    def __init__(self, name: str) -> None:
        self.name = name

    def part(self, items: tuple[tuple[str, int], ...], facts: NodeFacts) -> int:
        """The score of one part on this node."""
        report = facts.report
        if report is None:
            return 0
        lower = facts.firm(facts.lower)
        views, distances = [], {}
        for zone in report.zones:
            available, whole = lower.get(zone.id, {}), {name: held.allocatable for name, held in zone.resources.items()}
            used = any(available.get(name, 0) < amount for name, amount in whole.items())
            views.append(ZoneView(zone.id, available, whole, used))
            distances.update({(zone.id, other): cost for other, cost in zone.costs.items()})
        found = self._chosen(facts).score(dict(items), views, distances, {}, report.max_numa_nodes)
        return max(0, min(HIGHEST, found))

    def whole(self, asked: Amounts, free: Amounts, facts: NodeFacts) -> int:
        """The node as one zone."""
        whole = {name: facts.allocatable.get(name, 0) for name in asked}
        used = any(free[name] < whole[name] for name in asked)
        found = self._chosen(facts).score(asked, [ZoneView(0, free, whole, used)], {}, {}, 1)
        return max(0, min(HIGHEST, found))

    def _chosen(self, facts: NodeFacts) -> Strategy:
        labels = facts.observed.labels if facts.observed is not None else {}
        return REGISTRY[strategy_for(labels, self.name).strategy]
