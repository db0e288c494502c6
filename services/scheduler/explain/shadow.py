"""Shadow mode: what Topolog would have decided for pods that other schedulers placed, compared with
what their kubelets did.

Each pod that is first observed on a node and does not run yet is filtered for that node as the
ledger was, and selected for a node of Topolog's choice. The kubelet's answer, rejected or running,
closes the case. Nothing is proposed. Zones and node amounts are compared; constraints are the other
scheduler's. Must not know the log or a clock.
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
    """Topolog's decision for one pod on one node: `refused` is why not, "" for yes; `instead` is
    the node of its own choice.
    """

    pod: str
    node: str
    refused: str
    instead: str


class Case(msgspec.Struct, frozen=True):
    """A decision and the pod's outcome; `reason` is the kubelet's."""

    outcome: Outcome
    uid: str
    judged: Judged
    reason: str = ""


class Shadow:
    """`cases` were closed since the last `take`; `counts` are all of them."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.counts: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.elsewhere = 0
        self._open: dict[str, Judged] = {}

    def before(self, event: Event, ledger: Ledger, placing: ColumnarPlacing) -> None:
        """Judge a placement that the ledger has not folded yet; columns and ledger agree."""
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
        """Note the kubelet's answer for a pod."""
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
        """Return and forget the closed cases."""
        cases, self.cases = self.cases, []
        return cases

    @property
    def open(self) -> int:
        """The number of pods without an answer of their kubelet."""
        return len(self._open)


def _refused(placing: ColumnarPlacing, pod: Pod, refusal: Refusal) -> str:
    # Why not, and what of that is undecided.
    events, pod_class = placing.node(refusal.node), placing.evaluator.pod_class(pod)
    return headline(refusal) + within(explain.bounds_of(placing, events, pod_class, refusal))
