"""kube-scheduler's queue, as far as waiting times depend on it.

An unschedulable pod is tried again when an event wakes it and its back-off (1 to 10 s) has ended,
or after 5 minutes (scheduling_queue.go, Kubernetes 1.35: podInitialBackoff, podMaxBackoff,
unschedulable after 5 min).
"""

from __future__ import annotations

import heapq

import msgspec

from shared.domain.pod import Pod

FIRST_S, MOST_S, FLUSH_S = 1.0, 10.0, 300.0
# This many doublings of FIRST_S reach MOST_S. More would overflow a float at some time.
DOUBLINGS = 4


class Waiting(msgspec.Struct):
    """A pod that is not placed. `tried_s` is its last attempt, `ready_s` the end of its back-off;
    `is_woken` says that it is tried again then.
    """

    pod: Pod
    tried_s: float = 0.0
    ready_s: float = 0.0
    attempts: int = 0
    is_woken: bool = True


class BackoffQueue:
    """Pods that wait, in order of readiness, then of arrival."""

    def __init__(self) -> None:
        self._pods: dict[str, Waiting] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: Pod, now_s: float) -> None:
        """Add a new pod, which is ready at once."""
        self._pods[pod.uid] = Waiting(pod)
        self._push(now_s, pod.uid)

    def remove(self, uid: str) -> None:
        """Remove a pod that was placed or that ended."""
        self._pods.pop(uid, None)

    def wake(self, now_s: float) -> None:
        """Let all unschedulable pods be tried when their back-off ends: a pod ended, or a node's
        object changed.
        """
        for uid, waiting in self._pods.items():
            if not waiting.is_woken:
                waiting.is_woken = True
                self._push(max(now_s, waiting.ready_s), uid)

    def due(self, now_s: float) -> Pod | None:
        """Return the next pod to try, or None."""
        while self._heap and self._heap[0][0] <= now_s:
            _, _, uid = heapq.heappop(self._heap)
            waiting = self._pods.get(uid)
            if waiting is not None:
                return waiting.pod
        return None

    def refused(self, uid: str, now_s: float) -> None:
        """Note that the pod was tried and fits nowhere."""
        waiting = self._pods[uid]
        waiting.attempts += 1
        waiting.tried_s, waiting.is_woken = now_s, False
        waiting.ready_s = now_s + min(MOST_S, FIRST_S * 2 ** min(waiting.attempts - 1, DOUBLINGS))
        self._push(now_s + FLUSH_S, uid)

    def next_s(self) -> float | None:
        """Return the time when the next pod is due, None if no pod waits."""
        return self._heap[0][0] if self._heap else None

    def _push(self, due_s: float, uid: str) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (due_s, self._serial, uid))
