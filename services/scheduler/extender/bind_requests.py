"""Bindings that a kube-scheduler asked for and that are not reserved yet: from a request to
proposals, or to an answer.

A request is judged as the log stands, and reserved as any decision is; who loses a race is judged
again. One that nobody asks for any more is withdrawn if the binder has not taken it up. Must not
know HTTP, the log or a clock."""

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

TRIES = 5
"""Races that one request may lose."""


class Request(msgspec.Struct):
    """A pod for a node, as filter saw the pod."""

    pod: Pod
    node: str
    tries: int = 0


class BindRequests:
    """Requests by uid: `_asked` wait for a decision, `_sent` for the outcome of an append.
    `answers` are for those who asked: "" is success."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self._asked: dict[str, Request] = {}
        self._sent: dict[str, Request] = {}
        self._unasked: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._asked or self._unasked)

    def ask(self, pod: Pod, node: str) -> None:
        """Reserve the pod there; a later request for the same pod stands in for the earlier one."""
        self._unasked.pop(pod.uid, None)
        self._asked[pod.uid] = Request(pod, node)

    def forget(self, uid: str, node: str) -> None:
        """Nobody waits for the binding any more."""
        self._asked.pop(uid, None)
        self._sent.pop(uid, None)
        self.answers.pop(uid, None)
        self._unasked[uid] = node

    def conflicted(self, uid: str) -> None:
        """The reservation lost a race."""
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
        """One commit for each request that can be reserved, and what to take back."""
        found = []
        for uid, node in self._unasked.items():
            entry = ledger.pods.get(uid)
            if entry is not None and entry.stage == "reserved" and entry.node == node:
                found.append(withdrawal(uid, node, ledger.position, versions, "unasked"))
        self._unasked.clear()
        for uid, request in list(self._asked.items()):
            made = self._decide(request, ledger.pods.get(uid), placing, ledger, versions, reserve)
            found += [made] if made is not None else []
        return found

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
            return self._standing(request, entry, ledger, versions)
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
        seen = Draft(stream, PodObserved(pod), versions.get(stream, 0))
        return msgspec.structs.replace(proposal, drafts=(seen, *proposal.drafts))

    def _standing(
        self, request: Request, entry: LedgerPod, ledger: Ledger, versions: Mapping[str, int]
    ) -> Proposal | None:
        """The pod has a node: an earlier request's, whose answer was lost."""
        uid = request.pod.uid
        if entry.stage == "reserved" and entry.node != request.node:
            return withdrawal(uid, entry.node, ledger.position, versions, "unasked")
        del self._asked[uid]
        if entry.node != request.node:
            self.answers[uid] = f"stands on {entry.node}, or is on its way there"
        elif entry.stage in ("bound", "running"):
            self.answers[uid] = ""
        return None
