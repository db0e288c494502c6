"""The queue of announcements (conditions and Kubernetes Events) that are still to be written: the
newest of each pod, in order, and bounded.

A standby also keeps announcements that hold until a pod is bound or ends, because the leader may
die before it writes them. Folds events in the order of the log. Must not know how announcements are
written.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from services.binder import announcements
from services.binder.admissions import Admissions, Admitted, Annotate
from services.binder.core import BinderState, Identity
from shared.domain.refusal import zone_text
from shared.events.binding_events import BindRefused, EvictIntended, PodBound, PodEvicted
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded
from shared.events.envelope import Envelope
from shared.events.scheduling_events import (
    NodeSetAside,
    NominationWithdrawn,
    PodDevicesLost,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)

PENDING_PODS = 5_000
# An announcement is given up after this many answers that defer it. Lost answers do not count.
TRIES = 60

_NO_POD = Identity("", "")

Kind = Literal[
    "unschedulable",
    "refused",
    "bound",
    "nominated",
    "preempted",
    "admitted",
    "excluded",
    "without_effect",
    "missed",
    "zone_found",
    "drifted",
    "placed",
    "lost_devices",
]
# These hold until the pod is bound or ends.
LASTING: tuple[Kind, ...] = ("unschedulable", "refused", "nominated")
# These do not replace another announcement of the pod.
_APART: tuple[Kind, ...] = (
    "nominated",
    "admitted",
    "without_effect",
    "missed",
    "zone_found",
    "drifted",
    "placed",
    "lost_devices",
)


class Announcement(msgspec.Struct, frozen=True):
    """One announcement to make. Its content depends on the kind:

    - `unschedulable`, `refused` (a binding): the condition's `message`; `zone` is the message of
      the condition of the zone, "" for none, and `zone_found` the end of it
    - `bound`, `nominated`: `node`; an empty node ends the nomination
    - `preempted`: the preemptor's uid in `message`
    - `admitted`: the zones in `message`
    - `excluded`: the cause in `message`, why pods like `pod` are not sent to `node`
    - `missed`: in `message` the zones, although one zone was required
    - `drifted`: in `message` the zones, although others were certain
    - `without_effect`: in `message` the preferences that the placement ignored
    - `lost_devices`: the devices in `message`
    - `placed`: the `annotations` that say where the pod is
    """

    kind: Kind
    uid: str
    message: str = ""
    node: str = ""
    pod: Identity = msgspec.field(default_factory=lambda: _NO_POD)
    position: int = 0
    time_us: int = 0
    tries: int = 0
    zone: str = ""
    annotations: dict[str, str] = {}

    @property
    def key(self) -> tuple[str, str]:
        """The key of an announcement: a newer one with the same key replaces it."""
        if self.kind == "excluded":
            return self.node, self.kind
        return self.uid, self.kind if self.kind in _APART else ""


class PendingAnnouncements:
    """The queue. A scheduler that uses the extender announces its bound pods itself."""

    def __init__(self, scheduler_name: str, annotate: Annotate = "auto") -> None:
        self._scheduler_name = scheduler_name
        self._queue: dict[tuple[str, str], Announcement] = {}
        self._in_flight: dict[tuple[str, str], Announcement] = {}
        self._admissions = Admissions(annotate)
        self._nominated: dict[str, str] = {}
        self._victims: dict[str, Identity] = {}
        self._since_us: dict[str, int] = {}
        self._without_effect: dict[str, tuple[str, ...]] = {}
        self._zone_waits: dict[str, None] = {}

    def __len__(self) -> int:
        """The queue's length without announcements in flight."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """The number of announcements that were popped and are not finished yet."""
        return len(self._in_flight)

    def pop(self) -> Announcement:
        """Return the next announcement; `finish` or `put_back` follows."""
        announcement = self._queue.pop(next(iter(self._queue)))
        self._in_flight[announcement.key] = announcement
        return announcement

    def finish(self, announcement: Announcement) -> bool:
        """Remove an announcement that was made. Return False if it does not hold any more."""
        is_newest = self._in_flight.get(announcement.key) is announcement
        if is_newest:
            del self._in_flight[announcement.key]
        return is_newest

    def put_back(self, announcement: Announcement, answered: bool) -> bool:
        """Queue an announcement again if it still holds. Return False if it was deferred too
        often."""
        if not self.finish(announcement):
            return True
        tries = announcement.tries + (1 if answered else 0)
        if tries < TRIES:
            self._queue[announcement.key] = msgspec.structs.replace(announcement, tries=tries)
        return tries < TRIES

    def since_us(self, announcement: Announcement) -> int:
        """Return the time at which the pod's condition became false. A new message alone is no
        transition."""
        since_us = self._since_us.setdefault(announcement.uid, announcement.time_us)
        _drop_oldest(self._since_us)
        return since_us

    def fold(self, state: BinderState, envelope: Envelope, event: Event, leads: bool) -> int:
        """Fold an event that `state` has folded. Return how many announcements were dropped."""
        self._remember(state, event)
        admitted = self._admissions.fold(event)
        made = [_admission(pod) for pod in admitted]
        made += [
            Announcement("placed", pod.uid, node=pod.node, annotations=pod.annotations)
            for pod in admitted
            if pod.annotations
        ]
        made += self._announcements(event)
        made += self._ignored_preferences(event)
        made += self._zone_found(event)
        for announcement in made:
            if leads or announcement.kind in LASTING:
                self._add(state, announcement, envelope)
        return _drop_oldest(self._queue)

    def _add(self, state: BinderState, made: Announcement, envelope: Envelope) -> None:
        pod = state.pods.get(made.uid)
        if pod is None and made.kind == "preempted":
            pod = self._victims.pop(made.uid, None)
        if pod is None and made.kind == "excluded":
            pod = _NO_POD
        if pod is None or (made.kind == "bound" and pod.scheduler != self._scheduler_name):
            return
        self._queue.pop(made.key, None)
        self._in_flight.pop(made.key, None)
        self._queue[made.key] = msgspec.structs.replace(
            made, pod=pod, position=envelope.position, time_us=envelope.time_us
        )

    def _remember(self, state: BinderState, event: Event) -> None:
        """Keep the names of victims, because a victim may end before its eviction has an
        outcome."""
        if isinstance(event, PodBound | PodEnded):
            self._since_us.pop(event.uid, None)
            self._drop_lasting(event.uid)
        if not isinstance(event, EvictIntended):
            return
        node = self._nominated.get(event.preemptor, "")
        self._victims[event.uid] = state.pods.get(event.uid) or Identity(
            event.namespace, event.name, node=node
        )
        _drop_oldest(self._victims)

    def _drop_lasting(self, uid: str) -> None:
        """Drop announcements that held only until the pod was bound or ended."""
        for announcements_by_key in (self._queue, self._in_flight):
            for key in ((uid, ""), (uid, "nominated")):
                announcement = announcements_by_key.get(key)
                if announcement is not None and announcement.kind in LASTING:
                    del announcements_by_key[key]

    def _announcements(self, event: Event) -> list[Announcement]:
        if isinstance(event, PodVerdictChanged):
            zone = zone_text(event.detail)
            return [Announcement("unschedulable", event.uid, event.message, zone=zone)]
        if isinstance(event, BindRefused):
            text = announcements.refused(event.node, event.cause, event.message)
            return [Announcement("refused", event.uid, text, event.node)] if text else []
        if isinstance(event, PodBound):
            return [Announcement("bound", event.uid, node=event.node)]
        if isinstance(event, PodEvicted):
            return [Announcement("preempted", event.uid, event.preemptor)]
        if isinstance(event, NodeSetAside):
            cause = announcements.exclusion_cause(event.cause, event.detail)
            return [Announcement("excluded", event.uid, cause, event.node)]
        if isinstance(event, PodDevicesLost) and event.devices:
            lost = ", ".join(event.devices)
            return [Announcement("lost_devices", event.uid, lost, event.node)]
        if isinstance(event, PodNominated):
            self._nominated[event.uid] = event.node
            return [Announcement("nominated", event.uid, node=event.node)]
        return self._nomination_ended(event)

    def _zone_found(self, event: Event) -> list[Announcement]:
        """Announce that a pod no longer waits for a zone."""
        if isinstance(event, PodVerdictChanged) and zone_text(event.detail):
            self._zone_waits[event.uid] = None
            _drop_oldest(self._zone_waits)
            return []
        if not isinstance(event, PodVerdictChanged | PodBound | PodEnded):
            return []
        if event.uid not in self._zone_waits:
            return []
        del self._zone_waits[event.uid]
        return [] if isinstance(event, PodEnded) else [Announcement("zone_found", event.uid)]

    def _ignored_preferences(self, event: Event) -> list[Announcement]:
        """Announce the preferences that the reservation ignored. This waits for the binding,
        because a withdrawn reservation places no pod."""
        if isinstance(event, PodReserved):
            self._without_effect.pop(event.uid, None)
            if event.without_effect:
                self._without_effect[event.uid] = event.without_effect
                _drop_oldest(self._without_effect)
        if not isinstance(event, PodBound | PodEnded):
            return []
        keys = self._without_effect.pop(event.uid, ())
        if not keys or isinstance(event, PodEnded):
            return []
        message = announcements.ignored_preferences(keys)
        return [Announcement("without_effect", event.uid, message, event.node)]

    def _nomination_ended(self, event: Event) -> list[Announcement]:
        """Announce the end of a nomination that was withdrawn, or whose pod was placed elsewhere.

        If the nominated pod takes its node, the API server clears the field at the binding. Before
        Kubernetes 1.35 the field stays, as with kube-scheduler.
        """
        if not isinstance(event, NominationWithdrawn | PodReserved | PodEnded):
            return []
        node = self._nominated.pop(event.uid, "")
        if isinstance(event, PodEnded) or (isinstance(event, PodReserved) and event.node == node):
            return []
        if not node and not isinstance(event, NominationWithdrawn):
            return []
        return [Announcement("nominated", event.uid)]


def _drop_oldest(entries: dict[Any, Any]) -> int:
    """Drop the oldest entries above the limit and return how many."""
    surplus = max(0, len(entries) - PENDING_PODS)
    for _ in range(surplus):
        del entries[next(iter(entries))]
    return surplus


def _admission(pod: Admitted) -> Announcement:
    if pod.missed:
        return Announcement("missed", pod.uid, pod.missed, pod.node)
    if pod.drift:
        return Announcement("drifted", pod.uid, pod.drift, pod.node)
    return Announcement("admitted", pod.uid, pod.message, pod.node)
