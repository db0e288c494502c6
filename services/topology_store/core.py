"""Deciding which reports are believed, and what of them is a fact.

State is the fold of the report streams; a report is a command. Within a boot only a newer report is
accepted; a boot once superseded never returns; unchanged content is no fact. What a report says of
its own moment is bounded by the clock (`moments`). A node whose reports are refused while nothing
else is heard of it is locked out: that is a fact, and an operator's fact releases it. This module
must not know the bus, the log or a clock: moments and silence arrive as numbers.
"""

from __future__ import annotations

import msgspec

from services.topology_store import moments
from services.topology_store.delta import changes, resembles
from shared.domain.report import UNKNOWN, Report
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.report_events import (
    NodeReleased,
    NodeReportChanged,
    NodeReported,
    NodeReportExpired,
    NodeReportRefused,
    ReportEvent,
)
from shared.ledger.reports import apply_change

FULL_EVERY = 50
"""A full report after this many deltas, so that a reader of one stream never replays far."""


REFUSED_EXPORTERS = 16
SUPERSEDED_BOOTS = 1000
"""Beyond these, refused exporters are no more facts, and the longest superseded boots are forgotten."""


class Known(msgspec.Struct):
    """What the log says of one node: its newest report, the stream's version, boots that may not
    return.

    `begun_ms` and `alive_ms` are Unix milliseconds: the earliest estimate of when the boot began,
    and when it was last heard. `named` is the uid of the Node object of this name, empty when it is
    gone, None when there never was one. `locked` says why a silent node's reports are refused.
    `released`: an operator said that the next report counts, whatever it is.

    `heard_ms` is volatile: the newest boot time of the report's boot that was heard, unchanged
    reports included. Without it a late report would count as news after a newer one that said the
    same as the report before. So is `vain`: boot and boot time of the newest report that was heard
    in vain; one that goes on from there is no late message but a living exporter.
    """

    report: Report | None = None
    version: int = 0
    superseded: list[str] = []
    refused: list[str] = []
    deltas: int = 0
    expired: bool = False
    locked: str = ""
    released: bool = False
    begun_ms: int = 0
    alive_ms: int = 0
    heard_ms: int = 0
    vain: tuple[str, int] = ("", 0)
    named: str | None = None

    @property
    def silent(self) -> bool:
        """Whether a node of the cluster is not heard."""
        return self.expired and bool(self.named)

    @property
    def left(self) -> bool:
        """Whether neither a Node object nor an exporter speaks of it any more."""
        return self.expired and not self.named and not (self.locked and self.named is None)

    @property
    def gone(self) -> bool:
        """Whether it was a node of the cluster and has left."""
        return self.left and self.named is not None


class Accepted(msgspec.Struct, frozen=True):
    """Append `fact` to the node's report stream, which must stand at `expected`."""

    event: ReportEvent
    expected: int
    commit_id: str

    @property
    def alive(self) -> bool:
        """Whether it is a report that was believed."""
        return isinstance(self.event, NodeReported | NodeReportChanged)


class Ignored(msgspec.Struct, frozen=True):
    """Nothing to append. `reason` is one of: unchanged, older, refused, outranked. Only an
    unchanged report says that its node is alive."""

    reason: str

    @property
    def alive(self) -> bool:
        """Whether the report was believed."""
        return self.reason == "unchanged"


Decision = Accepted | Ignored


def initial() -> Known:
    """A node that never reported."""
    return Known()


def name(known: Known, event: NodeObserved | NodeEnded) -> None:
    """Fold what became of the Node object of this name."""
    if isinstance(event, NodeObserved):
        known.named = event.uid
    elif known.named == event.uid:
        known.named = ""


def evolve(known: Known, event: Event, version: int, at_ms: int) -> Known:
    """Fold one fact of the node's report stream, written at `at_ms`."""
    known.version = version
    if isinstance(event, NodeReported):
        _supersede(known, event.report)
        known.report, known.deltas = event.report, 0
        _living(known, event.report.boot_time_ms, at_ms)
    elif isinstance(event, NodeReportChanged) and known.report is not None:
        known.report = apply_change(known.report, event)
        known.deltas += 1
        _living(known, event.boot_time_ms, at_ms)
    elif isinstance(event, NodeReportExpired):
        known.expired = True
    elif isinstance(event, NodeReportRefused):
        known.refused = (
            [*known.refused, event.exporter]
            if event.exporter not in known.refused
            else known.refused
        )
        known.locked = event.reason if known.expired else ""
    elif isinstance(event, NodeReleased):
        known.superseded, known.refused, known.locked, known.released = [], [], "", True
    return known


def let_go(known: Known) -> None:
    """Of a node that has left keep what its next report is judged by: machines come and go, and a
    report is large. That next one is taken in full, as after any silence."""
    if known.gone and known.report is not None and known.report.zones:
        was = known.report
        known.report = Report(
            was.node, was.boot_id, was.boot_time_ms, was.exporter, policy=UNKNOWN, source=was.source
        )


def _supersede(known: Known, report: Report) -> None:
    """Of two sources of one node neither supersedes the other's boots: the operator may choose
    again.
    """
    before = known.report
    anew = before is None or before.boot_id != report.boot_id
    if anew and before is not None and before.source == report.source and not known.released:
        known.superseded = [*known.superseded, before.boot_id][-SUPERSEDED_BOOTS:]
    if anew or known.released:
        known.heard_ms = known.begun_ms = 0
    known.released = False


def _living(known: Known, boot_time_ms: int, at_ms: int) -> None:
    """A report of the running boot was believed."""
    known.expired, known.locked, known.vain = False, "", ("", 0)
    known.begun_ms = moments.began(known.begun_ms, boot_time_ms, at_ms)
    known.alive_ms = max(known.alive_ms, at_ms)


def heard(known: Known, report: Report, decision: Decision, at_ms: int) -> None:
    """A report was judged that is no fact."""
    if decision.alive:
        known.heard_ms = max(known.heard_ms, report.boot_time_ms)
        _living(known, report.boot_time_ms, at_ms)
    else:
        known.vain = (report.boot_id, report.boot_time_ms)


def decide(known: Known, report: Report, at_ms: int) -> Decision:
    """Judge one valid report, which reached the bus at `at_ms`, against what is known of its node."""
    before = known.report
    if moments.is_absurd(report.boot_time_ms, at_ms):
        return _refuse(
            known, report, f"boot_time_ms {report.boot_time_ms} is before the clock's own beginning"
        )
    if before is None or known.released:
        return _accept(known, NodeReported(report), report)
    if report.boot_id in known.superseded:
        return _refuse(
            known,
            report,
            f"boot {report.boot_id} was superseded; is a second exporter running for this node?",
        )
    if before.source != report.source:
        return _accept(known, NodeReported(report), report)
    if report.boot_id != before.boot_id:
        return _decide_boot(known, before, report, at_ms)
    if not known.expired and moments.runs_ahead(known.begun_ms, report.boot_time_ms, at_ms):
        return _refuse(known, report, f"boot_time_ms {report.boot_time_ms} runs ahead of the clock")
    if report.boot_time_ms <= max(before.boot_time_ms, known.heard_ms):
        reason = f"boot_time_ms {report.boot_time_ms} comes after {before.boot_time_ms}; was the machine set back to a snapshot?"
        return _refuse(known, report, reason) if _locks(known, report) else Ignored("older")
    return _news(known, before, report)


def decide_object(known: Known, report: Report, exporter_wins: bool) -> Decision:
    """Judge the report of a NodeResourceTopology object, which its API server's versions put in
    order and no clock does. A node whose own exporter has reported takes nothing from objects while
    `exporter_wins`."""
    before = known.report
    if exporter_wins and before is not None and before.source != report.source:
        return Ignored("outranked")
    if before is None or before.boot_id != report.boot_id:
        return _accept(known, NodeReported(report), report)
    if report.boot_time_ms <= max(before.boot_time_ms, known.heard_ms):
        return Ignored("older")
    return _news(known, before, report)


def _news(known: Known, before: Report, report: Report) -> Decision:
    """A newer report of the same boot: in full, as what changed, or nothing."""
    if known.expired or not resembles(before, report) or known.deltas >= FULL_EVERY:
        return _accept(known, NodeReported(report), report)
    change = changes(before, report)
    return Ignored("unchanged") if change is None else _accept(known, change, report)


def _decide_boot(known: Known, before: Report, report: Report, at_ms: int) -> Decision:
    """Another boot cannot have begun while the one before was still heard; one that has fallen
    silent says nothing against it.
    """
    if not known.expired and moments.overlaps(known.alive_ms, report.boot_time_ms, at_ms):
        return _refuse(
            known,
            report,
            f"boot {report.boot_id} says that it began while boot {before.boot_id} was still running",
        )
    return _accept(known, NodeReported(report), report)


def _accept(known: Known, event: NodeReported | NodeReportChanged, report: Report) -> Accepted:
    again = f"/{known.version}" if known.released else ""
    return Accepted(
        event, known.version, f"report/{report.node}/{report.boot_id}/{report.boot_time_ms}{again}"
    )


def _refuse(known: Known, report: Report, reason: str) -> Decision:
    """Say once for each exporter instance that it was refused, and once that the node is locked out
    by it. A node that never reported has no stream to say it on."""
    told = report.exporter in known.refused or len(known.refused) >= REFUSED_EXPORTERS
    if known.report is None or (told and not _locks(known, report)):
        return Ignored("refused")
    event = NodeReportRefused(report.node, report.boot_id, report.exporter, reason)
    return Accepted(
        event,
        known.version,
        f"refused/{report.node}/{report.boot_id}/{report.exporter}/{known.version}",
    )


def _locks(known: Known, report: Report) -> bool:
    """True when a living exporter is refused while nothing is heard of the boot that is believed."""
    return (
        known.expired
        and not known.locked
        and known.vain[0] == report.boot_id
        and 0 < known.vain[1] < report.boot_time_ms
    )


def expire(node: str, known: Known, silent_s: float, report_max_age_s: float) -> Decision:
    """Judge a node's silence."""
    if known.report is None or known.expired or silent_s <= report_max_age_s:
        return Ignored("unchanged")
    event = NodeReportExpired(node, int(silent_s))
    return Accepted(event, known.version, f"expired/{node}/{known.version}")


def lockout(node: str, reason: str) -> str:
    """What an operator is told of a node that is locked out."""
    return f"nothing is believed of node {node} ({reason}); look at the machine, then: topolog node release {node}"
