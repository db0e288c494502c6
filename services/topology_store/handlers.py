"""The report loop: messages in, judged, appended; a conflict refolds that node's stream and judges again, a bounded number of
times. Must not decide what a report is worth (`core`, `validation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.topology_store import core, snapshot, validation
from services.topology_store.core import Accepted, Known
from shared.bus.port import Bus, Message
from shared.domain.report import Report
from shared.eventlog.port import Appended, Commit, Draft, EventLog, Outcome, Place
from shared.events import streams
from shared.events.codec import decode
from shared.events.report_facts import NodeReported
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge
from shared.telemetry.propagation import from_headers, trace_of

ROLE = "topology-store"
MAX_TRIES = 4
PAGE = 1000
TICK_S = 1.0
SNAPSHOT_EVERY = 20_000


class Reports:
    """What the topology-store knows, and how it learns. `known` is the fold of the report streams, by node."""

    def __init__(self, log: EventLog, bus: Bus, report_max_age_s: float, clock: Clock, exporter_wins: bool = True) -> None:
        self._log = log
        self._exporter_wins = exporter_wins
        self._bus = bus
        self._report_max_age_s = report_max_age_s
        self._clock = clock
        self._heard_s: dict[str, float] = {}
        self._out = logs.get("reports")
        self.known: dict[str, Known] = {}

    async def load(self) -> None:
        """Fold every node's stream as it stands, from the newest snapshot on."""
        place = begun = await self._restore()
        while page := await self._log.read(place.position, PAGE):
            for envelope in page:
                if envelope.stream.startswith("report/"):
                    known = self.known.setdefault(envelope.stream.removeprefix("report/"), core.initial())
                    core.evolve(known, decode(envelope), envelope.version)
            place = Place(page[-1].position, page[-1].chain)
        if place.position - begun.position >= SNAPSHOT_EVERY:
            await self._log.save_snapshot(snapshot.PROJECTION, snapshot.FINGERPRINT, place, snapshot.dump(self.known))
        now_s = self._clock.monotonic_s()
        self._heard_s = dict.fromkeys(self.known, now_s)

    async def _restore(self) -> Place:
        """The place of a usable snapshot; the beginning, and nothing known, without one."""
        found = await self._log.load_snapshot(snapshot.PROJECTION, snapshot.FINGERPRINT)
        known = snapshot.load(found[1]) if found is not None else None
        if found is None or known is None:
            return Place()
        self.known = known
        return found[0]

    async def run(self) -> None:
        """Take in reports until cancelled."""
        async for messages in self._bus.reports():
            await self.take(messages)

    async def take(self, messages: Sequence[Message]) -> None:
        """One batch. Of several reports of one node all are judged, in order, one round each."""
        await self.judge([found for message in messages if (found := self._read(message)) is not None])

    async def judge(self, waiting: Sequence[tuple[Report, str]]) -> None:
        """Judge valid reports, each with the trace that it came with, until none is left or the races are lost too often."""
        for _ in range(MAX_TRIES):
            waiting = await self._round(waiting)
            if not waiting:
                return
        for report, _trace in waiting:
            self._contested(report)

    def heard(self, nodes: Iterable[str]) -> None:
        """These nodes are not silent."""
        self._heard_s.update(dict.fromkeys(nodes, self._clock.monotonic_s()))

    def _read(self, message: Message) -> tuple[Report, str] | None:
        read = validation.read(message.subject, message.data)
        if isinstance(read, validation.RefusedReport):
            count(names.REPORTS, verdict="refused")
            self._out.warning(names.REPORT_REFUSED, node=read.node, problem=read.problem)
            return None
        self.heard([read.node])
        return read, from_headers(message.headers)

    async def _round(self, waiting: Sequence[tuple[Report, str]]) -> list[tuple[Report, str]]:
        """Judge the first report of each node; returns what is left to judge."""
        left, chosen = [], dict[str, tuple[Report, str, Accepted]]()
        for report, trace in waiting:
            if report.node in chosen:
                left.append((report, trace))
                continue
            decision = core.decide(self._known(report.node), report, self._exporter_wins)
            if isinstance(decision, Accepted):
                chosen[report.node] = (report, trace, decision)
            else:
                core.heard(self._known(report.node), report)
                count(names.REPORTS, verdict=decision.reason)
        outcomes = await self._append([self._commit(node, accepted, trace) for node, (_, trace, accepted) in chosen.items()])
        for (report, trace, accepted), outcome in zip(chosen.values(), outcomes, strict=True):
            if isinstance(outcome, Appended):
                core.evolve(self._known(report.node), accepted.fact, accepted.expected + 1)
                count(names.REPORTS, verdict="full" if isinstance(accepted.fact, NodeReported) else "changed")
            elif await self._overtaken(report):
                self._contested(report)
                left = [other for other in left if (other[0].node, other[0].boot_id) != (report.node, report.boot_id)]
            else:
                left.insert(0, (report, trace))
        set_gauge(names.NODES_KNOWN, len(self.known))
        return left

    async def _overtaken(self, report: Report) -> bool:
        """Learn what another replica appended. True when it saw the node in another boot meanwhile: this report may be of a boot
        before, kept here for long; taken in, it would shut out the node's own. The next report of the running boot counts."""
        before = self._known(report.node).report
        await self._refold(report.node)
        now = self._known(report.node).report
        return now is not None and now.boot_id not in (report.boot_id, before.boot_id if before is not None else "")

    def _contested(self, report: Report) -> None:
        count(names.REPORTS, verdict="contested")
        problem = "lost the race for its stream; the next report counts"
        self._out.warning(names.REPORT_REFUSED, node=report.node, problem=problem)

    def _known(self, node: str) -> Known:
        return self.known.setdefault(node, core.initial())

    async def _refold(self, node: str) -> None:
        known, version = core.Known(heard_ms=self._known(node).heard_ms), 0
        while page := await self._log.read_stream(streams.report(node), version, PAGE):
            for envelope in page:
                known = core.evolve(known, decode(envelope), envelope.version)
            version = page[-1].version
        self.known[node] = known

    async def watch_silence(self) -> None:
        """Say which nodes fell silent, until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            await self._expire()

    async def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        commits, nodes = [], []
        for node, known in self.known.items():
            silent_s = now_s - self._heard_s.get(node, now_s)
            decision = core.expire(node, known, silent_s, self._report_max_age_s)
            if isinstance(decision, Accepted):
                commits.append(self._commit(node, decision, ""))
                nodes.append((node, decision))
                self._out.warning(names.NODE_SILENT, node=node, silent_s=int(silent_s))
        for (node, decision), outcome in zip(nodes, await self._append(commits), strict=True):
            if isinstance(outcome, Appended):
                core.evolve(self._known(node), decision.fact, decision.expected + 1)
            else:
                await self._refold(node)
        set_gauge(names.NODES_SILENT, sum(known.expired for known in self.known.values()))

    async def _append(self, commits: Sequence[Commit]) -> list[Outcome]:
        return await append_until_answered(self._log, self._clock, self._out, commits) if commits else []

    def _commit(self, node: str, accepted: Accepted, trace: str) -> Commit:
        return Commit(
            commit_id=accepted.commit_id,
            role=ROLE,
            epoch=0,
            time_us=self._clock.now_us(),
            drafts=(Draft(streams.report(node), accepted.fact, accepted.expected),),
            correlation=node,
            trace=trace_of(names.SPAN_REPORT, trace, node=node),
        )
