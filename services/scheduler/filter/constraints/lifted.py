"""Which nodes the rules of running pods may have opened: where one with anti-affinity ends, every
node of its topology domain may be open again, also to pods that have no rule themselves; its own
node is looked at anyway. Must not know who waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.scheduler.filter.constraints.neighbours import Neighbours
from services.scheduler.filter.constraints.pod_affinity import ANTI_AFFINITY
from services.scheduler.snapshot.node_info import NodeInfo
from shared.events.cluster_events import NodeObserved

_HOST = "kubernetes.io/hostname"
"""A domain of one node."""


class Lifted:
    """Since the last look: topology labels with their values."""

    def __init__(self) -> None:
        self._domains: set[tuple[str, str]] = set()

    def left(self, kept: Mapping[str, Any], node: NodeObserved | None) -> None:
        """A pod for which constraints keep this is on that node no more, or otherwise."""
        labels = node.labels if node is not None else {}
        self._domains |= {
            (rule["key"], labels[rule["key"]])
            for rule in kept.get(ANTI_AFFINITY, ())
            if rule["key"] in labels
        }

    def relabelled(self, neighbours: Neighbours, node: NodeObserved | None) -> None:
        """The node is as this no more: its pods' rules hold elsewhere now, or nowhere."""
        for kept, nodes in neighbours.keeping(ANTI_AFFINITY):
            if node is not None and node.name in nodes:
                self.left({ANTI_AFFINITY: kept}, node)

    def take(self, nodes: Mapping[str, NodeInfo]) -> list[str]:
        """The nodes of these domains, once."""
        domains, self._domains = {domain for domain in self._domains if domain[0] != _HOST}, set()
        if not domains:
            return []
        seen = ((name, node_info.observed) for name, node_info in nodes.items())
        return [
            name
            for name, at in seen
            if at is not None and any(at.labels.get(key) == value for key, value in domains)
        ]
