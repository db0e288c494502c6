"""The report loop: messages in, judged, appended; a conflict refolds that node's stream and judges
again, a bounded number of times. Must not decide what a report is worth (`core`, `validation`,
`allowance`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.topology_store import core, following, validation
from services.topology_store.allowance import Allowance
from services.topology_store.core import Accepted, Decision, Known
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


class Heard(msgspec.Struct, frozen=True):
    """A report on its way: its size, trace context, and when it reached the bus (Unix
    milliseconds).
    """

    report: Report
    size_bytes: int
    trace: str
    at_ms: int


class Reports:
    """What the topology-store knows, and how it learns. `known` is the fold of the report streams,
    by node; `heard_s` when each node was last believed, on the monotonic clock."""

    def __init__(
        self, log: EventLog, held: LentLease, bus: Bus, clock: Clock, exporter_wins: bool = True
    ) -> None:
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
        self.heard_s: dict[str, float] = {}
        self.known: Nodes = {}

    def follows(self, projector: Projector[Nodes]) -> None:
        """What is known is the projector's state from here on."""
        self._projector = projector
        self.reset(projector.state)

    @property
    def position(self) -> int:
        """Up to where the log is folded."""
        return self._projector.position if self._projector is not None else 0

    def reset(self, nodes: Nodes) -> None:
        """The fold begins anew, or from a snapshot: what is known of nodes is what it says."""
        self.known = nodes
        self._acknowledged.clear()
        self._quarantined.clear()
        for node in nodes:
            self._hold(node)

    def set_aside(self, stream: str) -> None:
        """A node's stream has a fact that cannot be folded: nothing is judged by what came before
        it.
        """
        node = stream.removeprefix(PREFIX)
        self._quarantined.add(node)
        self.known.pop(node, None)

    def folded(self, _nodes: Nodes, folded: Folded) -> None:
        """Facts were folded, of whomever: reports count toward what may be held, and their nodes
        are alive. Of two stores one is first to take a report in; to the other it is no news by
        then, and no less a sign of life. Raises Refold where what was appended here, and believed
        at once, was lost with the history that it stood in."""
        self._acknowledged.check(folded)
        for envelope, event in folded:
            if envelope.stream.startswith(PREFIX):
                self._hold(envelope.stream.removeprefix(PREFIX))
            if isinstance(event, NodeReported | NodeReportChanged):
                self.heard_s[envelope.stream.removeprefix(PREFIX)] = self._clock.monotonic_s()
            if isinstance(event, NodeEnded | NodeReportExpired):
                self._release(event.about.node)

    def _hold(self, node: str) -> None:
        known = self.known.get(node)
        if known is not None and known.report is not None and node not in self.heard_s:
            self.heard_s[node] = self._clock.monotonic_s()
            self._allowance.holds(node, known.report, len(msgspec.json.encode(known.report)))
            self._release(node)

    def _release(self, node: str) -> None:
        """A node that was of the cluster and has left takes nothing of what may be held. One that
        never was keeps its place, so that invented names stay bounded."""
        known = self.known.get(node)
        if known is not None and known.gone:
            self._allowance.releases(node)

    async def run(self) -> None:
        """Take in reports until cancelled."""
        async for messages in self._bus.reports():
            await self.take(messages)

    async def take(self, messages: Sequence[Message]) -> None:
        """One batch, when the fold has reached the end of the log. Of several reports of one node
        all are judged, in order, one round each."""
        boots = {
            node: self._boot(node)
            for node in (subjects.reporting(message.subject) for message in messages)
        }
        if self._projector is not None:
            await self._projector.wait_live()
        await self.judge(
            [found for message in messages if (found := self._read(message)) is not None], boots
        )

    async def judge(self, waiting: Sequence[Heard], boots: dict[str, str] | None = None) -> None:
        """Judge valid reports until none is left or the races are lost too often. `boots` are those
        that were believed of their nodes when the reports came; now, where nobody waited since."""
        boots = (
            boots
            if boots is not None
            else {heard.report.node: self._boot(heard.report.node) for heard in waiting}
        )
        for _ in range(MAX_TRIES):
            waiting = await self._round(waiting, boots)
            if not waiting:
                return
        for heard in waiting:
            self._contested(heard.report)

    def now_ms(self) -> int:
        """Unix milliseconds that never jump: the clock as it stood at the start, and what has
        passed since.
        """
        return self._wall_ms + int(self._clock.monotonic_s() * 1000)

    def _read(self, message: Message) -> Heard | None:
        read = validation.read(message.subject, message.data)
        if not isinstance(read, validation.RefusedReport):
            known = self.known.get(read.node)
            named = known is not None and bool(known.named)
            problem = self._allowance.refuses(
                read, len(message.data), self._clock.monotonic_s(), named
            )
            read = validation.RefusedReport(read.node, problem) if problem else read
        if not isinstance(read, validation.RefusedReport) and read.node in self._quarantined:
            read = validation.RefusedReport(
                read.node, "the node's stream is set aside (see /healthz); skip the fact to go on"
            )
        if isinstance(read, validation.RefusedReport):
            count(names.REPORTS, verdict="refused")
            self._out.warning(
                names.REPORT_REFUSED, node=read.node[: validation.NAME_LIMIT], problem=read.problem
            )
            return None
        now_ms = self.now_ms()
        return Heard(
            read,
            len(message.data),
            from_headers(message.headers),
            min(message.time_us // 1000 or now_ms, now_ms),
        )

    async def _round(self, waiting: Sequence[Heard], boots: dict[str, str]) -> list[Heard]:
        """Judge the first report of each node; returns what is left to judge. Facts are made under
        a lease of this store.
        """
        lease = await self._held.lease()
        left, chosen = [], dict[str, tuple[Heard, Accepted, Known]]()
        for heard in waiting:
            report = heard.report
            if report.node in chosen:
                left.append(heard)
                continue
            if self._is_overtaken(report, boots[report.node]):
                self._contested(report)
                continue
            decision = self._decide(heard)
            if isinstance(decision, Accepted):
                chosen[report.node] = (heard, decision, self._known(report.node))
            else:
                core.heard(self._known(report.node), report, decision, heard.at_ms)
                self._believed(heard, decision)
                count(names.REPORTS, verdict=decision.reason)
        commits = [
            self.commit(node, accepted, lease, heard.trace)
            for node, (heard, accepted, _) in chosen.items()
        ]
        outcomes = await self.append(commits)
        for (heard, accepted, known), outcome in zip(chosen.values(), outcomes, strict=True):
            report = heard.report
            if isinstance(outcome, Appended):
                await self.appended(report.node, known, accepted, heard.at_ms)
                boots[report.node] = self._boot(report.node)
                self._tell(heard, accepted)
            elif isinstance(outcome, Fenced):
                self._held.refused(lease)
                left.insert(0, heard)
            else:
                await self.refold(report.node)
                left.insert(0, heard)
        return left

    def _decide(self, heard: Heard) -> Decision:
        known = self._known(heard.report.node)
        if heard.report.source == "bus":
            return core.decide(known, heard.report, heard.at_ms)
        return core.decide_object(known, heard.report, self._exporter_wins)

    def _tell(self, heard: Heard, accepted: Accepted) -> None:
        """A fact about a report stands in the log."""
        event, report = accepted.event, heard.report
        self._believed(heard, accepted)
        if isinstance(event, NodeReportRefused):
            count(names.REPORTS, verdict="refused")
            self._out.warning(names.REPORT_REFUSED, node=report.node, problem=event.reason)
            if self._known(report.node).locked:
                self._out.error(
                    names.NODE_LOCKED_OUT,
                    node=report.node,
                    problem=core.lockout(report.node, event.reason),
                )
            return
        count(names.REPORTS, verdict="full" if isinstance(event, NodeReported) else "changed")

    def _believed(self, heard: Heard, decision: Decision) -> None:
        """Only what is believed says that a node is alive."""
        if decision.alive:
            self.heard_s[heard.report.node] = self._clock.monotonic_s()
            self._allowance.holds(heard.report.node, heard.report, heard.size_bytes)

    def _boot(self, node: str) -> str:
        """The boot that is believed to run."""
        known = self.known.get(node)
        return known.report.boot_id if known is not None and known.report is not None else ""

    def _is_overtaken(self, report: Report, boot: str) -> bool:
        """True when a store saw the node in another boot since this report came, when `boot` was
        believed: it may be of a boot in between, kept here for long; taken in, it would shut out
        the node's own. The next report of the running boot counts."""
        return self._boot(report.node) not in ("", report.boot_id, boot)

    def _contested(self, report: Report) -> None:
        count(names.REPORTS, verdict="contested")
        problem = "lost the race for its stream; the next report counts"
        self._out.warning(names.REPORT_REFUSED, node=report.node, problem=problem)

    def _known(self, node: str) -> Known:
        return self.known.setdefault(node, core.initial())

    async def appended(self, node: str, judged: Known, accepted: Accepted, at_ms: int) -> None:
        """A fact about the node stands in the log: fold it into what it was judged by. Where the
        fold began anew meanwhile (another history), the stream is read instead."""
        if self.known.get(node) is judged:
            if (
                judged.version <= accepted.expected
            ):  # else the fold has shown it before its append was answered
                core.evolve(judged, accepted.event, accepted.expected + 1, at_ms)
        else:
            await self.refold(node)

    async def refold(self, node: str) -> None:
        """Read the node's stream again: somebody else wrote on it. What cannot be read is the
        fold's to tell.
        """
        before = self._known(node)
        nodes, quarantined = (
            {node: core.Known(heard_ms=before.heard_ms, named=before.named)},
            QuarantinedStreams(await skips(self._log)),
        )
        async for envelope in envelopes_of(self._log, streams.report(node)):
            event = quarantined.event_of(envelope)
            if event is not None:
                following.evolve(nodes, envelope, event)
            elif quarantined.streams:
                return self.set_aside(envelope.stream)
            else:
                following.pass_over(nodes, envelope)
        self.known[node] = nodes[node]
        return None

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        """The outcomes, one for each commit."""
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
        """The commit of one decision."""
        return Commit(
            commit_id=accepted.commit_id,
            role=lease.role,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(streams.report(node), accepted.event, accepted.expected),),
            correlation=node,
            trace=trace_of(names.SPAN_REPORT, trace, node=node),
            seen=self._projector.place if self._projector is not None else None,
        )
