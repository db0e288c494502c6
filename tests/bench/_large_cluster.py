"""Kubelets, exporters and watches of a large cluster, in one process: what they would append and
publish. A kubelet puts a pod into the first zone with room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from shared.bus import subjects
from shared.bus.port import Message
from shared.domain.pod import Container, Pod
from shared.domain.report import Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.resources import Amounts
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.report_events import NodeReported

GIB = 1 << 30
SIZES = {"cpu": 32_000, "memory": 128 * GIB}
Events = list[tuple[str, Event]]
_encoder = msgspec.json.Encoder()


class Kubelet:
    """One node: the pods in each zone, and what its exporter reports."""

    def __init__(self, name: str, zones: int) -> None:
        self.name = name
        self._free = [dict(SIZES) for _ in range(zones)]
        self._placed: dict[str, tuple[int, Amounts, Placement]] = {}

    def admit(self, pod: Pod) -> bool:
        """Return whether a zone has room for the pod."""
        amounts = pod.containers[0].requests
        for zone, free in enumerate(self._free):
            if all(free[name] >= amount for name, amount in amounts.items()):
                self._take(zone, amounts, 1)
                zoned = tuple(
                    ZonedAmount(name, (zone,), amount) for name, amount in sorted(amounts.items())
                )
                placement = Placement(pod.namespace, pod.name, "c", zoned)
                self._placed[pod.uid] = zone, amounts, placement
                return True
        return False

    def end(self, uid: str) -> None:
        """Free what the pod holds."""
        zone, amounts, _ = self._placed.pop(uid)
        self._take(zone, amounts, -1)

    def _take(self, zone: int, amounts: Amounts, sign: int) -> None:
        for name, amount in amounts.items():
            self._free[zone][name] -= sign * amount

    def object(self) -> NodeObserved:
        whole = {name: size * len(self._free) for name, size in SIZES.items()}
        return NodeObserved(self.name, f"uid-{self.name}", allocatable=whole | {"pods": 250})

    def report(self, number: int) -> Report:
        """Return the report with this number."""
        zones = tuple(
            Zone(
                zone,
                {name: ZoneResource(size, size, free[name]) for name, size in SIZES.items()},
            )
            for zone, free in enumerate(self._free)
        )
        return Report(
            self.name,
            "boot",
            number,
            "exporter",
            zones=zones,
            placements=tuple(placement for _, _, placement in self._placed.values()),
            policy="single-numa-node",
            scope="container",
            tracked=("cpu", "memory"),
        )


class LargeCluster:
    """All nodes and their pods. `rejected` counts pods for which their node had no room."""

    def __init__(self, nodes: int, zones: int) -> None:
        self.kubelets = {f"n{number}": Kubelet(f"n{number}", zones) for number in range(nodes)}
        self._order = deque(self.kubelets)
        self._running: deque[tuple[str, str]] = deque()
        self._waiting: dict[str, Pod] = {}
        self._number = self._reports = 0
        self.rejected = 0

    @property
    def live(self) -> int:
        """The number of pods that run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """The number of pods that are not bound yet."""
        return len(self._waiting)

    def full(self, pods: int) -> Iterator[tuple[str, Event]]:
        """Yield the nodes, with this many running pods in all, and their reports."""
        names = list(self.kubelets)
        for number, name in enumerate(names):
            kubelet = self.kubelets[name]
            yield streams.node(name), kubelet.object()
            for _ in range(number, pods, len(names)):
                pod = self._pod()
                if kubelet.admit(pod):
                    self._running.append((pod.uid, name))
                    yield streams.pod(pod.uid), PodObserved(pod, node=name, phase="Running")
            yield streams.report(name), NodeReported(kubelet.report(1))
        self._reports = 1

    def arrive(self, pods: int) -> Events:
        """Return the observation of so many new pods."""
        arrived = [self._pod() for _ in range(pods)]
        self._waiting.update({pod.uid: pod for pod in arrived})
        return [(streams.pod(pod.uid), PodObserved(pod)) for pod in arrived]

    def bound(self, uid: str, node: str) -> Events:
        """Let the node's kubelet admit a pod."""
        pod = self._waiting.pop(uid, None)
        if pod is None:
            return []
        if not self.kubelets[node].admit(pod):
            self.rejected += 1
            return [(streams.pod(uid), PodEnded(uid, "failed", node))]
        self._running.append((uid, node))
        return [(streams.pod(uid), PodRunning(uid, node))]

    def end(self, pods: int) -> Events:
        """End the oldest pods."""
        ended: Events = []
        for uid, node in [self._running.popleft() for _ in range(min(pods, self.live))]:
            self.kubelets[node].end(uid)
            ended.append((streams.pod(uid), PodEnded(uid, "succeeded", node)))
        return ended

    def reports(self, nodes: int) -> list[Message]:
        """Return the reports of the nodes whose turn it is."""
        self._reports += 1
        messages = []
        for name in [self._order[number] for number in range(min(nodes, len(self._order)))]:
            report = self.kubelets[name].report(self._reports)
            messages.append(Message(subjects.report(name), _encoder.encode(report)))
        self._order.rotate(-len(messages))
        return messages

    def _pod(self) -> Pod:
        self._number += 1
        uid = f"uid-{self._number}"
        amounts = {"cpu": (1 + self._number % 4) * 1000, "memory": GIB}
        containers = (Container("c", "app", amounts, amounts),)
        name = f"p{self._number}"
        return Pod(uid, "bench", name, "Guaranteed", containers, scheduler_name="topolog")
