"""Deciding which reports are believed, and what of them is a fact.

State is the fold of the report streams; a report is a command. Within a boot only a newer report is accepted; a boot once
superseded never returns; unchanged content is no fact. This module must not know the bus, the log or a clock: `now` and
silence arrive as numbers.
"""

from __future__ import annotations

import msgspec

from services.topology_store.delta import changes, resembles
from shared.domain.report import Report
from shared.events.catalog import Fact
from shared.events.report_facts import NodeReportChanged, NodeReported, NodeReportExpired, NodeReportRefused
from shared.ledger.reports import apply_change

FULL_EVERY = 50
"""A full report after this many deltas, so that a reader of one stream never replays far."""


class Known(msgspec.Struct):
    """What the log says of one node: its newest report, the stream's version, boots that may not return.

    `heard_ms` is volatile: the newest boot time of the report's boot that was heard, unchanged reports included. Without it
    a late report would count as news after a newer one that said the same as the report before.
    """

    report: Report | None = None
    version: int = 0
    superseded: list[str] = []
    refused: list[str] = []
    deltas: int = 0
    expired: bool = False
    heard_ms: int = 0


class Accepted(msgspec.Struct, frozen=True):
    """Append `fact` to the node's report stream, which must stand at `expected`."""

    fact: NodeReported | NodeReportChanged | NodeReportExpired | NodeReportRefused
    expected: int
    commit_id: str


class Ignored(msgspec.Struct, frozen=True):
    """Nothing to append. `reason` is one of: unchanged, older, superseded, outranked."""

    reason: str


Decision = Accepted | Ignored


def initial() -> Known:
    """A node that never reported."""
    return Known()


def evolve(known: Known, fact: Fact, version: int) -> Known:
    """Fold one fact of the node's report stream."""
    known.version = version
    if isinstance(fact, NodeReported):
        _supersede(known, fact.report)
        known.report, known.deltas, known.expired = fact.report, 0, False
    elif isinstance(fact, NodeReportChanged) and known.report is not None:
        known.report, known.expired = apply_change(known.report, fact), False
        known.deltas += 1
    elif isinstance(fact, NodeReportExpired):
        known.expired = True
    elif isinstance(fact, NodeReportRefused):
        known.refused.append(fact.exporter)
    return known


def _supersede(known: Known, report: Report) -> None:
    """Of two sources of one node neither supersedes the other's boots: the operator may choose again."""
    before = known.report
    if before is None or before.boot_id == report.boot_id:
        return
    known.heard_ms = 0
    if before.source == report.source:
        known.superseded.append(before.boot_id)


def heard(known: Known, report: Report) -> None:
    """A report of the current boot was judged, whatever came of it."""
    if known.report is not None and known.report.boot_id == report.boot_id:
        known.heard_ms = max(known.heard_ms, report.boot_time_ms)


def decide(known: Known, report: Report, exporter_wins: bool = True) -> Decision:
    """Judge one valid report against what is known of its node. A node whose own exporter has reported takes nothing from
    NodeResourceTopology objects while `exporter_wins`."""
    if report.boot_id in known.superseded:
        return _refuse(known, report)
    before = known.report
    if exporter_wins and before is not None and before.source == "bus" and report.source != "bus":
        return Ignored("outranked")
    if before is None or before.boot_id != report.boot_id:
        return _accept(known, NodeReported(report), report)
    if report.boot_time_ms <= max(before.boot_time_ms, known.heard_ms):
        return Ignored("older")
    if known.expired or not resembles(before, report) or known.deltas >= FULL_EVERY:
        return _accept(known, NodeReported(report), report)
    change = changes(before, report)
    return Ignored("unchanged") if change is None else _accept(known, change, report)


def _accept(known: Known, fact: NodeReported | NodeReportChanged, report: Report) -> Accepted:
    return Accepted(fact, known.version, f"report/{report.node}/{report.boot_id}/{report.boot_time_ms}")


def _refuse(known: Known, report: Report) -> Decision:
    """Say once for each exporter instance that a superseded boot tried to return."""
    if report.exporter in known.refused:
        return Ignored("superseded")
    reason = f"boot {report.boot_id} was superseded; is a second exporter running for node {report.node}?"
    fact = NodeReportRefused(report.node, report.boot_id, report.exporter, reason)
    return Accepted(fact, known.version, f"refused/{report.node}/{report.boot_id}/{report.exporter}")


def expire(node: str, known: Known, silent_s: float, report_max_age_s: float) -> Decision:
    """Judge a node's silence."""
    if known.report is None or known.expired or silent_s <= report_max_age_s:
        return Ignored("unchanged")
    fact = NodeReportExpired(node, int(silent_s))
    return Accepted(fact, known.version, f"expired/{node}/{known.version}")
