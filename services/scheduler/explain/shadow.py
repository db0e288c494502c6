"""Shadow mode: what Topolog would have said to each pod that others placed, and what their kubelets
said.

Each pod that is seen on a node for the first time, and not yet running, is judged for that node as
the ledger stood, and by where it would have gone itself; the kubelet's word, rejected or running,
closes the case. Nothing is proposed. Zones and node amounts are compared, not constraints: those
are the other scheduler's. Must not know the log or a clock.
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
    """What Topolog says to one pod on one node: `refused` is why not, "" for yes; `instead` is
    where it would have gone.
    """

    pod: str
    node: str
    refused: str
    instead: str


class Case(msgspec.Struct, frozen=True):
    """A judgement and what came of the pod; `reason` is the kubelet's."""

    outcome: Outcome
    uid: str
    judged: Judged
    reason: str = ""


class Shadow:
    """`cases` are closed since they were taken last; `counts` are all of them."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.counts: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.elsewhere = 0
        self._open: dict[str, Judged] = {}

    def before(self, event: Event, ledger: Ledger, placing: ColumnarPlacing) -> None:
        """Judge a placement that the ledger has not folded yet; columns stand where the ledger
        does.
        """
        if (
            not isinstance(event, PodObserved)
            or not event.node
            or event.static
            or event.phase != "Pending"
            or event.terminating
        ):
            return
        known = ledger.pods.get(event.pod.uid)
        if event.problem or (known is not None and known.node):
            return
        self._open[event.pod.uid] = self._judge(event.pod, event.node, placing)
        if len(self._open) > CASES_LIMIT:
            del self._open[next(iter(self._open))]

    def _judge(self, pod: Pod, node: str, placing: ColumnarPlacing) -> Judged:
        bare = msgspec.structs.replace(pod, constraints=Constraints())
        refusal = placing.verdict(bare, node)
        found = placing.place(pod)
        instead = found.node if isinstance(found, Placed) else ""
        return Judged(
            pod.key, node, _refused(placing, bare, refusal) if refusal is not None else "", instead
        )

    def after(self, event: Event) -> None:
        """The kubelet's word on a pod."""
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
        """The cases closed since the last time."""
        found, self.cases = self.cases, []
        return found

    @property
    def open(self) -> int:
        """Pods whose kubelet has not spoken yet."""
        return len(self._open)


def _refused(placing: ColumnarPlacing, pod: Pod, refusal: Refusal) -> str:
    """Why not, and what of that the kubelet may know better."""
    events, pod_class = placing.node(refusal.node), placing.evaluator.pod_class(pod)
    return headline(refusal) + within(explain.bounds_of(placing, events, pod_class, refusal))
