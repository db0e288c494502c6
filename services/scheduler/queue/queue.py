"""The scheduling queue: which pod is decided next, and which waiting pod a change may help.

Order is priority, then arrival (position in the log): deterministic on replay. Waiting pods are
grouped by shape; a group wakes one pod at a time, and the next when that one was placed, so that a
freed zone does not wake thousands in vain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from shared.domain.pod import Pod

PodClass = str
SKIPPED_AT_MOST = 1024
"""Entries of the heap, beyond as many as pods are ready, that may stand for pods that were removed."""


class Queue:
    """Ready pods in a heap, waiting pods by shape. Uids are the only identity."""

    def __init__(self, shape_of: Callable[[Pod], PodClass]) -> None:
        self._shape_of = shape_of
        self._heap: list[tuple[int, int, str]] = []
        self._ready: dict[str, Pod] = {}
        self._waiting: dict[PodClass, dict[str, Pod]] = {}
        self._shapes: dict[str, PodClass] = {}
        self._arrivals: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + sum(len(group) for group in self._waiting.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._arrivals

    def ready_count(self) -> int:
        """Pods to be decided now."""
        return len(self._ready)

    def waiting_count(self) -> int:
        """Pods that wait for a change."""
        return sum(len(group) for group in self._waiting.values())

    def add(self, pod: Pod, arrival: int) -> None:
        """Make the pod ready, with its newest spec."""
        self.remove(pod.uid)
        self._arrivals[pod.uid] = arrival
        self._ready[pod.uid] = pod
        heapq.heappush(self._heap, (-pod.priority, arrival, pod.uid))

    def remove(self, uid: str) -> None:
        """Forget the pod: it was placed or ended. Its heap entry is skipped when it comes up."""
        self._ready.pop(uid, None)
        shape = self._shapes.pop(uid, None)
        if shape is not None:
            self._drop_waiting(shape, uid)
        self._arrivals.pop(uid, None)
        if len(self._heap) > SKIPPED_AT_MOST + 2 * len(self._ready):
            self._compact()

    def _compact(self) -> None:
        """Who follows the log and decides nothing removes pods and pops none."""
        current = self._arrivals.get
        self._heap = [
            entry
            for entry in self._heap
            if entry[2] in self._ready and current(entry[2]) == entry[1]
        ]
        heapq.heapify(self._heap)

    def _drop_waiting(self, shape: PodClass, uid: str) -> None:
        group = self._waiting[shape]
        del group[uid]
        if not group:
            del self._waiting[shape]

    def pop(self) -> tuple[Pod, int] | None:
        """The next pod to decide and its arrival, or None. The caller parks it or has it removed by
        a fact.
        """
        while self._heap:
            _, arrival, uid = heapq.heappop(self._heap)
            pod = self._ready.get(uid)
            if pod is not None and self._arrivals.get(uid) == arrival:
                del self._ready[uid]
                return pod, arrival
        return None

    def park(self, pod: Pod, arrival: int) -> None:
        """The pod fits nowhere now: wait for a change."""
        shape = self._shape_of(pod)
        self._shapes[pod.uid] = shape
        self._arrivals[pod.uid] = arrival
        self._waiting.setdefault(shape, {})[pod.uid] = pod

    def waiting_shapes(self) -> list[tuple[PodClass, Pod]]:
        """One pod of each waiting shape, in order of arrival of the shape."""
        return [(shape, next(iter(group.values()))) for shape, group in self._waiting.items()]

    def waiting_uids(self) -> list[str]:
        """Who waits, those of a shape one after another."""
        return [uid for group in self._waiting.values() for uid in group]

    def wake_one(self, shape: PodClass) -> bool:
        """Make the first waiting pod of the shape ready (highest priority, then arrival). False
        when none waits.
        """
        group = self._waiting.get(shape)
        if not group:
            return False
        uid = min(
            group, key=lambda candidate: (-group[candidate].priority, self._arrivals[candidate])
        )
        pod, arrival = group[uid], self._arrivals[uid]
        self.add(pod, arrival)
        return True

    def wake(self, uid: str) -> None:
        """Make one waiting pod ready; harmless when it does not wait."""
        shape = self._shapes.get(uid)
        if shape is not None:
            self.add(self._waiting[shape][uid], self._arrivals[uid])

    def wake_all(self) -> None:
        """Make every waiting pod ready: a change that may help any of them."""
        waiting: Iterable[tuple[Pod, int]] = [
            (pod, self._arrivals[uid])
            for group in self._waiting.values()
            for uid, pod in group.items()
        ]
        for pod, arrival in list(waiting):
            self.add(pod, arrival)


EVERY_S = 300.0
"""Between the beginnings of two rounds; one that takes longer is folded by the next at once."""
AT_MOST, WITHIN_S = 5, 1.0
"""Pods, and how long until the next ones: at 5,000 nodes a look that finds nothing costs up to 10 ms."""


class UnschedulableFlush:
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
