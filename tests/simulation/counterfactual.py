"""Whether a kubelet rejected a pod because of unknowable events: its past is played again without
them.

A node keeps its admissions and ends in order, each with the kubelet before it. Left out are the
events that the decision could not foresee: ends that were not in the log yet, pods bound by another
client, and pods that were sent here because of such an end. If the pod is rejected all the same,
they are no excuse. Must not know the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from typing import Literal

import msgspec

from services.simulator import kubelet
from services.simulator.kubelet import KubeletNode
from shared.domain.pod import Pod

# Events that are kept for each node.
KEPT = 256


class Event(msgspec.Struct, frozen=True):
    """The beginning of a pod's admission, or its end. `restart` means that the kubelet's state
    changed otherwise.
    """

    kind: Literal["admit", "end", "restart"]
    before: KubeletNode
    pod: Pod | None = None


class Past:
    """The events of one node, the newest of them."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=KEPT)

    def note(
        self, kind: Literal["admit", "end", "restart"], before: KubeletNode, pod: Pod | None = None
    ) -> None:
        """Note one more event; `before` is the kubelet's state before it."""
        self.events.append(Event(kind, before, pod))

    def refused_without(self, uid: str, ends: Set[str], admissions: Set[str]) -> bool | None:
        """Whether the pod's newest admission would have been rejected without these pods' ends and
        those pods' admissions. None if none of them happened before, or the past does not reach
        back that far.
        """
        events = self._until(uid)
        out = [_left_out(each, ends, admissions) for each in events]
        if not any(out):
            return None
        first = out.index(True)
        if any(each.kind == "restart" for each in events[first:]):
            return None
        return _refused(
            [each for each, gone in zip(events[first:], out[first:], strict=True) if not gone],
            events[first].before,
        )

    def _until(self, uid: str) -> Sequence[Event]:
        events = list(self.events)
        while events and not (
            events[-1].kind == "admit" and events[-1].pod and events[-1].pod.uid == uid
        ):
            events.pop()
        return events


def _left_out(event: Event, ends: Set[str], admissions: Set[str]) -> bool:
    uid = event.pod.uid if event.pod is not None else ""
    return uid in ends if event.kind == "end" else uid in admissions


def _refused(events: Sequence[Event], node: KubeletNode) -> bool:
    """Return whether the kubelet rejects the last of these admissions."""
    admitted = True
    for event in events:
        assert event.pod is not None
        if event.kind == "end":
            node = kubelet.end(node, event.pod.uid)
            continue
        node, trial = kubelet.begin(kubelet.assign(node, event.pod), event.pod.uid)
        node, admitted = kubelet.conclude(node, trial), trial.verdict.admitted
    return not admitted
