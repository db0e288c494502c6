"""A scheduler that lives for years: of pods that ended and of nodes that left, nothing is kept."""

from __future__ import annotations

import msgspec

from services.scheduler.core import CoreConfig, SchedulerCore
from shared.domain.report import Report
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported, NodeReportExpired
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.ledger.given import pod, report, zone


class Years:
    """A scheduler core that follows a log. `life` appends all events of one rented machine and its
    one pod.
    """

    def __init__(self) -> None:
        self.core = SchedulerCore(CoreConfig())
        self._versions: dict[str, int] = {}
        self._position = 0

    def tell(self, stream: str, event: Event) -> None:
        self._position += 1
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        trace = f"trace-{self._position}"
        self.core.evolve(
            Envelope(
                self._position,
                stream,
                version,
                type_of(event),
                1,
                encode(event),
                0,
                "test",
                0,
                trace,
            ),
            event,
        )

    def life(self, number: int) -> None:
        name, made = f"rented-{number}", pod(f"p{number}", cpus=2)
        node, life, reports = streams.node(name), streams.pod(made.uid), streams.report(name)
        self.tell(
            node,
            NodeObserved(
                name, f"uid-{number}", allocatable={"cpu": 64000, "memory": 2**38, "pods": 110}
            ),
        )
        self.tell(reports, NodeReported(self._report(name)))
        self.tell(life, PodObserved(made))
        self.tell(life, PodReserved(made.uid, name))
        self.tell(node, NodeCharged(name, made.uid))
        self.tell(life, PodRunning(made.uid, name))
        self.tell(life, PodEnded(made.uid, "deleted", node=name))
        self.tell(node, NodeEnded(name, f"uid-{number}", "deleted"))
        self.tell(reports, NodeReportExpired(name, 60))

    def left_before_its_pod(self, number: int) -> None:
        """Append the same events, but remove the node before its pod ends."""
        name, made = f"early-{number}", pod(f"e{number}", cpus=2)
        node, life = streams.node(name), streams.pod(made.uid)
        self.tell(
            node,
            NodeObserved(
                name, f"uid-{number}", allocatable={"cpu": 64000, "memory": 2**38, "pods": 110}
            ),
        )
        self.tell(life, PodObserved(made))
        self.tell(node, NodeCharged(name, made.uid))
        self.tell(node, NodeEnded(name, f"uid-{number}", "deleted"))
        self.tell(life, PodEnded(made.uid, "deleted", node=name))

    @staticmethod
    def _report(name: str) -> Report:
        return msgspec.structs.replace(report(zone(0, 8), zone(1, 8)), node=name)

    def kept(self) -> tuple[int, int, int]:
        """Return the size of a snapshot in bytes without its position, and the numbers of traces
        and of entries in the queue's heap.
        """
        state = msgspec.json.encode(self.core.folded).replace(str(self._position).encode(), b"")
        core = self.core
        return len(state), len(core.traceparents), len(core.queue._heap)


def test_nodes_that_left_and_pods_that_ended_leave_nothing_behind() -> None:
    years = Years()
    years.life(0)
    state, traces, _ = years.kept()
    for number in range(1, 1500):
        years.life(number)
    assert years.kept()[:2] == (state, traces)
    assert years.kept()[2] <= 1024 + 1, "who decides nothing pops nothing, and yet"


def test_a_node_that_left_before_its_last_pod_leaves_nothing_behind_either() -> None:
    years = Years()
    years.life(0)
    state, *_ = years.kept()
    for number in range(20):
        years.left_before_its_pod(number)
    assert years.kept()[0] == state
