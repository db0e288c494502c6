"""Words for tests of the scheduler's core: one log, any number of cores that fold it, nodes,
reports and pods in few words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.explain.wording import without_preemption
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Pod
from shared.domain.report import Report, Zone
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Appended, Commit, Draft, Duplicate, Outcome
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import (
    NodeMarkedDirty,
    NodeReconciled,
    PodReserved,
    PodVerdictChanged,
)
from shared.ledger.state import LedgerNode
from tests.ledger.given import GIB, TRACKED

ROOMY = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110, "vendor.com/gpu": 8}


EventT = TypeVar("EventT", bound=Event)


class Story:
    """A log and `schedulers` cores on it. Events are appended to the log; cores read it before they
    decide.
    """

    def __init__(self, schedulers: int = 1, dirty_after: int = 3, **cycle: object) -> None:
        self.log = MemoryEventLog("story", lambda: 0.0)
        self.role = "scheduler"
        config = CoreConfig(cycle=CycleConfig(**cycle), dirty_after_rejections=dirty_after)  # type: ignore[arg-type]
        self.cores = [SchedulerCore(config) for _ in range(schedulers)]

    # -- the log
    # ----------------------------------------------------------------------------------------------

    async def tell(self, stream: str, event: Event) -> int:
        """Append one event of another writer and let every core fold it; return its position."""
        command = f"told/{await self.log.head()}"
        outcome = (await self.log.append([Commit(command, "test", 0, 0, (Draft(stream, event),))]))[
            0
        ]
        assert isinstance(outcome, Appended)
        await self.fold()
        return outcome.last

    async def fold(self) -> None:
        """Let every core fold the new events."""
        for core in self.cores:
            for envelope in await self.log.read(core.ledger.position):
                core.evolve(envelope, decode(envelope))

    async def append(self, core: SchedulerCore, proposals: Sequence[Proposal]) -> list[Outcome]:
        """Append proposals and give the core their outcome, as the deciding loop does."""
        commits = [
            Commit(p.commit_id, self.role, 0, 0, p.drafts, p.correlation, p.causation)
            for p in proposals
        ]
        outcomes = await self.log.append(commits)
        await self.fold()
        for proposal, outcome in zip(proposals, outcomes, strict=True):
            if not isinstance(outcome, Appended):
                core.conflicted(proposal)
        return outcomes

    async def decide(self, limit: int = 100) -> dict[str, str]:
        """Let the first core decide and append until it has no proposals. Return the nodes of its
        reservations by uid.
        """
        core = self.cores[0]
        reserved: dict[str, str] = {}
        for _ in range(20):
            proposals = core.decide(limit)
            if not proposals and not core.queue.ready_count():
                return reserved
            for proposal, outcome in zip(
                proposals, await self.append(core, proposals), strict=True
            ):
                if isinstance(outcome, Appended | Duplicate) and proposal.node and proposal.uid:
                    reserved[proposal.uid] = proposal.node
        raise AssertionError("the core does not come to rest")

    async def events(self, kind: type[EventT]) -> list[EventT]:
        """Return all events of one type in the log."""
        return [
            event
            for envelope in await self.log.read(0)
            if isinstance(event := decode(envelope), kind)
        ]

    # -- words
    # ----------------------------------------------------------------------------------------------

    async def node(self, name: str = "n1", uid: str = "", **fields: object) -> None:
        observed = {"allocatable": ROOMY, "kubelet_version": "v1.36.2", **fields}
        await self.tell(streams.node(name), NodeObserved(name, uid or f"uid-{name}", **observed))  # type: ignore[arg-type]

    async def report(
        self, *zones: Zone, node: str = "n1", at: int = 1, boot: str = "boot-1", **fields: object
    ) -> None:
        settings: dict[str, object] = {
            "policy": "single-numa-node",
            "scope": "container",
            "tracked": TRACKED,
            "placements": (),
            **fields,
        }
        made = Report(node, boot, at, "exporter-1", zones=zones, **settings)  # type: ignore[arg-type]
        await self.tell(streams.report(node), NodeReported(made))

    async def arrives(self, *pods: Pod) -> None:
        """Append pods that wait to be scheduled."""
        for arriving in pods:
            await self.tell(streams.pod(arriving.uid), PodObserved(arriving))

    async def seen_bound(self, made: Pod, node: str = "n1", **fields: object) -> None:
        """Append a pod that is observed on a node, whichever scheduler bound it."""
        await self.tell(streams.pod(made.uid), PodObserved(made, node=node, **fields))  # type: ignore[arg-type]

    async def ends(self, made: Pod) -> None:
        await self.tell(streams.pod(made.uid), PodEnded(made.uid, "deleted"))

    async def node_goes(self, name: str = "n1") -> None:
        await self.tell(streams.node(name), NodeEnded(name, f"uid-{name}", "deleted"))

    async def verdicts(self, made: Pod) -> list[str]:
        """Return the messages of all the pod's outcomes, without the sentence about preemption."""
        changes = await self.events(PodVerdictChanged)
        return [
            without_preemption(event.message)
            for event in changes
            if isinstance(event, PodVerdictChanged) and event.uid == made.uid
        ]

    async def reservations(self) -> list[tuple[str, str]]:
        """Return (uid, node) of all reservations, in the log's order."""
        return [
            (event.uid, event.node)
            for event in await self.events(PodReserved)
            if isinstance(event, PodReserved)
        ]

    async def marks(self) -> list[NodeMarkedDirty]:
        return [
            event
            for event in await self.events(NodeMarkedDirty)
            if isinstance(event, NodeMarkedDirty)
        ]

    async def reconciliations(self) -> list[NodeReconciled]:
        return [
            event
            for event in await self.events(NodeReconciled)
            if isinstance(event, NodeReconciled)
        ]

    def ledger_node(self, name: str = "n1") -> LedgerNode:
        return self.cores[0].ledger.nodes[name]

    def ready(self) -> list[str]:
        """Return the uids of the pods that the first core would decide next, in order, after the
        events so far took effect.
        """
        core = self.cores[0]
        assert [each for each in core.decide(0) if each.correlation != streams.DEMAND] == []
        return [uid for _, _, uid in sorted(core.queue._heap) if uid in core.queue._ready]


def foreign(made: Pod) -> Pod:
    """Return the pod with the name of another scheduler."""
    return msgspec.structs.replace(made, scheduler_name="default-scheduler")
