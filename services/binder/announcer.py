"""Tells people and other schedulers: the pod's condition, events and nominated node, from verdicts, bindings, nominations and
evictions in the log.

A courtesy, not a fact: bounded, newest verdict of a pod first to go out, dropped and counted when the API does not keep up; told
again where the API did not judge it, as autoscalers look for the condition. A standby keeps what pods wait for, which the leader
may not have told when it died. Event names are made from positions, so that a repeat is a 409 and not a second event.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from services.binder import announcements
from services.binder.admissions import Admissions
from services.binder.core import NAMESPACE_ENDS, BinderState, Identity
from shared.events.binding_facts import BindRefused, EvictIntended, PodBound, PodEvicted
from shared.events.catalog import Fact
from shared.events.cluster_facts import PodEnded
from shared.events.scheduling_facts import NodeSetAside, NominationWithdrawn, PodNominated, PodReserved, PodVerdictChanged
from shared.kube.port import Answer, Kube, Lost, Object
from shared.runtime.projector import Folded
from shared.telemetry import names
from shared.telemetry.instruments import count

PENDING_PODS = 5_000
_NOBODY = Identity("", "")
WORKERS = 2

AGAIN_AFTER_S = 1.0
TRIES = 60
"""So often the API may put an announcement off; while nobody answers none is counted."""

ADMITTED_PER_S = 20
"""Of events that tell a zone at most so many a second are written; the rest is dropped and counted: the log has them all."""

Kind = Literal["verdict", "refused", "bound", "nominated", "preempted", "admitted", "aside"]
Say = tuple[Kind, str, str, str]
LASTING: tuple[Kind, ...] = ("verdict", "refused", "nominated")
"""What holds until the pod is bound or ends."""


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
    tries: int = 0

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
        self._under_way: dict[tuple[str, str], Waiting] = {}
        self._admissions = Admissions()
        self._second = (0, 0)
        self._nominated: dict[str, str] = {}
        self._victims: dict[str, Identity] = {}
        self._since_us: dict[str, int] = {}
        self._woken = asyncio.Event()
        self._enabled = False

    @property
    def enabled(self) -> bool:
        """Whether this process tells; one that does not keeps what lasts."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value
        self._woken.set()

    def folded(self, state: BinderState, folded: Folded) -> None:
        """Note what is to be said; only the newest of a pod is kept."""
        for envelope, fact in folded:
            self._remember(state, fact)
            heard: list[Say] = [("admitted", one.uid, one.message, one.node) for one in self._admissions.heard(fact)]
            other = self._heard(fact)
            for kind, uid, message, node in [*heard, other] if other is not None else heard:
                if self._enabled or kind in LASTING:
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
        self._under_way.pop(made.key, None)
        self._waiting[made.key] = msgspec.structs.replace(made, pod=pod)

    def _remember(self, state: BinderState, fact: Fact) -> None:
        """Victims by their names, as one may have ended before its eviction has an outcome; the oldest gives way."""
        if isinstance(fact, PodBound | PodEnded):
            self._since_us.pop(fact.uid, None)
            self._forget(fact.uid)
        if not isinstance(fact, EvictIntended):
            return
        node = self._nominated.get(fact.preemptor, "")
        self._victims[fact.uid] = state.pods.get(fact.uid) or Identity(fact.namespace, fact.name, node=node)
        if len(self._victims) > PENDING_PODS:
            del self._victims[next(iter(self._victims))]

    def _forget(self, uid: str) -> None:
        """Bound or ended: what it waited for is not told any more."""
        for held in (self._waiting, self._under_way):
            for key in ((uid, ""), (uid, "nominated")):
                if key in held and held[key].kind in LASTING:
                    del held[key]

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
            if not self._waiting or not self._enabled:
                self._woken.clear()
                await self._woken.wait()
                continue
            waiting = self._waiting.pop(next(iter(self._waiting)))
            self._under_way[waiting.key] = waiting
            unjudged = await self._announce(waiting)
            newest = self._under_way.get(waiting.key) is waiting
            if newest:
                del self._under_way[waiting.key]
            if unjudged is not None:
                if newest:
                    self._put_back(waiting, unjudged)
                await asyncio.sleep(max(AGAIN_AFTER_S, 0.0 if isinstance(unjudged, Lost) else unjudged.retry_after_s))

    def _put_back(self, waiting: Waiting, unjudged: Answer | Lost) -> None:
        tries = waiting.tries + (0 if isinstance(unjudged, Lost) else 1)
        if tries < TRIES:
            self._waiting[waiting.key] = msgspec.structs.replace(waiting, tries=tries)
        else:
            count(names.ANNOUNCED, result="dropped")

    async def _announce(self, waiting: Waiting) -> Answer | Lost | None:
        """Say it; the answer that judged nothing, if there was one: it is to be said again."""
        pod, unjudged = waiting.pod, None
        if waiting.kind in LASTING:
            unjudged = _unjudged(await self._kube.patch_pod_status(pod.namespace, pod.name, self._patch(waiting)))
        if waiting.kind == "nominated":
            return unjudged
        event = self._event(waiting)
        if event is None:
            count(names.ANNOUNCED, result="dropped")
            return None
        # Its own, and not the pod's: an event of a node stands in another, and under the pod's it is a 400.
        told = _unjudged(await self._kube.create_event(event["metadata"]["namespace"], event))
        return unjudged or told

    def _patch(self, waiting: Waiting) -> Object:
        if waiting.kind == "nominated":
            return announcements.nominated(waiting.uid, waiting.node)
        reason = "SchedulerError" if waiting.kind == "refused" else "Unschedulable"
        return announcements.condition(waiting.uid, waiting.message, self._since(waiting), reason)

    def _event(self, waiting: Waiting) -> Object | None:
        """None where enough of its kind were written."""
        pod, at = waiting.pod, (waiting.time_us, waiting.position)
        if waiting.kind == "bound":
            return announcements.scheduled(pod, waiting.uid, waiting.node, *at)
        if waiting.kind == "admitted":
            return None if self._too_many() else announcements.admitted(pod, waiting.uid, waiting.message, *at)
        if waiting.kind == "aside":
            return announcements.set_aside(waiting.node, _aside(waiting), *at)
        if waiting.kind == "preempted":
            return announcements.preempted(pod, waiting.uid, waiting.message, *at)
        return announcements.failed(pod, waiting.uid, waiting.message, *at)

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


def _unjudged(answer: Answer | Lost) -> Answer | Lost | None:
    """The answer, where the same is to be said again. An API server that has just started misses rights that are there, for a
    second; in a namespace that ends nothing is written any more."""
    said = isinstance(answer, Answer) and (answer.ok or answer.status in (404, 409))
    count(names.ANNOUNCED, result="written" if said else "failed")
    if isinstance(answer, Lost) or not answer.definite:
        return answer
    return answer if answer.status in (401, 403) and NAMESPACE_ENDS not in answer.message else None
