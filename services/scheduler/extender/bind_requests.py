"""Bindings that a kube-scheduler requests: each request ends in a reservation or in a refusal.

A request is decided by the current state of the log, and reserved like any decision. If it loses a
race, it is decided again. If its caller gives up, the reservation is withdrawn unless the binder
has begun. This module does not know HTTP, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.extender.verbs import placed_on
from services.scheduler.reserve.proposals import Proposal, withdrawal
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.ledger.state import LedgerPod

# Assumes a placement and returns its reservation.
Reserve = Callable[[Pod, Placed], Proposal]
# Races that one request may lose.
TRIES = 5


class Request(msgspec.Struct):
    """A pod, as filter saw it, and its node."""

    pod: Pod
    node: str
    tries: int = 0


class BindRequests:
    """Requests by pod uid: `_asked` wait for a decision, `_sent` for the outcome of an append,
    `_abandoned` for a withdrawal. `answers` are for the callers: "" is success.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self.answers: dict[str, str] = {}
        self._asked: dict[str, Request] = {}
        self._sent: dict[str, Request] = {}
        self._abandoned: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._asked or self._abandoned)

    def ask(self, pod: Pod, node: str) -> None:
        """Note a request to reserve the pod on the node. It replaces earlier ones for the pod."""
        self._abandoned.pop(pod.uid, None)
        self._asked[pod.uid] = Request(pod, node)

    def forget(self, uid: str, node: str) -> None:
        """Drop the request, because its caller no longer waits."""
        self._asked.pop(uid, None)
        self._sent.pop(uid, None)
        self.answers.pop(uid, None)
        self._abandoned[uid] = node

    def conflicted(self, uid: str) -> None:
        """Decide the request again, because its reservation lost a race."""
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

    def proposals(self, placing: ColumnarPlacing, reserve: Reserve) -> list[Proposal]:
        """Return one commit for each request that can be reserved, and withdrawals."""
        proposals = []
        for uid, node in self._abandoned.items():
            entry = self._state.ledger.pods.get(uid)
            if entry is not None and entry.stage == "reserved" and entry.node == node:
                proposals.append(self._withdrawal(uid, node))
        self._abandoned.clear()
        for request in list(self._asked.values()):
            proposal = self._decide(request, placing, reserve)
            if proposal is not None:
                proposals.append(proposal)
            if proposal is not None and proposal.counts_once_folded:
                break
        return proposals

    def _decide(
        self, request: Request, placing: ColumnarPlacing, reserve: Reserve
    ) -> Proposal | None:
        uid = request.pod.uid
        entry = self._state.ledger.pods.get(uid)
        if entry is not None and entry.stage != "pending":
            return self._already_placed(request, entry)
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
        observed = Draft(stream, PodObserved(pod), self._state.versions.get(stream, 0))
        return msgspec.structs.replace(proposal, drafts=(observed, *proposal.drafts))

    def _already_placed(self, request: Request, entry: LedgerPod) -> Proposal | None:
        """Answer a request for a pod that an earlier request placed; its answer was lost."""
        uid = request.pod.uid
        if entry.stage == "reserved" and entry.node != request.node:
            return self._withdrawal(uid, entry.node)
        del self._asked[uid]
        if entry.node != request.node:
            self.answers[uid] = f"the pod is on {entry.node}, or reserved there"
        elif entry.stage in ("bound", "running"):
            self.answers[uid] = ""
        return None

    def _withdrawal(self, uid: str, node: str) -> Proposal:
        position = self._state.ledger.position
        return withdrawal(uid, node, position, self._state.versions, "unasked")
