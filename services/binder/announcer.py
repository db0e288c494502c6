"""Tells people and other schedulers: the pod's condition, events and nominated node, from verdicts, bindings, nominations and
evictions in the log.

A courtesy, not a fact: bounded, newest verdict of a pod first to go out, dropped and counted when the API does not keep up.
Event names are made from positions, so that a repeat after a restart is a 409 and not a second event.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from services.binder import announcements
from services.binder.admissions import Admissions
from services.binder.core import BinderState, Identity
from shared.events.binding_facts import BindRefused, EvictIntended, PodBound, PodEvicted
from shared.events.catalog import Fact
from shared.events.cluster_facts import PodEnded
from shared.events.scheduling_facts import NodeSetAside, NominationWithdrawn, PodNominated, PodReserved, PodVerdictChanged
from shared.kube.port import Answer, Kube, Lost
from shared.runtime.projector import Folded
from shared.telemetry import names
from shared.telemetry.instruments import count

PENDING_PODS = 5_000
_NOBODY = Identity("", "")
WORKERS = 2

ADMITTED_PER_S = 20
"""Of events that tell a zone at most so many a second are written; the rest is dropped and counted: the log has them all."""

Kind = Literal["verdict", "refused", "bound", "nominated", "preempted", "admitted", "aside"]
Say = tuple[Kind, str, str, str]


class Waiting(msgspec.Struct, frozen=True):
    """One announcement to make. `verdict` and `refused` (of a binding) say `message`, `bound` and `nominated` name `node` ("":
    nominated no more), `preempted` says in `message` for whom (a uid), `admitted` on which zone, `aside` why such pods are not
    sent to `node`."""

    kind: Kind
    pod: Identity
    uid: str
    position: int
    time_us: int
    message: str = ""
    node: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Of one pod the newest is kept: of what is said in events, of its nomination, of its zone."""
        if self.kind == "aside":
            return self.node, self.kind
        return self.uid, self.kind if self.kind in ("nominated", "admitted") else ""


class Announcer:
    """Collects from the fold, writes in the background. That a pod of another scheduler (one that asks by the extender) is bound,
    is told by that scheduler."""

    def __init__(self, kube: Kube, scheduler_name: str) -> None:
        self._kube = kube
        self._scheduler_name = scheduler_name
        self._waiting: dict[tuple[str, str], Waiting] = {}
        self._admissions = Admissions()
        self._second = (0, 0)
        self._nominated: dict[str, str] = {}
        self._victims: dict[str, Identity] = {}
        self._since_us: dict[str, int] = {}
        self._woken = asyncio.Event()
        self.enabled = False

    def folded(self, state: BinderState, folded: Folded) -> None:
        """Note what is to be said; only the newest of a pod is kept."""
        for envelope, fact in folded:
            self._remember(state, fact)
            heard: list[Say] = [("admitted", one.uid, one.message, one.node) for one in self._admissions.heard(fact)]
            other = self._heard(fact)
            for kind, uid, message, node in [*heard, other] if other is not None else heard:
                if self.enabled:
                    self._note(state, Waiting(kind, _NOBODY, uid, envelope.position, envelope.time_us, message, node))
        while len(self._waiting) > PENDING_PODS:
            self._waiting.pop(next(iter(self._waiting)))
            count(names.ANNOUNCED, result="dropped")
        if self._waiting:
            self._woken.set()

    def _note(self, state: BinderState, made: Waiting) -> None:
        pod = state.pods.get(made.uid) or (self._victims.pop(made.uid, None) if made.kind == "preempted" else None)
        pod = _NOBODY if pod is None and made.kind == "aside" else pod
        if pod is None or (made.kind == "bound" and pod.scheduler != self._scheduler_name):
            return
        self._waiting.pop(made.key, None)
        self._waiting[made.key] = msgspec.structs.replace(made, pod=pod)

    def _remember(self, state: BinderState, fact: Fact) -> None:
        """Victims by their names, as one may have ended before its eviction has an outcome; the oldest gives way."""
        if isinstance(fact, PodBound | PodEnded):
            self._since_us.pop(fact.uid, None)
        if not isinstance(fact, EvictIntended):
            return
        node = self._nominated.get(fact.preemptor, "")
        self._victims[fact.uid] = state.pods.get(fact.uid) or Identity(fact.namespace, fact.name, node=node)
        if len(self._victims) > PENDING_PODS:
            del self._victims[next(iter(self._victims))]

    def _heard(self, fact: Fact) -> tuple[Kind, str, str, str] | None:
        """(kind, uid, message, node) of what the fact has to be told for."""
        if isinstance(fact, PodVerdictChanged):
            return "verdict", fact.uid, fact.message, ""
        if isinstance(fact, BindRefused):
            text = announcements.refused(fact.node, fact.cause, fact.message)
            return ("refused", fact.uid, text, fact.node) if text else None
        if isinstance(fact, PodBound):
            return "bound", fact.uid, "", fact.node
        if isinstance(fact, PodEvicted):
            return "preempted", fact.uid, fact.preemptor, ""
        if isinstance(fact, NodeSetAside):
            return "aside", fact.uid, f"{fact.cause}: {fact.detail}", fact.node
        if isinstance(fact, PodNominated):
            self._nominated[fact.uid] = fact.node
            return "nominated", fact.uid, "", fact.node
        return self._nomination_ended(fact)

    def _nomination_ended(self, fact: Fact) -> tuple[Kind, str, str, str] | None:
        """Withdrawn, or placed elsewhere. Of a nominee that takes its node the API server clears the field as it
        binds (before Kubernetes 1.35 it stays, as with kube-scheduler)."""
        if not isinstance(fact, NominationWithdrawn | PodReserved | PodEnded):
            return None
        node = self._nominated.pop(fact.uid, "")
        taken = isinstance(fact, PodReserved) and fact.node == node
        if isinstance(fact, PodEnded) or taken or not (node or isinstance(fact, NominationWithdrawn)):
            return None
        return "nominated", fact.uid, "", ""

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._woken.clear()
                await self._woken.wait()
                continue
            await self._announce(self._waiting.pop(next(iter(self._waiting))))

    async def _announce(self, waiting: Waiting) -> None:
        pod = waiting.pod
        if waiting.kind == "nominated":
            patch = announcements.nominated(waiting.uid, waiting.node)
            _counted(await self._kube.patch_pod_status(pod.namespace, pod.name, patch))
            return
        if waiting.kind == "bound":
            event = announcements.scheduled(pod, waiting.uid, waiting.node, waiting.time_us, waiting.position)
        elif waiting.kind == "admitted":
            if self._too_many():
                count(names.ANNOUNCED, result="dropped")
                return
            event = announcements.admitted(pod, waiting.uid, waiting.message, waiting.time_us, waiting.position)
        elif waiting.kind == "aside":
            event = announcements.set_aside(waiting.node, _aside(waiting), waiting.time_us, waiting.position)
        elif waiting.kind == "preempted":
            event = announcements.preempted(pod, waiting.uid, waiting.message, waiting.time_us, waiting.position)
        else:
            event = announcements.failed(pod, waiting.uid, waiting.message, waiting.time_us, waiting.position)
            reason = "SchedulerError" if waiting.kind == "refused" else "Unschedulable"
            patch = announcements.condition(waiting.uid, waiting.message, self._since(waiting), reason)
            _counted(await self._kube.patch_pod_status(pod.namespace, pod.name, patch))
        # Its own, and not the pod's: an event of a node stands in another, and under the pod's it is a 400.
        _counted(await self._kube.create_event(event["metadata"]["namespace"], event))

    def _since(self, waiting: Waiting) -> int:
        """When the condition became false: another reason for it is no transition. The oldest gives way."""
        since_us = self._since_us.setdefault(waiting.uid, waiting.time_us)
        if len(self._since_us) > PENDING_PODS:
            del self._since_us[next(iter(self._since_us))]
        return since_us

    def _too_many(self) -> bool:
        """True when enough zones were told in this second."""
        now_s = int(asyncio.get_running_loop().time())
        second, told = self._second
        self._second = (now_s, told + 1 if second == now_s else 1)
        return self._second[1] > ADMITTED_PER_S


def _aside(waiting: Waiting) -> str:
    like = f"pods like {waiting.pod.namespace}/{waiting.pod.name}" if waiting.pod.name else "pods of one kind"
    return f"Topolog sends no {like} here for now: {waiting.message}; see topolog node readmit"


def _counted(answer: Answer | Lost) -> Any:
    said = isinstance(answer, Answer) and (answer.ok or answer.status in (404, 409))
    count(names.ANNOUNCED, result="written" if said else "failed")
