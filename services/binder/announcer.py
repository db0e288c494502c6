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
from services.binder.core import BinderState, Identity
from shared.events.binding_facts import BindRefused, EvictIntended, PodBound, PodEvicted
from shared.events.catalog import Fact
from shared.events.cluster_facts import PodEnded
from shared.events.scheduling_facts import NominationWithdrawn, PodNominated, PodReserved, PodVerdictChanged
from shared.kube.port import Answer, Kube, Lost
from shared.runtime.projector import Folded
from shared.telemetry import names
from shared.telemetry.instruments import count

PENDING_PODS = 5_000
WORKERS = 2

Kind = Literal["verdict", "refused", "bound", "nominated", "preempted"]


class Waiting(msgspec.Struct, frozen=True):
    """One announcement to make. `verdict` and `refused` (of a binding) say `message`, `bound` and `nominated` name `node` ("":
    nominated no more), `preempted` says in `message` for whom (a uid)."""

    kind: Kind
    pod: Identity
    uid: str
    position: int
    time_us: int
    message: str = ""
    node: str = ""

    @property
    def key(self) -> tuple[str, bool]:
        """Of one pod the newest is kept: of what is said in events, and of its nomination."""
        return self.uid, self.kind == "nominated"


class Announcer:
    """Collects from the fold, writes in the background."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._waiting: dict[tuple[str, bool], Waiting] = {}
        self._nominated: dict[str, str] = {}
        self._victims: dict[str, Identity] = {}
        self._woken = asyncio.Event()
        self.enabled = False

    def folded(self, state: BinderState, folded: Folded) -> None:
        """Note what is to be said; only the newest of a pod is kept."""
        for envelope, fact in folded:
            self._remember(state, fact)
            found = self._heard(fact)
            if found is None or not self.enabled:
                continue
            kind, uid, message, node = found
            pod = state.pods.get(uid) or (self._victims.pop(uid, None) if kind == "preempted" else None)
            if pod is None:
                continue
            made = Waiting(kind, pod, uid, envelope.position, envelope.time_us, message, node)
            self._waiting.pop(made.key, None)
            self._waiting[made.key] = made
        while len(self._waiting) > PENDING_PODS:
            self._waiting.pop(next(iter(self._waiting)))
            count(names.ANNOUNCED, result="dropped")
        if self._waiting:
            self._woken.set()

    def _remember(self, state: BinderState, fact: Fact) -> None:
        """Victims by their names, as one may have ended before its eviction is settled; the oldest gives way."""
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
        if isinstance(fact, PodNominated):
            self._nominated[fact.uid] = fact.node
            return "nominated", fact.uid, "", fact.node
        return self._nomination_ended(fact)

    def _nomination_ended(self, fact: Fact) -> tuple[Kind, str, str, str] | None:
        """Withdrawn, or placed elsewhere. A nominee that takes its node keeps the field, as with kube-scheduler."""
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
        elif waiting.kind == "preempted":
            event = announcements.preempted(pod, waiting.uid, waiting.message, waiting.time_us, waiting.position)
        else:
            event = announcements.failed(pod, waiting.uid, waiting.message, waiting.time_us, waiting.position)
            reason = "SchedulerError" if waiting.kind == "refused" else "Unschedulable"
            patch = announcements.condition(waiting.message, waiting.time_us, reason)
            _counted(await self._kube.patch_pod_status(pod.namespace, pod.name, patch))
        _counted(await self._kube.create_event(pod.namespace, event))


def _counted(answer: Answer | Lost) -> Any:
    said = isinstance(answer, Answer) and (answer.ok or answer.status in (404, 409))
    count(names.ANNOUNCED, result="written" if said else "failed")
