"""Shadow mode: compares Topolog's decisions with those of other schedulers, by what the kubelets
did.

A case opens when a pod is first observed on a node and does not run yet. Topolog filters that node
for the pod, with the ledger as it was before the placement, and also selects a node of its own. The
case closes when the kubelet runs or rejects the pod. The filter of the other scheduler's node looks
at amounts and zones only, because that scheduler has checked its own constraints. Nothing is
reserved. This module does not know the log or a clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from services.scheduler.explain import explain
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.wording import headline, within
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.exclusions import REJECTIONS
from shared.domain.pod import Constraints, Pod
from shared.domain.refusal import Refusal
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.ledger.state import Ledger

Outcome = Literal["agreed", "prevented", "missed", "stricter"]
OUTCOMES: dict[Outcome, str] = {
    "agreed": "ran where Topolog too would have allowed it",
    "prevented": "rejected by the kubelet of a node that Topolog would have refused",
    "missed": "rejected by the kubelet of a node that Topolog would have allowed",
    "stricter": "ran on a node that Topolog would have refused",
}
CASES_LIMIT = 10_000


class Judged(msgspec.Struct, frozen=True):
    """Topolog's decision for a pod that another scheduler placed on `node`.

    `refused` is the reason why Topolog refuses this node ("" if it does not). `instead` is the node
    that Topolog would have selected ("" for none).
    """

    pod: str
    node: str
    refused: str
    instead: str


class Case(msgspec.Struct, frozen=True):
    """A closed case: the decision, the outcome, and the kubelet's reason for a rejection."""

    outcome: Outcome
    uid: str
    judged: Judged
    reason: str = ""


class Shadow:
    """The open and closed cases. `cases` are those closed since the last `take`, `counts` are all
    closed cases by outcome, `elsewhere` counts those with another node selected.
    """

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.counts: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.elsewhere = 0
        self._open: dict[str, Judged] = {}

    def before(self, event: Event, ledger: Ledger, placing: ColumnarPlacing) -> None:
        """Open a case if the event is a placement by another scheduler. The ledger has not folded
        the event yet, and `placing` agrees with the ledger.
        """
        if (
            not isinstance(event, PodObserved)
            or not event.node
            or event.static
            or event.phase != "Pending"
            or event.terminating
        ):
            return
        entry = ledger.pods.get(event.pod.uid)
        if event.problem or (entry is not None and entry.node):
            return
        self._open[event.pod.uid] = self._judge(event.pod, event.node, placing)
        if len(self._open) > CASES_LIMIT:
            del self._open[next(iter(self._open))]

    def _judge(self, pod: Pod, node: str, placing: ColumnarPlacing) -> Judged:
        bare = msgspec.structs.replace(pod, constraints=Constraints())
        refusal = placing.verdict(bare, node)
        selected = placing.place(pod)
        instead = selected.node if isinstance(selected, Placed) else ""
        return Judged(
            pod.key, node, _refused(placing, bare, refusal) if refusal is not None else "", instead
        )

    def after(self, event: Event) -> None:
        """Close the pod's case if the event is its kubelet's answer."""
        if isinstance(event, PodRunning):
            self._close(event.uid, False, "")
        elif isinstance(event, PodObserved) and event.phase == "Running":
            self._close(event.pod.uid, False, "")
        elif isinstance(event, PodEnded):
            if event.cause == "rejected" and event.reason in REJECTIONS:
                self._close(event.uid, True, event.reason)
            elif event.cause in ("succeeded", "failed"):
                self._close(event.uid, False, "")
            self._open.pop(event.uid, None)

    def _close(self, uid: str, rejected: bool, reason: str) -> None:
        judged = self._open.pop(uid, None)
        if judged is None:
            return
        if rejected:
            outcome: Outcome = "prevented" if judged.refused else "missed"
        else:
            outcome = "stricter" if judged.refused else "agreed"
        self.counts[outcome] += 1
        self.elsewhere += judged.instead not in ("", judged.node)
        self.cases.append(Case(outcome, uid, judged, reason))
        del self.cases[:-CASES_LIMIT]

    def take(self) -> list[Case]:
        """Return the cases closed since the last call."""
        cases, self.cases = self.cases, []
        return cases

    @property
    def open(self) -> int:
        """The number of pods that their kubelet neither runs nor has rejected yet."""
        return len(self._open)


def _refused(placing: ColumnarPlacing, pod: Pod, refusal: Refusal) -> str:
    """Return the reason and what is undecided about it."""
    node_info, pod_class = placing.node(refusal.node), placing.evaluator.pod_class(pod)
    return headline(refusal) + within(explain.bounds_of(placing, node_info, pod_class, refusal))
