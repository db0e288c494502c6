"""Which ends of pods are rejections in spite of a pass: reserved by schedulers of this name, and
then refused by the kubelet.

Told apart by what the ledger holds of the pod before its end is folded. Several schedulers of one
name each hear every end; each counts the pods of its share, so that the sum is right. Must not know
the log, metrics, or whether the log is being replayed."""

from __future__ import annotations

from collections import deque

import msgspec

from services.scheduler.queue.shard import Shard
from services.scheduler.state.exclusions import REJECTIONS
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded
from shared.ledger.state import Ledger

OTHER = "other"
"""A reason that says nothing of zones: `OutOfcpu`, `NodeAffinity`, a plugin's own."""
REASONS = (*sorted(REJECTIONS), OTHER)
KEPT = 10_000


class Rejected(msgspec.Struct, frozen=True):
    """A pod, the node that it was reserved on, what its kubelet said, and by which of `REASONS` it
    is counted.
    """

    uid: str
    node: str
    said: str
    reason: str


class Rejections:
    """Those since they were taken last, of pods that name one of these schedulers."""

    def __init__(self, schedulers: tuple[str, ...]) -> None:
        self._schedulers = frozenset(schedulers)
        self._found: deque[Rejected] = deque(maxlen=KEPT)

    def before(self, event: Event, ledger: Ledger, share: Shard) -> None:
        """Hear a fact that the ledger has not folded yet."""
        if not isinstance(event, PodEnded) or event.cause != "rejected":
            return
        entry = ledger.pods.get(event.uid)
        if (
            entry is None
            or not entry.reserved_at
            or entry.pod.scheduler_name not in self._schedulers
        ):
            return
        if event.node in ("", entry.node) and share.has(event.uid):
            reason = event.reason if event.reason in REJECTIONS else OTHER
            said = f"{event.reason}: {event.message}" if event.message else event.reason
            self._found.append(Rejected(event.uid, entry.node, said, reason))

    def take(self) -> list[Rejected]:
        """What was found since the last time."""
        found = list(self._found)
        self._found.clear()
        return found
