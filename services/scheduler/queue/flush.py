"""Pods that wait are looked at again now and then, though nothing happened by which they might fit.

What a pod's condition says stays true that way: nodes change for the worse, too, and those changes
wake nobody. And what should have woken a pod and did not costs minutes, as with kube-scheduler
(1.36, flushUnschedulablePodsLeftover: 5 minutes). Others come first: it is done while nobody is
ready, a few pods at a time. Must not know nodes or a clock.
"""

from __future__ import annotations

from services.scheduler.queue.queue import Queue

EVERY_S = 300.0
"""Between the beginnings of two rounds; one that takes longer is followed by the next at once."""
AT_MOST, WITHIN_S = 5, 1.0
"""Pods, and how long until the next ones: at 5,000 nodes a look that finds nothing costs up to 10 ms."""


class LookingAgain:
    """One round after another over whoever waits at its beginning."""

    def __init__(self) -> None:
        self._round: list[str] = []
        self._next_s: float | None = None
        self._few_from_s = 0.0

    def turn(self, queue: Queue, now_s: float) -> None:
        """Make the next few ready, if it is time; `now_s` is monotonic."""
        if self._next_s is None:
            self._next_s = now_s + EVERY_S
        if not self._round and now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self._round = queue.waiting_uids()[::-1]
        if self._round and now_s >= self._few_from_s and not queue.ready_count():
            self._few_from_s = now_s + WITHIN_S
            for _ in range(min(AT_MOST, len(self._round))):
                queue.wake(self._round.pop())
