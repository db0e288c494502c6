"""Whether the cluster was listed since the log was restored: until then nothing may be decided,
bound or evicted.

A restored log lacks what came about after its backup. Pods that were bound meanwhile hold zones of
which it knows nothing, a pod decided before they are told may be sent where a kubelet rejects it,
and victims may be evicted for one that runs since. A timeline (`LogOpened`) says that a log was
restored: an operator begins it, or a reader that had read more; the observer says on that timeline
when it has told a whole list. A log that was never restored knows neither fact: there pods on nodes
are told before those that wait. A release before this one says nothing of lists and decides at
once: where it did there is nothing left to wait for, and a rolling update does not stand still.
Must not know who lists, or who waits.
"""

from __future__ import annotations

import msgspec

from shared.events.cluster_events import ClusterListed
from shared.events.log_events import LogOpened

WANTED = ("nodes", "pods")
"""What must have been listed."""


class Listings(msgspec.Struct):
    """`of` is kind -> the timeline on which it was listed last."""

    timeline: int = 0
    of: dict[str, int] = {}

    def opened(self, event: LogOpened) -> None:
        """A timeline begins."""
        self.timeline = event.timeline

    def listed(self, event: ClusterListed) -> None:
        """A kind was told whole."""
        self.of[event.kind] = event.timeline

    def decided(self) -> None:
        """A pod was reserved on this timeline."""
        if self.timeline:  # as hardly any log has: this is asked at every reservation
            self.of.update(dict.fromkeys(self.lacking(), self.timeline))

    def lacks(self, kind: str) -> bool:
        """Whether a list of this kind is waited for."""
        return kind in WANTED and self.of.get(kind, 0) < self.timeline

    def lacking(self) -> list[str]:
        """The kinds that are waited for."""
        return [kind for kind in WANTED if self.lacks(kind)]

    def problem(self) -> str:
        """What is waited for, in a sentence; empty where nothing is."""
        kinds = " and ".join(self.lacking())
        return (
            f"{kinds} of the cluster were not listed yet on timeline {self.timeline}, which began when the log was restored"
            if kinds
            else ""
        )
