"""What the core asks of whoever chooses nodes: the columnar cluster by default, the upstream
plugin's caches where asked for.

An implementation is told of every fact and of each node that a fact touched; it keeps what it needs
and decides on no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import Protocol

from services.scheduler.explain import explain
from services.scheduler.preempt.nominations import Searching
from services.scheduler.preempt.search import find, still_suffices
from services.scheduler.select.cluster import Cluster
from services.scheduler.select.select_node import last_resort, select_node
from services.scheduler.select.verdict_cache import RULED_OUT, salt_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.result import Nomination, Placed, Unplaceable
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.events.catalog import Event
from shared.events.scheduling_events import Wanted
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts


class Placing(Searching, Protocol):
    """Nodes in, places out. Single-threaded."""

    one_by_one: bool
    """True where a reservation counts only once its fact was folded: the next pod must wait for that."""

    def hear(self, event: Event) -> None:
        """A fact was folded."""

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """A fact about this pod was folded, or an own reservation of it came to nothing: it stands
        where the ledger has it.
        """

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects) -> None:
        """Which nodes are set aside, and what surrounds pods: values for the life of the state,
        kept up to date by the caller.
        """

    def rank_by(self, wanted: tuple[Wanted, ...]) -> None:
        """What pods ask for, weighed: for a strategy that looks at it."""

    def share(self, has: Callable[[str], bool] | None) -> None:
        """Try the nodes of which `has` is true before the others; None: all alike."""

    def put_node(self, node: LedgerNode) -> None:
        """Insert or refresh a node from the ledger. Own reservations that the ledger lacks are
        forgotten.
        """

    def drop_node(self, name: str) -> None:
        """Forget a node."""

    def place(self, pod: Pod) -> Placed | Unplaceable:
        """A node for the pod, or why there is none."""

    def charge(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Stand in for an own reservation until the fold brings it; the charge as the fold will
        compute it.
        """

    def opened(self) -> list[str]:
        """Nodes that others' changes may have opened since the last call."""

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Could one of these nodes, which changed, take the pod now?"""

    def class_of(self, pod: Pod) -> str:
        """Equal for pods that are judged alike as things stand: of those that wait one is woken at
        a time.
        """

    def unconfirmed(self) -> list[str]:
        """Nodes that carry charges whose zones are not known."""

    def tick(self) -> bool:
        """The resync period went by; True when waiting pods may fit now."""

    def take_over_budget(self) -> int:
        """Judgements since the last call that met their last budget."""


class ColumnarPlacing(Cluster):
    """The default: the ledger's own view in columns. It learns from nodes alone, and has nothing to
    resync.
    """

    one_by_one = False

    def hear(self, event: Event) -> None:
        """The ledger's nodes say it all."""

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects) -> None:
        """Constraints look at them."""
        self.view = self.view._replace(exclusions=exclusions, cluster_objects=cluster_objects)

    def share(self, has: Callable[[str], bool] | None) -> None:
        """As a preference below those of pods."""
        self.preferred_nodes.share(has)

    def place(self, pod: Pod) -> Placed | Unplaceable:
        """Select a node for the pod, or explain why no node takes it."""
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return explain.hopeless(pod_class, pod)
        bars = self.bars(pod)
        return select_node(self, pod, pod_class, bars) or explain.unplaceable(self, pod_class, bars)

    def verdict(self, pod: Pod, node: str) -> Refusal | None:
        """Why this node cannot take the pod, in full; None when it can."""
        return explain.verdict(self, pod, self.evaluator.pod_class(pod), node)

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Could one of these nodes, which changed, take the pod now?"""
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return False
        if self.claimed_node(pod.uid) in nodes or pod.constraints.kept:
            return True  # what ends on one node may open others to a pod with affinity or spread
        barred, score = self.bars(pod), self.evaluator.score
        found = (node_info for name in sorted(nodes) if (node_info := self.node(name)) is not None)
        if any(
            barred.refusal(node_info) is None and score(pod_class, node_info) != RULED_OUT
            for node_info in found
        ):
            return True
        changed = frozenset(nodes)

        def may(node_info: NodeInfo) -> bool:
            return node_info.name in changed and barred.refusal(node_info) is None

        return last_resort(self, pod_class, may) is not None

    def nominate(
        self,
        pod: Pod,
        pods: Mapping[str, LedgerPod],
        spared: Container[str],
        nodes: Collection[str] | None,
    ) -> Nomination | None:
        """The search begins at another node for every pod, so that several of them do not meet on
        the first.
        """
        pod_class = self.evaluator.pod_class(pod)
        if pod_class.problem or pod.constraints.unsupported:
            return None
        names = sorted(
            nodes if nodes is not None else (node_info.name for node_info in self.nodes())
        )
        start = salt_of(pod.uid) % len(names) if names else 0
        turned = (self.node(name) for name in names[start:] + names[:start])
        barred = self.bars(pod)
        allowed = (
            node_info
            for node_info in turned
            if node_info is not None and barred.refusal(node_info) is None
        )
        return find(pod, pod_class, allowed, pods, self.config, spared)

    def nomination_still_valid(
        self, pod: Pod, node: str, victims: Collection[str], pods: Mapping[str, LedgerPod]
    ) -> bool:
        """Own reservations that are not folded yet leave the answer for later."""
        node_info = self.node(node)
        if node_info is None:
            return False
        return bool(node_info.assumed) or still_suffices(
            pod, self.evaluator.pod_class(pod), node_info, victims, pods, self.config
        )

    def tick(self) -> bool:
        """Nothing waits for a clock."""
        return False

    def take_over_budget(self) -> int:
        """Searches that ended without an answer."""
        taken, self.evaluator.over_budget = self.evaluator.over_budget, 0
        return taken
