"""Tells people and other schedulers what `untold` keeps: the pod's condition, events and nominated
node.

A courtesy, not a fact: dropped and counted when the API does not keep up; told again where the API
did not judge it, as autoscalers look for the condition. Event names are made from positions, so
that a repeat is a 409 and not a second event.
"""

from __future__ import annotations

import asyncio

from services.binder import announcements
from services.binder.core import NAMESPACE_ENDS, BinderState
from services.binder.untold import LASTING, Untold, Waiting
from shared.kube.port import Answer, Kube, Lost, Object
from shared.runtime.projector import Folded, Projector
from shared.telemetry import names
from shared.telemetry.instruments import count

WORKERS = 2

AGAIN_AFTER_S = 1.0

ADMITTED_PER_S = 20
"""Of events that tell a zone at most so many a second are written; the rest is dropped and counted: the log has them all."""


class Announcer:
    """Collects from the fold, writes in the background."""

    def __init__(self, kube: Kube, scheduler_name: str) -> None:
        self._kube = kube
        self.untold = Untold(scheduler_name)
        self._second = (0, 0)
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
        """Note what is to be said."""
        for envelope, event in folded:
            for _ in range(self.untold.hear(state, envelope, event, self._enabled)):
                count(names.ANNOUNCED, result="dropped")
        if self.untold:
            self._woken.set()

    async def lead(self, projector: Projector[BinderState]) -> None:
        """Tell until the lease is lost. What the fold passes before it has caught up was told at
        its time: only what lasts is told again, where it still holds then."""
        await projector.wait_live()
        self.enabled = True
        try:
            await asyncio.Event().wait()
        finally:
            self.enabled = False

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if not self.untold or not self._enabled:
                self._woken.clear()
                await self._woken.wait()
                continue
            waiting = self.untold.take()
            unjudged = await self._announce(waiting)
            if unjudged is None:
                self.untold.told(waiting)
                continue
            if not self.untold.put_back(waiting, isinstance(unjudged, Answer)):
                count(names.ANNOUNCED, result="dropped")
            await asyncio.sleep(
                max(AGAIN_AFTER_S, unjudged.retry_after_s if isinstance(unjudged, Answer) else 0.0)
            )

    async def _announce(self, waiting: Waiting) -> Answer | Lost | None:
        """Say it; the answer that judged nothing, if there was one: it is said again. Of a pod that
        is gone nobody reads.
        """
        pod, unjudged = waiting.pod, None
        if waiting.kind in LASTING:
            patched = await self._kube.patch_pod_status(
                pod.namespace, pod.name, self._patch(waiting)
            )
            unjudged = _unjudged(patched)
            if isinstance(patched, Answer) and patched.status == 404:
                return None
        if waiting.kind == "nominated":
            return unjudged
        event = self._event(waiting)
        if event is None:
            count(names.ANNOUNCED, result="dropped")
            return None
        # Its own, and not the pod's: an event of a node stands in another, and under the pod's it
        # is a 400.
        told = _unjudged(await self._kube.create_event(event["metadata"]["namespace"], event))
        return unjudged or told

    def _patch(self, waiting: Waiting) -> Object:
        if waiting.kind == "nominated":
            return announcements.nominated(waiting.uid, waiting.node)
        reason = "SchedulerError" if waiting.kind == "refused" else "Unschedulable"
        since_us = self.untold.since_us(waiting)
        return announcements.condition(
            waiting.uid, waiting.message, since_us, reason, waiting.pod.generation
        )

    def _event(self, waiting: Waiting) -> Object | None:
        """None where enough of its kind were written."""
        pod, at = waiting.pod, (waiting.time_us, waiting.position)
        if waiting.kind == "bound":
            return announcements.scheduled(pod, waiting.uid, waiting.node, *at)
        if waiting.kind == "admitted":
            return (
                None
                if self._too_many()
                else announcements.admitted(pod, waiting.uid, waiting.message, *at)
            )
        if waiting.kind == "aside":
            return announcements.set_aside(waiting.node, _aside(waiting), *at)
        if waiting.kind == "preempted":
            return announcements.preempted(pod, waiting.uid, waiting.message, *at)
        return announcements.failed(pod, waiting.uid, waiting.message, *at)

    def _too_many(self) -> bool:
        """True when enough zones were told in this second."""
        now_s = int(asyncio.get_running_loop().time())
        second, told = self._second
        self._second = (now_s, told + 1 if second == now_s else 1)
        return self._second[1] > ADMITTED_PER_S


def _aside(waiting: Waiting) -> str:
    like = (
        f"pods like {waiting.pod.namespace}/{waiting.pod.name}"
        if waiting.pod.name
        else "pods of one kind"
    )
    return f"Topolog sends no {like} here for now: {waiting.message}; see topolog node readmit"


def _unjudged(answer: Answer | Lost) -> Answer | Lost | None:
    """The answer, where the same is to be said again. An API server that has just started misses
    rights that are there, for a second; in a namespace that ends nothing is written any more."""
    said = isinstance(answer, Answer) and (answer.ok or answer.status in (404, 409))
    count(names.ANNOUNCED, result="written" if said else "failed")
    if isinstance(answer, Lost) or not answer.definite:
        return answer
    return answer if answer.status in (401, 403) and NAMESPACE_ENDS not in answer.message else None
