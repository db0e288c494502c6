"""Gangs: the live pods of each, how many of its pods had a node at some time, and roll-backs.

They are folded from the log in addition to the ledger. Must not know a clock, nodes or the log.
"""

from __future__ import annotations

import msgspec

from shared.domain.gang import Gang, MatchPolicy
from shared.events.binding_events import EvictRefused, PodBound, PodEvicted
from shared.events.cluster_events import PodObserved, PodRunning
from shared.events.scheduling_events import OF_GANG, GangRolledBack


class Members(msgspec.Struct):
    """`started` says of each live pod whether it has been bound, and `bound` counts the pods that
    were, ended ones included. `was_whole`: the minimum was bound at some time. `yielding` says of
    each live pod that is evicted because the gang is rolled back whether the API server has the
    eviction; it does not count once it has ended. A gang is forgotten with its last pod."""

    started: dict[str, bool] = {}
    bound: int = 0
    was_whole: bool = False
    yielding: dict[str, bool] = {}

    def counted(self, policy: MatchPolicy) -> int:
        """Return how many pods that were bound count for the minimum."""
        if policy == "waiting-and-running":
            return sum(self.started.values())
        return self.bound if policy == "once-satisfied" else 0


class Gangs(msgspec.Struct):
    """The fold: members by the gang's key, the key by pod uid, and the number of roll-backs."""

    members: dict[str, Members] = {}
    key_of: dict[str, str] = {}
    roll_backs: int = 0

    def of_pod(self, uid: str) -> Members | None:
        """Return the members of the pod's gang, if it is in one."""
        return self.members.get(self.key_of.get(uid, ""))

    def fold_pod(self, event: PodObserved | PodBound | PodRunning) -> None:
        """Fold one event; events of pods without a gang are harmless."""
        if isinstance(event, PodObserved):
            self._observed(event.pod.uid, event.pod.gang, bool(event.node))
        elif (members := self.of_pod(event.uid)) is not None:
            self._start(event.uid, members)

    def fold_roll_back(self, event: GangRolledBack | PodEvicted | EvictRefused) -> None:
        """Fold the beginning of a roll-back, or the outcome of an eviction for whichever reason."""
        if isinstance(event, GangRolledBack):
            self.roll_backs += 1
            if (members := self.members.get(event.gang)) is not None:
                uids = (uid for uid in event.uids if members.started.get(uid))
                members.yielding = dict.fromkeys(uids, False)
            return
        members = self.of_pod(event.uid)
        if members is None or event.uid not in members.yielding:
            return
        if isinstance(event, PodEvicted):
            members.yielding[event.uid] = True
        elif event.preemptor.startswith(OF_GANG):
            members.yielding = {uid: True for uid, gone in members.yielding.items() if gone}

    def forget_pod(self, uid: str) -> None:
        """The pod has ended; harmless for others."""
        key = self.key_of.pop(uid, None)
        if key is not None:
            members = self.members[key]
            members.bound -= members.yielding.pop(uid, None) is not None
            del members.started[uid]
            if not members.started:
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
