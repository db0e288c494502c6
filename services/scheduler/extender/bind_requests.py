"""Bindings that a kube-scheduler asked for: from a request to proposals, or to an answer.

A request is judged as the log is now, and reserved like any decision. If it loses a race, it is
judged again. If its caller gives up, the reservation is withdrawn unless the binder has begun. Must
not know HTTP, the log or a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.extender.verbs import placed_on
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.reserve.withdrawals import withdrawal
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.ledger.state import Ledger, LedgerPod

# Races that one request may lose.
TRIES = 5


class Request(msgspec.Struct):
    """A pod, as filter saw it, and its node."""

    pod: Pod
    node: str
    tries: int = 0


class BindRequests:
    """Requests by uid: `_asked` wait for a decision, `_sent` for the outcome of an append,
    `_abandoned` for a withdrawal. `answers` are for the callers: "" is success."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self._asked: dict[str, Request] = {}
        self._sent: dict[str, Request] = {}
        self._abandoned: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._asked or self._abandoned)

    def ask(self, pod: Pod, node: str) -> None:
        """Reserve the pod there; a later request for the same pod replaces the earlier one."""
        self._abandoned.pop(pod.uid, None)
        self._asked[pod.uid] = Request(pod, node)

    def forget(self, uid: str, node: str) -> None:
        """Give up: the caller no longer waits."""
        self._asked.pop(uid, None)
        self._sent.pop(uid, None)
        self.answers.pop(uid, None)
        self._abandoned[uid] = node

    def conflicted(self, uid: str) -> None:
        """Judge the request again: its reservation lost a race."""
        request = self._sent.pop(uid, None)
        if request is None:
            return
        request.tries += 1
        if request.tries >= TRIES:
            self.answers[uid] = (
                f"{request.node}: lost {TRIES} races in a row against other schedulers; try again"
            )
        else:
            self._asked[uid] = request

    def proposals(
        self,
        placing: ColumnarPlacing,
        ledger: Ledger,
        versions: Mapping[str, int],
        reserve: Callable[[Pod, Placed], Proposal],
    ) -> list[Proposal]:
        """Return one commit for each request that can be reserved, and withdrawals."""
        proposals = []
        for uid, node in self._abandoned.items():
            entry = ledger.pods.get(uid)
            if entry is not None and entry.stage == "reserved" and entry.node == node:
                proposals.append(withdrawal(uid, node, ledger.position, versions, "unasked"))
        self._abandoned.clear()
        for uid, request in list(self._asked.items()):
            proposal = self._decide(
                request, ledger.pods.get(uid), placing, ledger, versions, reserve
            )
            proposals += [proposal] if proposal is not None else []
        return proposals

    def _decide(
        self,
        request: Request,
        entry: LedgerPod | None,
        placing: ColumnarPlacing,
        ledger: Ledger,
        versions: Mapping[str, int],
        reserve: Callable[[Pod, Placed], Proposal],
    ) -> Proposal | None:
        uid = request.pod.uid
        if entry is not None and entry.stage != "pending":
            return self._already_placed(request, entry, ledger, versions)
        del self._asked[uid]
        pod = entry.pod if entry is not None else request.pod
        placed = placed_on(placing, pod, request.node)
        if isinstance(placed, str):
            self.answers[uid] = placed
            return None
        self._sent[uid] = request
        proposal = reserve(pod, placed)
        if entry is not None:
            return proposal
        stream = streams.pod(uid)
        observed = Draft(stream, PodObserved(pod), versions.get(stream, 0))
        return msgspec.structs.replace(proposal, drafts=(observed, *proposal.drafts))

    def _already_placed(
        self, request: Request, entry: LedgerPod, ledger: Ledger, versions: Mapping[str, int]
    ) -> Proposal | None:
        """The pod has the node of an earlier request, whose answer was lost."""
        uid = request.pod.uid
        if entry.stage == "reserved" and entry.node != request.node:
            return withdrawal(uid, entry.node, ledger.position, versions, "unasked")
        del self._asked[uid]
        if entry.node != request.node:
            self.answers[uid] = f"the pod is on {entry.node}, or reserved there"
        elif entry.stage in ("bound", "running"):
            self.answers[uid] = ""
        return None
