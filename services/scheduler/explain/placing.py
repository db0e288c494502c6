"""Placing: the interface through which the core chooses nodes, and its default implementation.

The default, `ColumnarPlacing`, decides by the ledger. A user can configure the upstream plugin's
caches instead (`plugins/upstream_compat`). `Placing` has the members of both; its properties
`columns` and `caches` return the implementation if it has more members.

Room `select` returns a node or None. This module adds the explanation, so it belongs to `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import Protocol

import msgspec
import numpy as np

from services.scheduler.explain import explain
from services.scheduler.preempt.search import find, still_suffices
from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.select.cluster import Cluster
from services.scheduler.select.hold_node import NodeToHold, may_hold, node_to_hold
from services.scheduler.select.select_node import booked_node, last_resort, salt_of, select_node
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.result import Nomination, Placed, Unplaceable
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from services.scheduler.state.holds import Holds
from shared.domain.booking import NAMESPACE
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.domain.zone_allocation import ZoneAllocation
from shared.events.catalog import Event
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts


class ResyncedCaches(Protocol):
    """Caches of the upstream plugin: they follow events and are resynced periodically."""

    def fold(self, event: Event) -> None:
        """Apply an event that the fold has applied."""

    def tick(self) -> bool:
        """Resync the caches; return True if waiting pods may fit now."""


class Placing(Protocol):
    """Chooses nodes for pods. Single-threaded."""

    @property
    def columns(self) -> ColumnarPlacing | None:
        """The default implementation, or None if the upstream plugin's caches decide. Without it
        there are no preemption, demand weights, shards and extender.
        """

    @property
    def caches(self) -> ResyncedCaches | None:
        """The upstream plugin's caches, or None if the ledger decides. Caches do not assume pods:
        the next pod is decided only after the fold has the last reservation.
        """

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects, holds: Holds) -> None:
        """Use these objects from now on. The caller updates them in place."""

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """Take the pod's placement from the ledger, after an event about it was folded or its
        assumed placement failed.
        """

    def put_node(self, node: LedgerNode) -> None:
        """Insert or update a node. Assumed pods that the ledger lacks are removed."""

    def drop_node(self, name: str) -> None:
        """Remove a node."""

    def select(self, pod: Pod) -> Placed | Unplaceable | None:
        """Return a node for the pod, or why there is none; None if only `explain` can compute
        why.
        """

    def explain(self, pod: Pod, last_message: str = "") -> Unplaceable:
        """Return why no node takes a pod for which `select` returned None. This costs many times
        more than `select`; less if the pod's `last_message` begins with the new one,
        because details are left out then.
        """

    def assume(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Assume the pod on its node until the fold has its reservation. Return the charge that the
        fold will compute.
        """

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Return whether one of these nodes, which changed, could take the pod now."""

    def class_of(self, pod: Pod) -> str:
        """Return the key of the pod's class: pods with equal keys get the same filter results now.
        The queue wakes one waiting pod of each class at a time.
        """

    def unconfirmed(self) -> list[str]:
        """Return the nodes with unconfirmed charges."""


class ColumnarPlacing(Cluster):
    """The default implementation. It adds to `Placing`: preferred nodes (`share`), demand weights
    (`rank_by`), nodes that were opened by changes of other schedulers (`opened`), preemption, and
    explanations for one node.
    """

    @property
    def columns(self) -> ColumnarPlacing:
        return self

    @property
    def caches(self) -> None:
        return None

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects, holds: Holds) -> None:
        self.view = self.view._replace(
            exclusions=exclusions, cluster_objects=cluster_objects, holds=holds
        )

    def share(self, is_own: Callable[[str], bool] | None) -> None:
        """Prefer the nodes for which `is_own` is true; None prefers no node."""
        self.preferred_nodes.share(is_own)

    def select(self, pod: Pod) -> Placed | Unplaceable | None:
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return explain.refused_everywhere(pod_class, pod)
        placed = select_node(self, pod, pod_class, self.checks(pod))
        if pod.namespace == NAMESPACE and placed is not None and placed.allocation is not None:
            # Other fields are about how a pod runs.
            made = placed.allocation
            booked = ZoneAllocation(made.zones, made.cpus, devices=made.devices)
            return msgspec.structs.replace(placed, allocation=booked)
        return placed

    def explain(self, pod: Pod, last_message: str = "") -> Unplaceable:
        return explain.unplaceable(
            self, self.evaluator.pod_class(pod), self.checks(pod), last_message
        )

    def place(self, pod: Pod) -> Placed | Unplaceable:
        """Return a node for the pod, or why no node takes it."""
        return self.select(pod) or self.explain(pod)

    def verdict(self, pod: Pod, node: str) -> Refusal | None:
        """Return the full refusal of one node; None if it takes the pod."""
        return explain.node_refusal(self, pod, self.evaluator.pod_class(pod), node)

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Return whether one of these nodes, which changed, could take the pod now."""
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return False
        if self.claimed_node(pod.uid) in nodes or pod.constraints.kept:
            # With affinity or spread constraints, a change of one node may open other nodes.
            return True
        checks = self.checks(pod)
        if (booked := booked_node(self, pod, pod_class, checks.allow)) is not None:
            return booked[0].name in nodes
        for name in sorted(nodes):
            node_info = self.node(name)
            if node_info is None or checks.refusal(node_info) is not None:
                continue
            if self.evaluator.rank(pod_class, node_info) != RULED_OUT:
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
        """Return the least costly evictions that make room for the pod. Each pod starts the search
        at another node, so that concurrent preemptors rarely choose the same node.
        """
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return None
        slots, placed_pods = self.slots_by_name(nodes), self.view.placed_pods
        slots = np.roll(slots, -(salt_of(pod.uid) % max(1, len(slots))))
        passing = self.checks(pod).passing()
        if passing is not None:
            slots = slots[passing[slots]]
        full = ~self.evaluator.candidates(pod_class)
        full[placed_pods.leaving.by_slot() > 0] = False
        nodes_in_turn = map(self.evaluator.node_at, slots.tolist())
        lowest = min(placed_pods.priorities, default=None)
        bookings = self.bookings_of(pod)
        return find(
            pod, pod_class, nodes_in_turn, pods, self.config, spared, full, lowest, bookings
        )

    def nomination_still_valid(
        self, pod: Pod, node: str, victims: Collection[str], pods: Mapping[str, LedgerPod]
    ) -> bool:
        """Return whether the pod will fit its node when the remaining victims have ended.

        While the node has assumed pods, the nomination is kept.
        """
        node_info = self.node(node)
        if node_info is None:
            return False
        if node_info.assumed:
            return True
        pod_class = self.evaluator.pod_class(pod)
        bookings = self.bookings_of(pod)
        return still_suffices(pod, pod_class, node_info, victims, pods, self.config, bookings)

    def node_to_hold(self, pod: Pod, pods: Mapping[str, LedgerPod]) -> NodeToHold | None:
        """Return the node on which the pod likely waits the shortest time."""
        return node_to_hold(self, pod, self.evaluator.pod_class(pod), self.checks(pod), pods)

    def hold_may_help(self, pod: Pod, node: str, pods: Mapping[str, LedgerPod]) -> bool:
        """Return whether this node would take the pod once others have ended."""
        node_info = self.node(node)
        if node_info is None:
            return False
        pod_class = self.evaluator.pod_class(pod)
        return may_hold(self, pod, pod_class, self.checks(pod), node_info, pods)

    def take_over_budget(self) -> int:
        """Return how many searches exceeded their budget since the last call."""
        over_budget, self.evaluator.over_budget = self.evaluator.over_budget, 0
        return over_budget


class OtherPlacing(Protocol):
    """The configuration of a plugin that chooses nodes instead of the ledger's columns."""

    def placing(self, cycle: CycleConfig) -> Placing:
        """Return the plugin, freshly started."""


def placing_of(cycle: CycleConfig, upstream: OtherPlacing | None) -> Placing:
    """Return the default implementation, or the plugin's if there is one."""
    return ColumnarPlacing(cycle) if upstream is None else upstream.placing(cycle)
