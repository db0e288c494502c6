"""Rejections by kubelets of pods that this scheduler reserved.

They are recognized by what the ledger holds of the pod before its end is folded. Of several
schedulers of one name each counts the pods of its shard, so that the sum is right. Must not know
the log, metrics, or whether the log is being replayed."""

from __future__ import annotations

from collections import deque

import msgspec

from services.scheduler.queue.shard import Shard
from services.scheduler.state.exclusions import REJECTIONS
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded
from shared.ledger.state import Ledger

# A reason that does not concern zones: `OutOfcpu`, `NodeAffinity`, a plugin's own.
OTHER = "other"
REASONS = (*sorted(REJECTIONS), OTHER)
KEPT = 10_000


class Rejected(msgspec.Struct, frozen=True):
    """A pod, its node, the kubelet's message, and the reason (of `REASONS`) by which it is
    counted.
    """

    uid: str
    node: str
    said: str
    reason: str


class Rejections:
    """Rejections since the last `take`, of pods that name one of these schedulers."""

    def __init__(self, schedulers: tuple[str, ...]) -> None:
        self._schedulers = frozenset(schedulers)
        self._rejected: deque[Rejected] = deque(maxlen=KEPT)

    def before(self, event: Event, ledger: Ledger, share: Shard) -> None:
        """Note an event that the ledger has not folded yet."""
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
            self._rejected.append(Rejected(event.uid, entry.node, said, reason))

    def take(self) -> list[Rejected]:
        """Return and forget the rejections."""
        rejected = list(self._rejected)
        self._rejected.clear()
        return rejected
