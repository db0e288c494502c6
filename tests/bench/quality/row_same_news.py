"""The oracle with the same information: the ledger's row, judged by every state that is consistent
with its information.

The production scheduler decides, with its own queue, bulk evaluation and ranking. Only the
judgement of a node differs: the pod is placed if and only if every consistent state admits it
(`consistent`), followed through the kubelet model without bounds, charges or a budget. A result
beyond this row needs the risk of a rejection.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.comparison.row_ledger import LedgerRow
from services.comparison.rows import Reservation
from services.comparison.truth import TrueNode, free_of
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
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodRunning
from shared.ledger.state import ZoneAmounts
from tests.bench.quality.consistent import Consistent, TooManyError

States = Mapping[str, Consistent]


class EvaluatorByEveryState(Evaluator):
    """Asks all consistent states instead of bounds and search."""

    states: States = {}

    def _evaluate(
        self,
        pod_class: PodClass,
        node_info: NodeInfo,
        steps: int,
        predicted_rank: int = OPTIMISTIC,
        finds_zones: bool = False,
    ) -> int:
        plan, barred = self.plan(pod_class, node_info)
        if barred or not self.states[node_info.name].admits(pod_class.pod):
            return RULED_OUT
        return true_rank(pod_class, plan, node_info, self.config, self.strategy)


class ByEveryState(ColumnarPlacing):
    """The columnar cluster, with this evaluator."""

    def __init__(self, config: CycleConfig, states: States) -> None:
        super().__init__(config)
        self._states = states
        self.evaluator = evaluator = EvaluatorByEveryState(
            config, self._arrays, self._constraints, self._slots
        )
        evaluator.states = states
        self.now_s = 0.0

    def assume(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        self._states[placed.node].sent(pod, self.now_s)
        return super().assume(placed, pod)


class SameNewsRow(LedgerRow):
    """A ledger's row that receives the same information, and knows by its own clock when reports
    were made.
    """

    def __init__(self, nodes: Mapping[str, TrueNode], scheduler: str) -> None:
        self._nodes = nodes
        self._states = {name: Consistent(node.kubelet.state) for name, node in nodes.items()}
        self._cluster = ByEveryState(CycleConfig(), self._states)
        super().__init__(CoreConfig(scheduler, upstream=self))

    def placing(self, cycle: CycleConfig) -> Placing:
        """Return the object that decides in the core."""
        return self._cluster

    def decide(self, now_s: float) -> list[Reservation]:
        self._cluster.now_s = now_s
        return super().decide(now_s)

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        if isinstance(event, PodRunning):
            self._states[event.node].runs(event.uid, now_s, event.started_s)
        elif isinstance(event, PodEnded) and event.node:
            self._states[event.node].ended(
                event.uid, event.cause == "rejected", now_s, event.started_s, event.finished_s
            )
        super().evolve(stream, event, now_s)

    def reported(self, report: Report, now_s: float) -> None:
        state = self._nodes[report.node].scans.get(report.boot_time_ms)
        if state is not None:
            self._states[report.node].reported(state, report.boot_time_ms / 1000)
        super().reported(report, now_s)

    def visible_cpu(self, node: str) -> dict[int, int]:
        """Return zone -> CPUs that are free in every state after all pending pods have come."""
        try:
            free_by_state = [free_of(state) for state in self._states[node].arrived()]
        except TooManyError:
            return super().visible_cpu(node)
        zones = free_by_state[0] if free_by_state else {}
        return {zone: min(free[zone].get("cpu", 0) for free in free_by_state) for zone in zones}
