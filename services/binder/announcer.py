"""Write pending announcements to the API server: conditions, Kubernetes Events, nominated nodes.

An announcement is a courtesy, not an event of the log. It is dropped and counted if the API server
does not keep up, and repeated if the API server did not judge it, because autoscalers look for the
condition. The name of a Kubernetes Event is made from a position, so a repeat is a 409 and not a
second one.
"""

from __future__ import annotations

import asyncio

from services.binder import announcements
from services.binder.admissions import Annotate
from services.binder.core import NAMESPACE_ENDS, BinderState
from services.binder.pending_announcements import LASTING, Announcement, PendingAnnouncements
from shared.kube.port import Answer, Kube, Lost, Object
from shared.runtime.projector import Folded, Projector
from shared.telemetry import names
from shared.telemetry.instruments import count

WORKERS = 2
AGAIN_AFTER_S = 1.0
# Events of pods without a problem above these rates are dropped and counted: the log has them all,
# and each costs the API server and etcd as much as a binding.
PER_S = {"bound": 50, "admitted": 20}

_CONDITIONS = {
    "without_effect": announcements.preferences_condition,
    "zone_found": announcements.zone_condition,
}
# Patches of bound pods, without a Kubernetes Event.
PATCHES = (*_CONDITIONS, "placed")


class Announcer:
    """Collects announcements from the fold and writes them in the background."""

    def __init__(self, kube: Kube, scheduler_name: str, annotate: Annotate = "auto") -> None:
        self._kube = kube
        self.pending = PendingAnnouncements(scheduler_name, annotate)
        self._events_this_s: dict[str, tuple[int, int]] = {}
        self._woken = asyncio.Event()
        self._enabled = False

    @property
    def enabled(self) -> bool:
        """True if this process announces. A standby keeps only lasting announcements."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value
        self._woken.set()

    def folded(self, state: BinderState, folded: Folded) -> None:
        for envelope, event in folded:
            for _ in range(self.pending.fold(state, envelope, event, self._enabled)):
                count(names.ANNOUNCED, result="dropped")
        if self.pending:
            self._woken.set()

    async def lead(self, projector: Projector[BinderState]) -> None:
        """Announce until the lease is lost. Events from before the fold has caught up were
        announced at their time; only lasting announcements are repeated."""
        await projector.wait_live()
        self.enabled = True
        try:
            await asyncio.Event().wait()
        finally:
            self.enabled = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if not self.pending or not self._enabled:
                self._woken.clear()
                await self._woken.wait()
                continue
            announcement = self.pending.pop()
            unjudged = await self._announce(announcement)
            if unjudged is None:
                self.pending.finish(announcement)
                continue
            if not self.pending.put_back(announcement, isinstance(unjudged, Answer)):
                count(names.ANNOUNCED, result="dropped")
            retry_after_s = unjudged.retry_after_s if isinstance(unjudged, Answer) else 0.0
            await asyncio.sleep(max(AGAIN_AFTER_S, retry_after_s))

    async def _announce(self, announcement: Announcement) -> Answer | Lost | None:
        """Write one announcement. Return the answer if it did not judge it, so that it is
        repeated."""
        pod, unjudged = announcement.pod, None
        if announcement.kind in (*LASTING, *PATCHES):
            patch = self._patch(announcement)
            patched = await self._kube.patch_pod_status(pod.namespace, pod.name, patch)
            unjudged = _unjudged(patched)
            if isinstance(patched, Answer) and patched.status == 404:
                return None
        if announcement.kind in ("nominated", *PATCHES):
            return unjudged
        event = self._event(announcement)
        if event is None:
            count(names.ANNOUNCED, result="dropped")
            return None
        # The event's namespace, not the pod's: an event of a node is in namespace default.
        created = await self._kube.create_event(event["metadata"]["namespace"], event)
        return unjudged or _unjudged(created)

    def _patch(self, announcement: Announcement) -> Object:
        if announcement.kind == "nominated":
            return announcements.nominated(announcement.uid, announcement.node)
        if announcement.kind == "placed":
            # The status subresource of a pod takes annotations, too, so no further right is needed.
            return {"metadata": {"uid": announcement.uid, "annotations": announcement.annotations}}
        if announcement.kind in _CONDITIONS:
            return _CONDITIONS[announcement.kind](
                announcement.uid,
                announcement.message,
                announcement.time_us,
                announcement.pod.generation,
            )
        generation, since_us = announcement.pod.generation, self.pending.since_us(announcement)
        patch = announcements.condition(
            announcement.uid,
            announcement.message,
            since_us,
            "SchedulerError" if announcement.kind == "refused" else "Unschedulable",
            generation,
        )
        if announcement.zone:
            zone = announcements.zone_condition(
                announcement.uid, announcement.zone, since_us, generation
            )
            patch["status"]["conditions"] += zone["status"]["conditions"]
        return patch

    def _event(self, announcement: Announcement) -> Object | None:
        """Return the Kubernetes Event, or None if enough of its kind were written."""
        pod, uid, message = announcement.pod, announcement.uid, announcement.message
        moment = (announcement.time_us, announcement.position)
        limit = PER_S.get(announcement.kind)
        if limit is not None and self._is_over_rate(announcement.kind, limit):
            return None
        if announcement.kind == "bound":
            return announcements.scheduled(pod, uid, announcement.node, *moment)
        if announcement.kind == "admitted":
            return announcements.admitted(pod, uid, message, *moment)
        if announcement.kind == "missed":
            count(names.ZONE_REQUIREMENTS_MISSED)
            return announcements.missed(pod, uid, message, *moment)
        if announcement.kind == "drifted":
            count(names.PLACEMENT_DRIFTS)
            return announcements.drifted(pod, uid, message, *moment)
        if announcement.kind == "excluded":
            return announcements.excluded(announcement.node, pod, message, *moment)
        if announcement.kind == "lost_devices":
            return announcements.lost_devices(pod, uid, announcement.node, message, *moment)
        if announcement.kind == "preempted":
            return announcements.preempted(pod, uid, message, *moment)
        return announcements.failed(pod, uid, message, *moment)

    def _is_over_rate(self, kind: str, limit: int) -> bool:
        now_s = int(asyncio.get_running_loop().time())
        second, events = self._events_this_s.get(kind, (now_s, 0))
        events = events + 1 if second == now_s else 1
        self._events_this_s[kind] = (now_s, events)
        return events > limit


def _unjudged(answer: Answer | Lost) -> Answer | Lost | None:
    """Return the answer if the announcement is to be repeated. An API server that has just started
    misses existing rights for a second. In a namespace that ends nothing can be written."""
    is_final = isinstance(answer, Answer) and (answer.ok or answer.status in (404, 409))
    count(names.ANNOUNCED, result="written" if is_final else "failed")
    if isinstance(answer, Lost) or not answer.definite:
        return answer
    return answer if answer.status in (401, 403) and NAMESPACE_ENDS not in answer.message else None
