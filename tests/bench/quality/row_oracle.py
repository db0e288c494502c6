"""The oracle: the ledger's row, with the truth for every judgement.

The production scheduler decides, with its own queue, ranking and strategy. It receives a report of
a node as soon as its kubelet took or freed something, and the end of a pod as soon as its kubelet
let go of it. A pod is placed if and only if the kubelet, as it is, admits the pod after all pods
that are on their way.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.comparison.row_ledger import LedgerRow
from services.comparison.rows import Reservation
from services.comparison.truth import TrueNode
from services.scheduler.core import CoreConfig
from services.scheduler.explain.placing import ColumnarPlacing, Placing
from services.scheduler.score.ranks import OPTIMISTIC, RULED_OUT
from services.scheduler.select.evaluate import Evaluator, true_rank
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded
from shared.kubelet import admission
from shared.ledger.state import ZoneAmounts


class EvaluatorByTruth(Evaluator):
    """Asks the kubelet instead of bounds and search."""

    nodes: Mapping[str, TrueNode] = {}

    def _evaluate(
        self,
        pod_class: PodClass,
        node_info: NodeInfo,
        steps: int,
        predicted_rank: int = OPTIMISTIC,
        finds_zones: bool = False,
    ) -> int:
        plan, is_blocked = self.plan(pod_class, node_info)
        node, pod = self.nodes[node_info.name], pod_class.pod
        if is_blocked or not node.has_room(pod):
            return RULED_OUT
        if not admission.admit(node.shadow(), pod).admitted:
            return RULED_OUT
        return true_rank(pod_class, plan, node_info, self.config, self.strategy)


class ByTruth(ColumnarPlacing):
    """The columnar cluster of the oracle, which judges by the true state of the kubelets."""

    def __init__(self, config: CycleConfig, nodes: Mapping[str, TrueNode]) -> None:
        super().__init__(config)
        self._nodes = nodes
        self.evaluator = evaluator = EvaluatorByTruth(
            config, self._arrays, self._constraints, self._slots
        )
        evaluator.nodes = nodes
        self.sent: dict[str, str] = {}

    def assume(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        self._nodes[placed.node].reserved(pod)
        self.sent[pod.uid] = placed.node
        return super().assume(placed, pod)


class OracleRow(LedgerRow):
    """`happened` names nodes of which the next decision needs a report."""

    clairvoyant = True

    def __init__(self, nodes: Mapping[str, TrueNode], scheduler: str) -> None:
        self._nodes, self._changed = nodes, set(nodes)
        self._cluster = ByTruth(CycleConfig(), nodes)
        self._reports = 0
        self._ended: set[str] = set()
        super().__init__(CoreConfig(scheduler, upstream=self))

    def placing(self, cycle: CycleConfig) -> Placing:
        """Return the object that decides in the core."""
        return self._cluster

    def happened(self, node: str) -> None:
        self._changed.add(node)

    def reported(self, report: Report, now_s: float) -> None:
        """Ignore it: the oracle makes its own reports."""

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        if not isinstance(event, PodEnded) or event.uid not in self._ended:
            super().evolve(stream, event, now_s)

    def decide(self, now_s: float) -> list[Reservation]:
        for name in sorted(self._changed):
            self._look_at(self._nodes[name], now_s)
        self._changed.clear()
        reservations = super().decide(now_s)
        for uid, name in self._cluster.sent.items():
            if (uid, name) not in reservations:
                self._nodes[name].withdrawn(uid)
        self._cluster.sent.clear()
        return reservations

    def _look_at(self, node: TrueNode, now_s: float) -> None:
        ledger_node = self.core.ledger.nodes.get(node.name)
        for uid in list(ledger_node.charges) if ledger_node is not None else ():
            if uid not in node.kubelet.pods and uid not in node.pending:
                self._ended.add(uid)
                ended = PodEnded(uid, "succeeded", node.name)
                super().evolve(streams.pod(uid), ended, now_s)
        self._reports += 1
        report = node.report(now_s)
        super().reported(msgspec.structs.replace(report, boot_time_ms=self._reports), now_s)

    def visible_cpu(self, node: str) -> dict[int, int]:
        return {zone: amounts.get("cpu", 0) for zone, amounts in self._nodes[node].free().items()}
