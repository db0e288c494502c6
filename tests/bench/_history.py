"""A history of a busy cluster, made in bulk: pods arrive, are placed, are confirmed by a report,
and end when as many others have arrived as the nodes hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

import msgspec

from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.eventlog.chain import BEGINNING, linked
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import CATALOG, Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.ledger.given import container, held, pod, report, zone

BEGIN_US = 1_700_000_000_000_000
CPUS, ZONES, PODS_IN_ZONE, ZONE_CPUS = 4, 2, 6, 32
BLOCK = 2_000
EVENTS_A_POD = 8
# The version of a pod's stream while the pod runs.
VERSION_RUNNING = 5


class History:
    """Writes the events. A pod's uid and name follow from its number. `live` pods live at once."""

    def __init__(self, nodes: int, pods_per_s: float) -> None:
        self._nodes, self._pod_us = nodes, int(1_000_000 / pods_per_s)
        self.live = nodes * ZONES * PODS_IN_ZONE
        self._versions: Counter[str] = Counter()
        self._chain, self._now_us = BEGINNING, BEGIN_US
        self.position = 0

    def begin_at(self, number: int, chain: bytes) -> None:
        """Begin with the events of this pod, after the event with this chain."""
        self.position, self._chain = self.events(number), chain
        for node in range(self._nodes):
            pods = len(range(node, number, self._nodes))
            for stream in (streams.node(f"n{node}"), streams.report(f"n{node}")):
                self._versions[stream] = 1 + pods
        for live in range(max(0, number - self.live), number):
            self._versions[streams.pod(uid_of(live))] = VERSION_RUNNING

    def of_nodes(self) -> list[Envelope]:
        """Return the first events."""
        return [row for number in range(self._nodes) for row in self._node(number)]

    def of_pod(self, number: int) -> list[Envelope]:
        """Return the events that this pod's arrival brings; those of lower numbers come first."""
        self._now_us = BEGIN_US + number * self._pod_us
        return list(self._pod(number))

    def blocks(self, pods: int, first: int = 0) -> Iterator[list[Envelope]]:
        """Yield the events of the pods with these numbers, in order."""
        block: list[Envelope] = [] if first else self.of_nodes()
        for number in range(first, pods):
            block += self.of_pod(number)
            if len(block) >= BLOCK:
                yield block
                block = []
        if block:
            yield block

    def events(self, pods: int) -> int:
        """Return how many events `blocks` yields."""
        return 2 * self._nodes + 7 * pods + max(0, pods - self.live)

    def position_of(self, number: int) -> int:
        """Return the first position of this pod or later."""
        return self.events(number) + 1

    def number_at(self, position: int) -> int:
        """Return the pod to which the event at this position belongs, 0 for the first events."""
        return bisect_left(range(position), position, key=lambda number: self.events(number + 1))

    def _node(self, number: int) -> list[Envelope]:
        name = f"n{number}"
        seen = NodeObserved(
            name,
            f"uid-{name}",
            labels={"kubernetes.io/hostname": name},
            allocatable={"cpu": 64_000, "memory": 1 << 38, "pods": 110},
            ready=True,
        )
        return [
            self._row(streams.node(name), seen, f"node/{name}"),
            self._row(streams.report(name), NodeReported(self._report(name)), f"report/{name}"),
        ]

    def _report(self, name: str) -> Report:
        zones = [zone(number, ZONE_CPUS) for number in range(ZONES)]
        return msgspec.structs.replace(report(*zones, tracked=("cpu",)), node=name)

    def _pod(self, number: int) -> Iterator[Envelope]:
        made, node, zone_id = pod_of(number), *self._where(number)
        stream, uid = streams.pod(made.uid), made.uid
        ended_pod = number - self.live
        if ended_pod >= 0:
            ended = uid_of(ended_pod)
            yield self._row(streams.pod(ended), PodEnded(ended, "succeeded", node), f"{ended}/end")
            del self._versions[streams.pod(ended)]
        yield self._row(stream, PodObserved(made), f"{uid}/seen")
        reserved = self.position + 1
        chosen = PodReserved(
            uid,
            node,
            self._versions[streams.report(node)],
            based_on=self.position,
            score=50,
            candidates=self._nodes,
            predicted={"c": (zone_id,)},
            certain=True,
            config="bench",
            code="bench",
        )
        yield self._row(stream, chosen, f"{uid}/reserve")
        charge = NodeCharged(node, uid, {zone_id: {"cpu": CPUS * 1000}})
        yield self._row(streams.node(node), charge, f"{uid}/reserve")
        intent = BindIntended(uid, made.namespace, made.name, node, reserved)
        yield self._row(stream, intent, f"{uid}/intend")
        yield self._row(stream, PodBound(uid, node), f"{uid}/bind")
        yield self._row(streams.report(node), self._change(number, node, zone_id), f"{uid}/report")
        yield self._row(stream, PodRunning(uid, node), f"{uid}/run")

    def _where(self, number: int) -> tuple[str, int]:
        return f"n{number % self._nodes}", number // self._nodes % ZONES

    def _change(self, number: int, node: str, zone_id: int) -> Event:
        number_before = number - self.live
        on_zone = min(PODS_IN_ZONE, number // (self._nodes * ZONES) + 1)
        return NodeReportChanged(
            node,
            "boot-1",
            number + 2,
            available={zone_id: {"cpu": (ZONE_CPUS - on_zone * CPUS) * 1000}},
            listed=(held(f"pod-{number}", zone_id, CPUS),),
            unlisted=(f"ns/pod-{number_before}",) if number_before >= 0 else (),
        )

    def _row(self, stream: str, event: Event, commit_id: str) -> Envelope:
        self._versions[stream] += 1
        self.position += 1
        row = Envelope(
            self.position,
            stream,
            self._versions[stream],
            type_of(event),
            CATALOG[type_of(event)].schema,
            encode(event),
            self._now_us,
            "bench",
            0,
            commit_id,
        )
        self._chain = linked(self._chain, row)
        return msgspec.structs.replace(row, chain=self._chain)


def pod_of(number: int) -> Pod:
    """Return the pod with this number."""
    return pod(name_of(number), container("c", CPUS), uid=uid_of(number))


def name_of(number: int) -> str:
    return f"pod-{number}"


def uid_of(number: int) -> str:
    return f"uid-{name_of(number)}"
