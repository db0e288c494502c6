"""The queue of kube-scheduler as far as waiting times depend on it: back-off from 1 to 10 s, woken
by events, flushed after 5 minutes (scheduling_queue.go, Kubernetes 1.35: podInitialBackoff 1 s,
podMaxBackoff 10 s, unschedulable after 5 min)."""

from __future__ import annotations

import heapq

import msgspec

from shared.domain.pod import Pod

FIRST_S, MOST_S, FLUSH_S = 1.0, 10.0, 300.0
# So many doublings of FIRST_S reach MOST_S; more would overflow a float in the end.
DOUBLINGS = 4


class Waiting(msgspec.Struct):
    """A pod that is not placed; `at_s` is its last attempt, `ready_s` the end of its back-off."""

    pod: Pod
    at_s: float = 0.0
    ready_s: float = 0.0
    attempts: int = 0
    stirred: bool = True


class BackoffQueue:
    """Pods in order of readiness, then arrival. `stir` is an event that moves unschedulable
    pods.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Waiting] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: Pod, now_s: float) -> None:
        """A new pod, ready at once."""
        self._pods[pod.uid] = Waiting(pod)
        self._push(now_s, pod.uid)

    def remove(self, uid: str) -> None:
        """The pod was placed or ended."""
        self._pods.pop(uid, None)

    def stir(self, now_s: float) -> None:
        """A pod ended, or a node's object changed: all pods that wait for an event may be tried
        when their back-off ends.
        """
        for uid, waiting in self._pods.items():
            if not waiting.stirred:
                waiting.stirred = True
                self._push(max(now_s, waiting.ready_s), uid)

    def due(self, now_s: float) -> Pod | None:
        """The next pod to try, or None."""
        while self._heap and self._heap[0][0] <= now_s:
            _, _, uid = heapq.heappop(self._heap)
            waiting = self._pods.get(uid)
            if waiting is not None:
                return waiting.pod
        return None

    def refused(self, uid: str, now_s: float) -> None:
        """The pod was tried and fits nowhere."""
        waiting = self._pods[uid]
        waiting.attempts += 1
        waiting.at_s, waiting.stirred = now_s, False
        waiting.ready_s = now_s + min(MOST_S, FIRST_S * 2 ** min(waiting.attempts - 1, DOUBLINGS))
        self._push(now_s + FLUSH_S, uid)

    def next_s(self) -> float | None:
        """The time when the next pod is due."""
        return self._heap[0][0] if self._heap else None

    def _push(self, at_s: float, uid: str) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at_s, self._serial, uid))
