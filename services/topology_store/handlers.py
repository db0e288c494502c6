"""The report loop: it reads messages, judges reports, and appends events.

After a conflict it folds that node's stream again and judges the report again, a bounded number of
times. It must not decide which reports are believed (`core`, `validation`, `allowance`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.topology_store import core, following, validation
from services.topology_store.allowance import Allowance
from services.topology_store.core import Accepted, Decision, NodeState
from services.topology_store.following import PREFIX, Nodes
from shared.bus import subjects
from shared.bus.port import Bus, Message
from shared.domain.report import Report
from shared.eventlog.port import Appended, Commit, Draft, EventLog, Fenced, Lease, Outcome
from shared.eventlog.skips import skips
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.cluster_events import NodeEnded
from shared.events.quarantine import QuarantinedStreams
from shared.events.report_events import (
    NodeReportChanged,
    NodeReported,
    NodeReportExpired,
    NodeReportRefused,
)
from shared.runtime.acknowledged import Acknowledged
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.runtime.lent_lease import LentLease
from shared.runtime.projector import Folded, Projector
from shared.telemetry import logs, names
from shared.telemetry.instruments import count
from shared.telemetry.propagation import from_headers, trace_of

ROLE = "topology-store"
MAX_TRIES = 4
# Reports that come meanwhile are judged together: an append costs more than a report.
GATHER_S = 0.05


class ReceivedReport(msgspec.Struct, frozen=True):
    """A report, its size, its trace context, and when it reached the bus (Unix milliseconds)."""

    report: Report
    size_bytes: int
    trace: str
    at_ms: int


class Reports:
    """The report loop. `nodes` is the fold of the report streams by node. `received_s` is when
    the last believed report of each node came, on the monotonic clock."""

    def __init__(
        self,
        log: EventLog,
        held: LentLease,
        bus: Bus,
        clock: Clock,
        exporter_wins: bool = True,
        cell: str = "",
    ) -> None:
        self._cell = cell
        self._held = held
        self._exporter_wins = exporter_wins
        self._log = log
        self._bus = bus
        self._clock = clock
        self._allowance = Allowance()
        self._wall_ms = clock.now_us() // 1000 - int(clock.monotonic_s() * 1000)
        self._out = logs.get("reports")
        self._projector: Projector[Nodes] | None = None
        self._acknowledged = Acknowledged()
        self._quarantined: set[str] = set()
        self.received_s: dict[str, float] = {}
        self.nodes: Nodes = {}

    def follows(self, projector: Projector[Nodes]) -> None:
        self._projector = projector
        self.reset(projector.state)

    @property
    def position(self) -> int:
        """The position up to which the log is folded."""
        return self._projector.position if self._projector is not None else 0

    def reset(self, nodes: Nodes) -> None:
        """Use the state of a fold that begins again, or from a snapshot."""
        self.nodes = nodes
        self._acknowledged.clear()
        self._quarantined.clear()
        for node in nodes:
            self._record(node)

    def quarantine(self, stream: str) -> None:
        """Judge no report of a node if its stream has an event that cannot be folded."""
        node = stream.removeprefix(PREFIX)
        self._quarantined.add(node)
        self.nodes.pop(node, None)

    def folded(self, _nodes: Nodes, folded: Folded) -> None:
        """Note the nodes of folded events as alive, and count their reports.

        Of two stores one appends a report first. For the other the report is not new, but the node
        is alive. Raises Refold if an event that this store appended was lost with its history.
        """
        self._acknowledged.check(folded)
        for envelope, event in folded:
            if envelope.stream.startswith(PREFIX):
                self._record(envelope.stream.removeprefix(PREFIX))
            if isinstance(event, NodeReported | NodeReportChanged):
                self.received_s[envelope.stream.removeprefix(PREFIX)] = self._clock.monotonic_s()
            if isinstance(event, NodeEnded | NodeReportExpired):
                self._release(event.about.node)

    def _record(self, node: str) -> None:
        state = self.nodes.get(node)
        if state is not None and state.report is not None and node not in self.received_s:
            self.received_s[node] = self._clock.monotonic_s()
            self._allowance.record(node, state.report, len(msgspec.json.encode(state.report)))
            self._release(node)

    def _release(self, node: str) -> None:
        """Free the allowance of a node that was removed from the cluster. A node that never had a
        Node object keeps its allowance, so that invented names stay bounded."""
        state = self.nodes.get(node)
        if state is not None and state.is_removed:
            self._allowance.release(node)

    async def run(self) -> None:
        async for messages in self._bus.reports():
            await self.take(messages)
            await self._clock.sleep(GATHER_S)

    async def take(self, messages: Sequence[Message]) -> None:
        """Judge one batch once the fold has reached the end of the log. Several reports of one
        node are judged in order, one in each round."""
        boots = {
            node: self._boot(node)
            for node in (subjects.reporting(message.subject) for message in messages)
        }
        if self._projector is not None:
            await self._projector.wait_live()
        received = [self._read(message) for message in messages]
        await self.judge([report for report in received if report is not None], boots)

    async def judge(
        self, pending: Sequence[ReceivedReport], boots: dict[str, str] | None = None
    ) -> None:
        """Judge valid reports until none remains or too many races are lost. `boots` are the
        boots that were believed when the reports came."""
        if self._cell:
            pending = [received for received in pending if self._is_here(received.report.node)]
        if boots is None:
            boots = {received.report.node: self._boot(received.report.node) for received in pending}
        for _ in range(MAX_TRIES):
            pending = await self._round(pending, boots)
            if not pending:
                return
        for received in pending:
            self._log_contested(received.report)

    def _is_here(self, node: str) -> bool:
        """Return whether the node is of this cell: its log has the Node object."""
        state = self.nodes.get(node)
        return state is not None and bool(state.node_uid)

    def is_last(self, node: str, boot: str, version: int) -> bool:
        """Return whether the node's last report is this version of its object."""
        state = self.nodes.get(node)
        last = state.report if state is not None else None
        return last is not None and (last.boot_id, last.boot_time_ms) == (boot, version)

    def now_ms(self) -> int:
        """Return Unix milliseconds that never jump: the time at the start plus monotonic time."""
        return self._wall_ms + int(self._clock.monotonic_s() * 1000)

    def _read(self, message: Message) -> ReceivedReport | None:
        report = validation.read(message.subject, message.data)
        if not isinstance(report, validation.RefusedReport):
            problem = self._problem_of(report, len(message.data))
            report = validation.RefusedReport(report.node, problem) if problem else report
        if isinstance(report, validation.RefusedReport):
            count(names.REPORTS, verdict="refused")
            node = report.node[: validation.NAME_LIMIT]
            self._out.warning(names.REPORT_REFUSED, node=node, problem=report.problem)
            return None
        now_ms = self.now_ms()
        return ReceivedReport(
            report,
            len(message.data),
            from_headers(message.headers),
            min(message.time_us // 1000 or now_ms, now_ms),
        )

    def _problem_of(self, report: Report, size_bytes: int) -> str:
        state = self.nodes.get(report.node)
        has_node_object = state is not None and bool(state.node_uid)
        now_s = self._clock.monotonic_s()
        problem = self._allowance.problem_of(report, size_bytes, now_s, has_node_object)
        if not problem and report.node in self._quarantined:
            return "the node's stream is quarantined (see /healthz); skip the event to continue"
        return problem

    async def _round(
        self, pending: Sequence[ReceivedReport], boots: dict[str, str]
    ) -> list[ReceivedReport]:
        """Judge the first report of each node and return the reports that remain. Events are
        appended under a lease of this store."""
        lease = await self._held.lease()
        remaining, chosen = [], dict[str, tuple[ReceivedReport, Accepted, NodeState]]()
        for received in pending:
            report = received.report
            if report.node in chosen:
                remaining.append(received)
                continue
            if self._is_overtaken(report, boots[report.node]):
                self._log_contested(report)
                continue
            decision = self._decide(received)
            if isinstance(decision, Accepted):
                chosen[report.node] = (received, decision, self._state_of(report.node))
            else:
                core.note_ignored(self._state_of(report.node), report, decision, received.at_ms)
                self._note_believed(received, decision)
                count(names.REPORTS, verdict=decision.reason)
        commits = [
            self.commit(node, accepted, lease, received.trace)
            for node, (received, accepted, _) in chosen.items()
        ]
        outcomes = await self.append(commits)
        for (received, accepted, state), outcome in zip(chosen.values(), outcomes, strict=True):
            node = received.report.node
            if isinstance(outcome, Appended):
                await self.appended(node, state, accepted, received.at_ms)
                boots[node] = self._boot(node)
                self._log_event(received, accepted)
            elif isinstance(outcome, Fenced):
                self._held.refused(lease)
                remaining.insert(0, received)
            else:
                await self.refold(node)
                remaining.insert(0, received)
        return remaining

    def _decide(self, received: ReceivedReport) -> Decision:
        state = self._state_of(received.report.node)
        if received.report.source == "bus":
            return core.decide(state, received.report, received.at_ms)
        return core.decide_object(state, received.report, self._exporter_wins)

    def _log_event(self, received: ReceivedReport, accepted: Accepted) -> None:
        event, report = accepted.event, received.report
        self._note_believed(received, accepted)
        if isinstance(event, NodeReportRefused):
            count(names.REPORTS, verdict="refused")
            self._out.warning(names.REPORT_REFUSED, node=report.node, problem=event.reason)
            if self._state_of(report.node).locked:
                self._out.error(
                    names.NODE_LOCKED_OUT,
                    node=report.node,
                    problem=core.lockout(report.node, event.reason),
                )
            return
        count(names.REPORTS, verdict="full" if isinstance(event, NodeReported) else "changed")

    def _note_believed(self, received: ReceivedReport, decision: Decision) -> None:
        """Note the node as alive: only a believed report shows that."""
        if decision.alive:
            self.received_s[received.report.node] = self._clock.monotonic_s()
            self._allowance.record(received.report.node, received.report, received.size_bytes)

    def _boot(self, node: str) -> str:
        state = self.nodes.get(node)
        return state.report.boot_id if state is not None and state.report is not None else ""

    def _is_overtaken(self, report: Report, boot: str) -> bool:
        """Return whether a store accepted another boot since this report came, when `boot` was
        believed. The report may be of a boot in between and would supersede the running boot.
        The next report of the running boot counts."""
        return self._boot(report.node) not in ("", report.boot_id, boot)

    def _log_contested(self, report: Report) -> None:
        count(names.REPORTS, verdict="contested")
        problem = "lost the race for its stream; the next report counts"
        self._out.warning(names.REPORT_REFUSED, node=report.node, problem=problem)

    def _state_of(self, node: str) -> NodeState:
        return self.nodes.setdefault(node, core.initial())

    async def appended(self, node: str, judged: NodeState, accepted: Accepted, at_ms: int) -> None:
        """Fold an appended event into the state that it was judged by. If the fold has begun again
        meanwhile (another history), read the stream instead."""
        if self.nodes.get(node) is not judged:
            await self.refold(node)
        elif judged.version <= accepted.expected:
            # Otherwise the fold had the event before its append was answered.
            core.evolve(judged, accepted.event, accepted.expected + 1, at_ms)

    async def refold(self, node: str) -> None:
        """Read the node's stream again, because another process appended to it. The fold reports
        what cannot be read."""
        last = self._state_of(node)
        nodes, quarantined = (
            {node: core.NodeState(newest_ms=last.newest_ms, node_uid=last.node_uid)},
            QuarantinedStreams(await skips(self._log)),
        )
        async for envelope in envelopes_of(self._log, streams.report(node)):
            event = quarantined.event_of(envelope)
            if event is not None:
                following.evolve(nodes, envelope, event)
            elif quarantined.streams:
                return self.quarantine(envelope.stream)
            else:
                following.pass_over(nodes, envelope)
        self.nodes[node] = nodes[node]
        return None

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes = (
            await append_until_answered(self._log, self._clock, self._out, commits)
            if commits
            else []
        )
        if self._projector is not None:
            for commit, outcome in zip(commits, outcomes, strict=True):
                self._acknowledged.keep(commit, outcome, self._projector.position)
        return outcomes

    def commit(self, node: str, accepted: Accepted, lease: Lease, trace: str = "") -> Commit:
        return Commit(
            commit_id=accepted.commit_id,
            role=lease.role,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(streams.report(node), accepted.event, accepted.expected),),
            trace=trace_of(names.SPAN_REPORT, trace, node=node),
            seen=self._projector.place if self._projector is not None else None,
        )
