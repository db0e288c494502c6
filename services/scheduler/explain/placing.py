"""Placing: what the core asks of whatever chooses nodes, and the default that does.

The default decides on the ledger's own view (`ColumnarPlacing`). The upstream plugin's caches can
be configured instead (`plugins/upstream_compat`). `Placing` is what both have; its attributes
`columns` and `caches` lead to what only one of them has. This module is the caller that
explains: room `select` returns a node or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import Protocol

from services.scheduler.explain import explain
from services.scheduler.preempt.search import find, still_suffices
from services.scheduler.select.cluster import Cluster
from services.scheduler.select.score_cache import RULED_OUT, salt_of
from services.scheduler.select.select_node import last_resort, select_node
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.result import Nomination, Placed, Unplaceable
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.events.catalog import Event
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts


class ResyncedCaches(Protocol):
    """Caches that follow the API by events and are resynced by a clock."""

    def hear(self, event: Event) -> None:
        """Follow an event that was folded."""

    def tick(self) -> bool:
        """Resync; return True if waiting pods may fit now."""


class Placing(Protocol):
    """Chooses nodes for pods. Single-threaded."""

    @property
    def columns(self) -> ColumnarPlacing | None:
        """None if the upstream plugin's caches decide: then there is no preemption, no demand
        weight, no shard and no extender.
        """

    @property
    def caches(self) -> ResyncedCaches | None:
        """None if the ledger decides. Caches count a reservation only once it was folded, so that
        the next pod must wait for that.
        """

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects) -> None:
        """Use these values, which the caller keeps up to date for the life of the state."""

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """An event about this pod was folded, or its assumed placement came to nothing: the pod is
        where the ledger has it.
        """

    def put_node(self, node: LedgerNode) -> None:
        """Insert or refresh a node. Assumed pods that the ledger lacks are forgotten."""

    def drop_node(self, name: str) -> None:
        """Forget a node."""

    def select(self, pod: Pod) -> Placed | Unplaceable | None:
        """Return a node for the pod, or why there is none; None if `explain` has yet to find
        out.
        """

    def explain(self, pod: Pod) -> Unplaceable:
        """Return why no node takes a pod for which `select` returned None. Costs many times more
        than `select`."""

    def assume(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Assume the pod on its node until the fold brings it; return the charge as the fold will
        compute it.
        """

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Could one of these nodes, which changed, take the pod now?"""

    def class_of(self, pod: Pod) -> str:
        """Return equal text for pods that are treated alike now: one waiting pod of each class is
        woken at a time.
        """

    def unconfirmed(self) -> list[str]:
        """Return the nodes that carry charges of unknown zones."""


class ColumnarPlacing(Cluster):
    """The default. It adds to `Placing`: preferred nodes (`share`), demand weights (`rank_by`),
    nodes that others' changes opened (`opened`), preemption, explanations, and node look-ups.
    """

    @property
    def columns(self) -> ColumnarPlacing:
        return self

    @property
    def caches(self) -> None:
        return None

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects) -> None:
        """Let constraints look at these."""
        self.view = self.view._replace(exclusions=exclusions, cluster_objects=cluster_objects)

    def share(self, has: Callable[[str], bool] | None) -> None:
        """Try the nodes for which `has` is true first; None: all alike."""
        self.preferred_nodes.share(has)

    def select(self, pod: Pod) -> Placed | Unplaceable | None:
        """Select a node for the pod."""
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return explain.hopeless(pod_class, pod)
        return select_node(self, pod, pod_class, self.checks(pod))

    def explain(self, pod: Pod) -> Unplaceable:
        """Explain why no node takes the pod."""
        return explain.unplaceable(self, self.evaluator.pod_class(pod), self.checks(pod))

    def place(self, pod: Pod) -> Placed | Unplaceable:
        """Select a node for the pod, or explain why no node takes it."""
        return self.select(pod) or self.explain(pod)

    def verdict(self, pod: Pod, node: str) -> Refusal | None:
        """Return why this node cannot take the pod, in full; None if it can."""
        return explain.verdict(self, pod, self.evaluator.pod_class(pod), node)

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Could one of these nodes, which changed, take the pod now?"""
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return False
        if self.claimed_node(pod.uid) in nodes or pod.constraints.kept:
            # A change of one node may open others to a pod with affinity or spread.
            return True
        checks = self.checks(pod)
        for name in sorted(nodes):
            node_info = self.node(name)
            if node_info is None or checks.refusal(node_info) is not None:
                continue
            if self.evaluator.score(pod_class, node_info) != RULED_OUT:
                return True
        changed = frozenset(nodes)

        def is_allowed(node_info: NodeInfo) -> bool:
            return node_info.name in changed and checks.refusal(node_info) is None

        return last_resort(self, pod_class, is_allowed) is not None

    def nominate(
        self,
        pod: Pod,
        pods: Mapping[str, LedgerPod],
        spared: Container[str],
        nodes: Collection[str] | None,
    ) -> Nomination | None:
        """Return the least costly evictions that make room for the pod. The search begins at
        another node for every pod, so that several pods do not meet on the first.
        """
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return None
        names = sorted(self._by_name if nodes is None else nodes)
        start = salt_of(pod.uid) % len(names) if names else 0
        checks = self.checks(pod)
        allowed = (
            node_info
            for name in names[start:] + names[:start]
            if (node_info := self.node(name)) is not None and checks.refusal(node_info) is None
        )
        return find(pod, pod_class, allowed, pods, self.config, spared)

    def nomination_still_valid(
        self, pod: Pod, node: str, victims: Collection[str], pods: Mapping[str, LedgerPod]
    ) -> bool:
        """Return whether the pod would fit its node once the remaining victims ended.

        Assumed pods that are not folded yet postpone the answer.
        """
        node_info = self.node(node)
        if node_info is None:
            return False
        if node_info.assumed:
            return True
        pod_class = self.evaluator.pod_class(pod)
        return still_suffices(pod, pod_class, node_info, victims, pods, self.config)

    def take_over_budget(self) -> int:
        """Return the searches since the last call that ended without an answer."""
        taken, self.evaluator.over_budget = self.evaluator.over_budget, 0
        return taken
