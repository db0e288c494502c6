"""What of the log is still to be told to people and other schedulers: of a pod the newest, behind
the others; bounded.

A standby keeps what holds until a pod is bound or ends: the leader may not have told it when it
died. Pure; hears facts in order of the log. Must not know how it is told.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from services.binder import announcements
from services.binder.admissions import Admissions
from services.binder.core import BinderState, Identity
from shared.events.binding_events import BindRefused, EvictIntended, PodBound, PodEvicted
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded
from shared.events.envelope import Envelope
from shared.events.scheduling_events import (
    NodeSetAside,
    NominationWithdrawn,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)

PENDING_PODS = 5_000
TRIES = 60
"""So often the API may put an announcement off; while nobody answers none is counted."""

_NOBODY = Identity("", "")

Kind = Literal["verdict", "refused", "bound", "nominated", "preempted", "admitted", "aside"]
Say = tuple[Kind, str, str, str]
LASTING: tuple[Kind, ...] = ("verdict", "refused", "nominated")
"""What holds until the pod is bound or ends."""


class Waiting(msgspec.Struct, frozen=True):
    """One announcement to make. `verdict` and `refused` (of a binding) say `message`, `bound` and
    `nominated` name `node` ("": nominated no more), `preempted` says in `message` for whom (a uid),
    `admitted` on which zone, `aside` why such pods are not sent to `node`."""

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


class Untold:
    """That a pod of another scheduler (one that asks by the extender) is bound, is told by that
    scheduler.
    """

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._waiting: dict[tuple[str, str], Waiting] = {}
        self._under_way: dict[tuple[str, str], Waiting] = {}
        self._admissions = Admissions()
        self._nominated: dict[str, str] = {}
        self._victims: dict[str, Identity] = {}
        self._since_us: dict[str, int] = {}

    def __len__(self) -> int:
        """How many wait, those under way not counted."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """How many were taken and not told yet."""
        return len(self._under_way)

    def take(self) -> Waiting:
        """The next; `told` or `put_back` follows."""
        waiting = self._waiting.pop(next(iter(self._waiting)))
        self._under_way[waiting.key] = waiting
        return waiting

    def told(self, waiting: Waiting) -> bool:
        """It was said, or in vain. False where it holds no more."""
        newest = self._under_way.get(waiting.key) is waiting
        if newest:
            del self._under_way[waiting.key]
        return newest

    def put_back(self, waiting: Waiting, answered: bool) -> bool:
        """To be said again, if it holds still; False where it was put off too often."""
        if not self.told(waiting):
            return True
        tries = waiting.tries + (1 if answered else 0)
        if tries < TRIES:
            self._waiting[waiting.key] = msgspec.structs.replace(waiting, tries=tries)
        return tries < TRIES

    def since_us(self, waiting: Waiting) -> int:
        """When the pod's condition became false: another reason for it is no transition. The oldest
        gives way.
        """
        since_us = self._since_us.setdefault(waiting.uid, waiting.time_us)
        if len(self._since_us) > PENDING_PODS:
            del self._since_us[next(iter(self._since_us))]
        return since_us

    # -- hearing
    # -------------------------------------------------------------------------------------------------

    def hear(self, state: BinderState, envelope: Envelope, event: Event, leads: bool) -> int:
        """A fact that `state` knows. How many announcements gave way."""
        self._remember(state, event)
        heard: list[Say] = [
            ("admitted", one.uid, one.message, one.node) for one in self._admissions.heard(event)
        ]
        other = self._heard(event)
        for kind, uid, message, node in [*heard, other] if other is not None else heard:
            if leads or kind in LASTING:
                self._note(
                    state,
                    Waiting(kind, _NOBODY, uid, envelope.position, envelope.time_us, message, node),
                )
        over = max(0, len(self._waiting) - PENDING_PODS)
        for _ in range(over):
            self._waiting.pop(next(iter(self._waiting)))
        return over

    def _note(self, state: BinderState, made: Waiting) -> None:
        pod = state.pods.get(made.uid) or (
            self._victims.pop(made.uid, None) if made.kind == "preempted" else None
        )
        pod = _NOBODY if pod is None and made.kind == "aside" else pod
        if pod is None or (made.kind == "bound" and pod.scheduler != self._scheduler_name):
            return
        self._waiting.pop(made.key, None)
        self._under_way.pop(made.key, None)
        self._waiting[made.key] = msgspec.structs.replace(made, pod=pod)

    def _remember(self, state: BinderState, event: Event) -> None:
        """Victims by their names, as one may have ended before its eviction has an outcome; the
        oldest gives way.
        """
        if isinstance(event, PodBound | PodEnded):
            self._since_us.pop(event.uid, None)
            self._forget(event.uid)
        if not isinstance(event, EvictIntended):
            return
        node = self._nominated.get(event.preemptor, "")
        self._victims[event.uid] = state.pods.get(event.uid) or Identity(
            event.namespace, event.name, node=node
        )
        if len(self._victims) > PENDING_PODS:
            del self._victims[next(iter(self._victims))]

    def _forget(self, uid: str) -> None:
        """Bound or ended: what it waited for is not told any more."""
        for held in (self._waiting, self._under_way):
            for key in ((uid, ""), (uid, "nominated")):
                if key in held and held[key].kind in LASTING:
                    del held[key]

    def _heard(self, event: Event) -> Say | None:
        """(kind, uid, message, node) of what the fact has to be told for."""
        if isinstance(event, PodVerdictChanged):
            return "verdict", event.uid, event.message, ""
        if isinstance(event, BindRefused):
            text = announcements.refused(event.node, event.cause, event.message)
            return ("refused", event.uid, text, event.node) if text else None
        if isinstance(event, PodBound):
            return "bound", event.uid, "", event.node
        if isinstance(event, PodEvicted):
            return "preempted", event.uid, event.preemptor, ""
        if isinstance(event, NodeSetAside):
            return "aside", event.uid, f"{event.cause}: {event.detail}", event.node
        if isinstance(event, PodNominated):
            self._nominated[event.uid] = event.node
            return "nominated", event.uid, "", event.node
        return self._nomination_ended(event)

    def _nomination_ended(self, event: Event) -> Say | None:
        """Withdrawn, or placed elsewhere. Of a nominee that takes its node the API server clears
        the field as it binds (before Kubernetes 1.35 it stays, as with kube-scheduler)."""
        if not isinstance(event, NominationWithdrawn | PodReserved | PodEnded):
            return None
        node = self._nominated.pop(event.uid, "")
        taken = isinstance(event, PodReserved) and event.node == node
        if (
            isinstance(event, PodEnded)
            or taken
            or not (node or isinstance(event, NominationWithdrawn))
        ):
            return None
        return "nominated", event.uid, "", ""
