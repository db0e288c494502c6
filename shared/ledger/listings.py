"""Whether the cluster was listed since the log was restored. Until then nothing may be decided,
bound or evicted.

1. A restored log lacks what happened after its backup: pods that were bound since hold zones that
   it does not know, so a kubelet would reject pods that are decided too early, and victims would
   be evicted for a pod that runs.

2. A timeline (`LogOpened`) says that a log was restored. An operator begins it, or a reader that
   has read further than the log goes. The observer appends `ClusterListed` after a whole list.

3. A log that was never restored has neither event: the observer appends pods on nodes before pods
   that wait.

4. The release before this one does not append `ClusterListed` and decides at once. A decision on
   the timeline therefore ends the wait, so that a rolling update does not stall.

Must not know the observer or the queue.
"""

from __future__ import annotations

import msgspec

from shared.events.cluster_events import ClusterListed
from shared.events.log_events import LogOpened

# Kinds that must be listed.
WANTED = ("nodes", "pods")


class Listings(msgspec.Struct):
    """`of` is kind -> the timeline on which it was listed last. `unreadable` is the first stream
    with safety events of which this release cannot read an event; nothing may be decided until the
    state is folded again without it."""

    timeline: int = 0
    of: dict[str, int] = {}
    unreadable: str = ""

    def opened(self, event: LogOpened) -> None:
        self.timeline = event.timeline

    def listed(self, event: ClusterListed) -> None:
        self.of[event.kind] = event.timeline

    def block(self, stream: str) -> None:
        self.unreadable = self.unreadable or stream

    def decided(self) -> None:
        """A pod was reserved on this timeline."""
        if self.timeline:  # hardly any log has one, and this runs for every reservation
            self.of.update(dict.fromkeys(self.lacking(), self.timeline))

    def lacks(self, kind: str) -> bool:
        return kind in WANTED and self.of.get(kind, 0) < self.timeline

    def lacking(self) -> list[str]:
        """Return the kinds that are still to be listed."""
        return [kind for kind in WANTED if self.lacks(kind)]

    def problem(self) -> str:
        """Return the problem in a sentence, empty if there is none."""
        if self.unreadable:
            return (
                f"an event on stream {self.unreadable}, which restricts every decision, cannot be "
                "read by this release; /healthz names the event, what wrote it, and the remedy"
            )
        kinds = " and ".join(self.lacking())
        if not kinds:
            return ""
        return (
            f"{kinds} of the cluster were not listed yet on timeline {self.timeline}, "
            "which began when the log was restored"
        )
