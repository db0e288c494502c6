"""Histories for `whatif`: a workload of the quality bench, played by the production core, with
every event kept as a log.
"""

from __future__ import annotations

import msgspec

from services.comparison.cells import Cell
from services.comparison.measures import Measures
from services.comparison.row_ledger import LedgerRow
from services.comparison.rows import Reservation
from services.comparison.simulation import Simulation
from services.comparison.truth import TrueNode
from services.comparison.workloads import SCHEDULER, Workload, workload
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.queue.shard import Shard
from services.scheduler.settings import SchedulerSettings, chosen
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.codec import decode
from shared.events.report_events import NodeReported
from tests.ledger.given import pod, report, zone
from tests.scheduler.default.story import ROOMY

BEGIN_US = 1_700_000_000_000_000


def as_here(**changes: object) -> CoreConfig:
    """A scheduler with the default settings and these changes of its cycle."""
    settings = SchedulerSettings(database_url="", scheduler_name=SCHEDULER)
    cycle = msgspec.structs.replace(settings.cycle, **changes)
    return chosen(msgspec.structs.replace(settings, cycle=cycle)).core


async def shared_by_two(pods: int, nodes: int = 4) -> MemoryEventLog:
    """Pods that two schedulers share and decide in turns, on nodes of two zones, each trying its
    own nodes first.
    """
    log = MemoryEventLog("shared")
    seen = [
        (streams.node(name), NodeObserved(name, f"uid-{name}", allocatable=ROOMY))
        for name in _names(nodes)
    ]
    reports = [(streams.report(name), NodeReported(_report(name))) for name in _names(nodes)]
    waiting = [(streams.pod(one.uid), PodObserved(one)) for one in map(_pod, range(pods))]
    await log.append(
        [
            Commit(stream, "observer", 0, BEGIN_US, (Draft(stream, event),))
            for stream, event in seen + reports + waiting
        ]
    )
    leases = [
        lease
        for place in "01"
        if (lease := await log.acquire(f"scheduler/topolog/{place}", place, 60.0)) is not None
    ]
    cores = [SchedulerCore(as_here()) for _ in leases]
    for core, lease in zip(cores, leases, strict=True):
        core.take_shard(Shard(tuple(each.role for each in leases), lease.role))
    for turn in range(pods):
        core, lease = cores[turn % 2], leases[turn % 2]
        for envelope in await log.read(core.ledger.position, 1000):
            core.evolve(envelope, decode(envelope))
        drafts = [proposal.drafts for proposal in core.decide(1, 0.0)]
        await log.append(
            [
                Commit(f"turn {turn}", lease.role, lease.epoch, BEGIN_US + turn, tuple(draft))
                for draft in drafts
            ]
        )
    return log


def _pod(number: int) -> Pod:
    return msgspec.structs.replace(pod(f"p{number}"), scheduler_name=SCHEDULER)


def _names(nodes: int) -> list[str]:
    return [f"n{number}" for number in range(nodes)]


def _report(node: str) -> Report:
    return msgspec.structs.replace(report(zone(0, 8), zone(1, 8)), node=node)


class RecordingRow(LedgerRow):
    """A ledger row that keeps its appends with their times."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config)
        self.kept: list[tuple[str, Event, float]] = []
        self._now_s = 0.0

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        self._now_s = now_s
        super().evolve(stream, event, now_s)

    def reported(self, report: Report, now_s: float) -> None:
        self._now_s = now_s
        super().reported(report, now_s)

    def decide(self, now_s: float) -> list[Reservation]:
        self._now_s = now_s
        return super().decide(now_s)

    def intends(self, pod: Pod, node: str, now_s: float) -> dict[str, str]:
        self._now_s = now_s
        return super().intends(pod, node, now_s)

    def bound(self, pod: Pod, node: str, now_s: float) -> None:
        self._now_s = now_s
        super().bound(pod, node, now_s)

    def _append(self, stream: str, event: Event) -> int:
        self.kept.append((stream, event, self._now_s))
        return super()._append(stream, event)


async def dense(
    seconds: int, config: CoreConfig | None = None, zones: int = 2, nodes: int = 6, speed: int = 1
) -> MemoryEventLog:
    """A log of `seconds` virtual seconds of the dense workload on a few nodes, as if they had
    passed `speed` times faster.
    """
    cell = Cell("dense", nodes, zones, 0.9, "change", "ledger, proof", seconds)
    load = msgspec.structs.replace(workload(cell, None), members=())  # type: ignore[arg-type]
    return await record(cell, load, config or as_here(), speed)


async def record(cell: Cell, load: Workload, config: CoreConfig, speed: int = 1) -> MemoryEventLog:
    """Play the cell, and return the log."""
    nodes = {node.name: TrueNode(node, checkpoint=True) for node in load.nodes}
    row = RecordingRow(config)
    Simulation(cell, load, nodes, row, Measures(cell, nodes, row)).run()
    log = MemoryEventLog("recorded")
    commits = [
        Commit(
            f"c{number}",
            "scheduler",
            0,
            BEGIN_US + int(at_s * 1e6 / speed),
            (Draft(stream, event),),
        )
        for number, (stream, event, at_s) in enumerate(row.kept)
    ]
    for start in range(0, len(commits), 500):
        await log.append(commits[start : start + 500])
    return log
