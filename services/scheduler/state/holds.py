"""Holds: which node takes no other pod until an overdue pod is placed, and since when pods wait.

They are folded from the log in addition to the ledger. `waiting_since_us` has times of writers'
clocks; the fold only keeps them, and `reserve/holds.py` compares them with a clock. Must not know a
clock or the log.
"""

from __future__ import annotations

import msgspec

from shared.events.cluster_events import PodObserved
from shared.events.scheduling_events import HoldBegun, HoldEnded


class Hold(msgspec.Struct, frozen=True):
    """A node is held for the pod `uid` (`key` is its namespace and name)."""

    uid: str
    key: str
    priority: int = 0


class Holds(msgspec.Struct):
    """The fold: holds by node, and when each pod without a node was first seen without gates."""

    by_node: dict[str, Hold] = {}
    waiting_since_us: dict[str, int] = {}

    def node_of(self, uid: str) -> str:
        """Return the node that is held for the pod, "" for none."""
        return next((node for node, hold in self.by_node.items() if hold.uid == uid), "")

    def fold_hold(self, event: HoldBegun | HoldEnded) -> None:
        """Begin or end a hold; the end of an unknown hold is harmless."""
        if isinstance(event, HoldBegun):
            self.by_node[event.node] = Hold(event.uid, event.key, event.priority)
        elif self.node_of(event.uid) == event.node:
            del self.by_node[event.node]

    def fold_pod(self, event: PodObserved, time_us: int) -> None:
        """Note when the pod began to wait. A pod with scheduling gates does not wait yet."""
        pod = event.pod
        if event.node or pod.constraints.gates:
            self.waiting_since_us.pop(pod.uid, None)
        else:
            self.waiting_since_us.setdefault(pod.uid, time_us)

    def forget_pod(self, uid: str) -> None:
        """The pod is bound or has ended."""
        self.waiting_since_us.pop(uid, None)
