"""Tells people: the pod's condition and events, from verdicts and bindings in the log.

A courtesy, not a fact: bounded, newest verdict of a pod first to go out, dropped and counted when the API does not keep up.
Event names are made from positions, so that a repeat after a restart is a 409 and not a second event.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from services.binder import announcements
from services.binder.core import BinderState, Identity
from shared.events.binding_facts import PodBound
from shared.events.scheduling_facts import PodVerdictChanged
from shared.kube.port import Answer, Kube, Lost
from shared.runtime.projector import Folded
from shared.telemetry import names
from shared.telemetry.instruments import count

PENDING_PODS = 5_000
WORKERS = 2


class Waiting(msgspec.Struct, frozen=True):
    """One announcement to make; `message` None announces the binding to `node`."""

    pod: Identity
    uid: str
    position: int
    time_us: int
    message: str | None = None
    node: str = ""


class Announcer:
    """Collects from the fold, writes in the background."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._waiting: dict[str, Waiting] = {}
        self._woken = asyncio.Event()
        self.enabled = False

    def folded(self, state: BinderState, folded: Folded) -> None:
        """Note what is to be said; only the newest of a pod is kept."""
        if not self.enabled:
            return
        for envelope, fact in folded:
            if isinstance(fact, PodVerdictChanged | PodBound) and fact.uid in state.pods:
                message = fact.message if isinstance(fact, PodVerdictChanged) else None
                node = fact.node if isinstance(fact, PodBound) else ""
                made = Waiting(state.pods[fact.uid], fact.uid, envelope.position, envelope.time_us, message, node)
                self._waiting.pop(fact.uid, None)
                self._waiting[fact.uid] = made
        while len(self._waiting) > PENDING_PODS:
            self._waiting.pop(next(iter(self._waiting)))
            count(names.ANNOUNCED, result="dropped")
        if self._waiting:
            self._woken.set()

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
            uid = next(iter(self._waiting))
            await self._announce(self._waiting.pop(uid))

    async def _announce(self, waiting: Waiting) -> None:
        pod = waiting.pod
        if waiting.message is None:
            event = announcements.scheduled(pod, waiting.uid, waiting.node, waiting.time_us, waiting.position)
        else:
            event = announcements.failed(pod, waiting.uid, waiting.message, waiting.time_us, waiting.position)
            patch = announcements.condition(waiting.message, waiting.time_us)
            _counted(await self._kube.patch_pod_status(pod.namespace, pod.name, patch))
        _counted(await self._kube.create_event(pod.namespace, event))


def _counted(answer: Answer | Lost) -> Any:
    said = isinstance(answer, Answer) and (answer.ok or answer.status in (404, 409))
    count(names.ANNOUNCED, result="written" if said else "failed")
