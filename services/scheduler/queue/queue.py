"""The scheduling queue: which pod is decided next, and which waiting pods a change may help.

1. Pods are decided by priority, then by arrival (their position in the log), as in kube-scheduler.
2. If more than FAIR_FROM pods of the highest priority are ready, namespaces take turns, and pod
   classes within a namespace (`_FairOrder`), so that a flood of pods delays other pods by a few
   decisions instead of by all of them.
3. Pods that fit nowhere wait, grouped by pod class. A change wakes one pod of a group, and the next
   one when that pod was placed, so that a freed zone does not wake thousands in vain.
4. Waiting pods are tried again every 5 minutes although nothing happened (`UnschedulableFlush`).

The order depends on nothing but the sequence of calls. Must not know nodes or a clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from services.scheduler.state.cluster_objects import ClusterObjects
from shared.domain.pod import Pod
from shared.events.surroundings_events import SurroundingEvent, stream_of

ClassKey = str
# Up to so many ready pods of one priority are decided in order of arrival.
FAIR_FROM = 16
# Heap entries of removed pods that are kept beyond twice the number of ready pods.
MOST_STALE_ENTRIES = 1024
# The key under which the volumes constraint keeps a pod's claims.
VOLUMES = "volumes"

Flow = TypeVar("Flow", bound=Hashable)


class Queue:
    """Ready pods by priority and arrival, waiting pods by class. Pods are identified by uid."""

    def __init__(self, class_of: Callable[[Pod], ClassKey]) -> None:
        self._class_of = class_of
        self._heap: list[tuple[int, int, str]] = []
        self._ready: dict[str, Pod] = {}
        self._by_priority: dict[int, _FairOrder] = {}
        self._waiting: dict[ClassKey, dict[str, Pod]] = {}
        self._classes: dict[str, ClassKey] = {}
        self._arrivals: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + self.waiting_count()

    def __contains__(self, uid: str) -> bool:
        return uid in self._arrivals

    def ready_count(self) -> int:
        """Return how many pods are to be decided."""
        return len(self._ready)

    def waiting_count(self) -> int:
        """Return how many pods wait for a change."""
        return sum(len(group) for group in self._waiting.values())

    def is_waiting(self, uid: str) -> bool:
        """Return whether the pod waits for a change."""
        return uid in self._classes

    def add(self, pod: Pod, arrival: int) -> None:
        """Make the pod ready, with its newest spec."""
        self.remove(pod.uid)
        self._arrivals[pod.uid] = arrival
        self._ready[pod.uid] = pod
        heapq.heappush(self._heap, (-pod.priority, arrival, pod.uid))
        order = self._by_priority.setdefault(pod.priority, _FairOrder())
        order.add(pod.namespace, self._class_of(pod), arrival, pod.uid)

    def remove(self, uid: str) -> None:
        """Forget the pod: it was placed or ended. Its heap entry is skipped when it comes up."""
        pod = self._ready.pop(uid, None)
        if pod is not None:
            self._drop_from_order(pod)
        class_key = self._classes.pop(uid, None)
        if class_key is not None:
            group = self._waiting[class_key]
            del group[uid]
            if not group:
                del self._waiting[class_key]
        self._arrivals.pop(uid, None)
        if len(self._heap) > MOST_STALE_ENTRIES + 2 * len(self._ready):
            # A standby never pops, so its heap would grow without bound.
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _drop_from_order(self, pod: Pod) -> None:
        order = self._by_priority[pod.priority]
        order.remove(pod.uid)
        if not order:
            del self._by_priority[pod.priority]

    def _is_current(self, entry: tuple[int, int, str]) -> bool:
        _, arrival, uid = entry
        return uid in self._ready and self._arrivals.get(uid) == arrival

    def pop(self) -> tuple[Pod, int] | None:
        """Return the next pod to decide and its arrival, or None. The caller parks it, or an event
        removes it.
        """
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        priority, uid = -self._heap[0][0], self._heap[0][2]
        order = self._by_priority[priority]
        if len(order) > FAIR_FROM:
            uid = order.next()
        else:
            heapq.heappop(self._heap)
        pod = self._ready.pop(uid)
        self._drop_from_order(pod)
        return pod, self._arrivals[uid]

    def park(self, pod: Pod, arrival: int) -> None:
        """Let the pod wait for a change: it fits nowhere now."""
        class_key = self._class_of(pod)
        self._classes[pod.uid] = class_key
        self._arrivals[pod.uid] = arrival
        self._waiting.setdefault(class_key, {})[pod.uid] = pod

    def waiting_classes(self) -> list[ClassKey]:
        """Return the classes of waiting pods, in order of arrival of the class."""
        return list(self._waiting)

    def first_waiting(self, class_key: ClassKey) -> Pod | None:
        """Return one waiting pod of the class."""
        return next(iter(self._waiting.get(class_key, {}).values()), None)

    def waiting_uids(self) -> list[str]:
        """Return all waiting pods, class by class."""
        return [uid for group in self._waiting.values() for uid in group]

    def wake_one(self, class_key: ClassKey) -> bool:
        """Make the first waiting pod of the class ready (highest priority, then arrival). False if
        none waits.
        """
        group = self._waiting.get(class_key)
        if not group:
            return False
        uid = min(group, key=lambda waiting: (-group[waiting].priority, self._arrivals[waiting]))
        self.add(group[uid], self._arrivals[uid])
        return True

    def wake(self, uid: str) -> None:
        """Make one pod ready if it waits."""
        class_key = self._classes.get(uid)
        if class_key is not None:
            self.add(self._waiting[class_key][uid], self._arrivals[uid])

    def wake_all(self) -> None:
        """Make every waiting pod ready."""
        for uid in self.waiting_uids():
            self.wake(uid)


class _FairOrder:
    """Ready pods of one priority: namespaces take turns, then classes within a namespace."""

    def __init__(self) -> None:
        self._namespaces: deque[str] = deque()
        self._classes: dict[str, _Turns[ClassKey]] = {}
        self._pods: dict[tuple[str, ClassKey], list[tuple[int, str]]] = {}
        self._ready: dict[str, tuple[str, ClassKey, int]] = {}
        self._removed = 0

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, namespace: str, class_key: ClassKey, arrival: int, uid: str) -> None:
        self._ready[uid] = namespace, class_key, arrival
        if namespace not in self._classes:
            self._namespaces.append(namespace)
            self._classes[namespace] = _Turns()
        self._classes[namespace].add(class_key)
        heapq.heappush(self._pods.setdefault((namespace, class_key), []), (arrival, uid))

    def remove(self, uid: str) -> None:
        del self._ready[uid]
        self._removed += 1
        if self._removed > MOST_STALE_ENTRIES + 2 * len(self._ready):
            self._drop_stale_entries()

    def _drop_stale_entries(self) -> None:
        self._removed = 0
        self._pods = {flow: [] for flow in self._pods}
        for uid, (namespace, class_key, arrival) in self._ready.items():
            self._pods[namespace, class_key].append((arrival, uid))
        for pods in self._pods.values():
            heapq.heapify(pods)

    def next(self) -> str:
        """Return the pod whose turn it is; the caller removes it. At least one must be left."""
        while True:
            namespace = self._namespaces[0]
            classes = self._classes[namespace]
            class_key = classes.next()
            if class_key is None:
                self._namespaces.popleft()
                del self._classes[namespace]
                continue
            uid = self._pop_current(namespace, class_key)
            if uid is None:
                classes.drop(class_key)
                continue
            self._namespaces.rotate(-1)
            return uid

    def _pop_current(self, namespace: str, class_key: ClassKey) -> str | None:
        pods = self._pods[namespace, class_key]
        while pods:
            arrival, uid = heapq.heappop(pods)
            if self._ready.get(uid) == (namespace, class_key, arrival):
                return uid
        del self._pods[namespace, class_key]
        return None


class _Turns(dict[Flow, None]):
    """Flows that take turns, as in fq_codel (RFC 8290): a flow that has had no turn yet goes before
    those that had one.

    Of the flows without a turn every other one is the newest instead of the oldest: a pod that
    comes after thousands of distinct classes does not wait for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._new: deque[Flow] = deque()
        self._old: deque[Flow] = deque()
        self._turn = 0

    def add(self, flow: Flow) -> None:
        """Let the flow take turns, unless it does."""
        if flow not in self:
            self[flow] = None
            self._new.append(flow)

    def drop(self, flow: Flow) -> None:
        """Take the flow out: it is empty. It had the last turn."""
        self.pop(flow, None)
        self._old.pop()

    def next(self) -> Flow | None:
        """Return the flow whose turn it is; None if there is none."""
        self._turn += 1
        if self._new and (self._turn % 3 or not self._old):
            flow = self._new.pop() if self._turn % 3 == 2 else self._new.popleft()
        elif self._old:
            flow = self._old.popleft()
        else:
            return None
        self._old.append(flow)
        return flow


# Time between the beginnings of two rounds; a round that takes longer is followed at once. As in
# kube-scheduler 1.36 (flushUnschedulablePodsLeftover).
EVERY_S = 300.0
# Pods, and the time until the next ones: at 5,000 nodes a futile decision costs up to 10 ms.
AT_MOST, WITHIN_S = 5, 1.0


class UnschedulableFlush:
    """Makes waiting pods ready again now and then, although no event may have helped them.

    It keeps their conditions true, because nodes also change for the worse, and such a change wakes
    no pod. And it bounds the damage if a rule that wakes pods has a gap. It works only while no pod
    is ready, and on a few pods at a time.
    """

    def __init__(self) -> None:
        self._round: list[str] = []
        self._next_round_s: float | None = None
        self._next_pods_s = 0.0

    def turn(self, queue: Queue, now_s: float) -> None:
        """Make the next few ready, if it is time; `now_s` is monotonic."""
        if self._next_round_s is None:
            self._next_round_s = now_s + EVERY_S
        if not self._round and now_s >= self._next_round_s:
            self._next_round_s = now_s + EVERY_S
            self._round = queue.waiting_uids()[::-1]
        if self._round and now_s >= self._next_pods_s and not queue.ready_count():
            self._next_pods_s = now_s + WITHIN_S
            for _ in range(min(AT_MOST, len(self._round))):
                queue.wake(self._round.pop())


class ClusterChanges:
    """Queueing hints for cluster objects: the volumes, claims, limits, namespaces and nominations
    that changed since the last look, by kind. Hints for nodes are `Placing.waiting_could_fit`."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def note(self, event: SurroundingEvent) -> None:
        """Note one change."""
        kind, _, name = stream_of(event).partition("/")
        self._names.setdefault(kind, set()).add(name)

    def concerns(self, pod: Pod, cluster_objects: ClusterObjects) -> bool:
        """Return whether the change may help the pod. A namespace may concern every pod, because
        rules of running pods select new pods by the labels of their namespace; so may a nomination.
        """
        if self._names.keys() & {"namespace", "nomination"}:
            return True
        claims: list[str] = pod.constraints.kept.get(VOLUMES) or []
        if claims and "csinode" in self._names:
            return True
        changed_claims = self._names.get("claim", set())
        changed_volumes = self._names.get("volume", set())
        for name in claims:
            claim = cluster_objects.claims.get(name)
            if name in changed_claims or (claim is not None and claim.volume in changed_volumes):
                return True
        return False


class Waking:
    """Changes that no round has looked at yet, and the round under way: its changes, and the
    classes that are left."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.cluster_changes = ClusterChanges()
        self.classes: list[str] = []
        self.round_nodes: list[str] = []
        self.round_changes = ClusterChanges()

    def start_round(self, queue: Queue) -> None:
        """Begin a round if the last one has ended and something changed."""
        if self.classes or not (self.nodes or self.cluster_changes):
            return
        self.classes = queue.waiting_classes()[::-1]
        self.round_nodes, self.nodes = sorted(self.nodes), set()
        self.round_changes, self.cluster_changes = self.cluster_changes, ClusterChanges()
