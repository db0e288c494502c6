"""Gangs: the live pods of each, and how many of its pods had a node at some time.

They are folded from the log in addition to the ledger. Must not know a clock, nodes or the log.
"""

from __future__ import annotations

import msgspec

from shared.domain.gang import Gang, MatchPolicy
from shared.events.binding_events import PodBound
from shared.events.cluster_events import PodObserved, PodRunning


class Members(msgspec.Struct):
    """`started` says of each live pod whether it has been bound, and `bound` counts the pods that
    were, ended ones included. A gang is forgotten with its last pod."""

    started: dict[str, bool] = {}
    bound: int = 0

    def counted(self, policy: MatchPolicy) -> int:
        """Return how many pods that were bound count for the minimum."""
        if policy == "waiting-and-running":
            return sum(self.started.values())
        return self.bound if policy == "once-satisfied" else 0


class Gangs(msgspec.Struct):
    """The fold: members by the gang's key, and the key by pod uid."""

    members: dict[str, Members] = {}
    key_of: dict[str, str] = {}

    def fold_pod(self, event: PodObserved | PodBound | PodRunning) -> None:
        """Fold one event; events of pods without a gang are harmless."""
        if isinstance(event, PodObserved):
            self._observed(event.pod.uid, event.pod.gang, bool(event.node))
        elif (key := self.key_of.get(event.uid)) is not None:
            self._start(event.uid, self.members[key])

    def forget_pod(self, uid: str) -> None:
        """The pod has ended; harmless for others."""
        key = self.key_of.pop(uid, None)
        if key is not None:
            del self.members[key].started[uid]
            if not self.members[key].started:
                del self.members[key]

    def _observed(self, uid: str, gang: Gang | None, is_bound: bool) -> None:
        if uid in self.key_of and (gang is None or gang.key != self.key_of[uid]):
            self.forget_pod(uid)
        if gang is None:
            return
        self.key_of[uid] = gang.key
        members = self.members.setdefault(gang.key, Members())
        members.started.setdefault(uid, False)
        if is_bound:
            self._start(uid, members)

    def _start(self, uid: str, members: Members) -> None:
        members.bound += not members.started[uid]
        members.started[uid] = True
