"""Decide which reports are believed, and which of their changes become events.

State is the fold of the report streams; a report is a command.

1. Within a boot only a newer report is accepted.
2. A superseded boot never returns.
3. Unchanged content is no event.
4. The clock bounds the moment that a report states (`moments`).
5. A node is locked out if its reports are refused and no other report of it is accepted. The
   lockout is an event, and an operator's event releases the node.

This module must not know the bus, the log or a clock: times arrive as numbers.
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

# A full report follows this many deltas, so that a reader of one stream never replays far.
FULL_EVERY = 50
# Refusals of further exporters are no events, and the oldest superseded boots are forgotten.
REFUSED_EXPORTERS = 16
SUPERSEDED_BOOTS = 1000


class NodeState(msgspec.Struct):
    """The fold of one node's report stream.

    - `boot_began_ms`, `alive_ms`: Unix milliseconds of the earliest estimate of the boot's
    beginning and of the last accepted report. - `node_uid`: uid of the Node object of this name,
    empty if it was deleted, None if there never was one. - `locked`: why a silent node's reports
    are refused. - `released`: an operator accepted the next report, whatever it says.

    Two fields are volatile. `newest_ms` is the newest boot time of the boot, unchanged reports
    included: without it a late report would count as new after a newer one with equal content.
    `ignored_report` is boot and boot time of the newest report that was not believed: a report that
    continues it is not a late message but comes from a running exporter."""

    report: Report | None = None
    version: int = 0
    superseded: list[str] = []
    refused: list[str] = []
    deltas: int = 0
    expired: bool = False
    locked: str = ""
    released: bool = False
    boot_began_ms: int = 0
    alive_ms: int = 0
    newest_ms: int = 0
    ignored_report: tuple[str, int] = ("", 0)
    node_uid: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether a node of the cluster does not report."""
        return self.expired and bool(self.node_uid)

    @property
    def has_left(self) -> bool:
        """Whether it has neither a Node object nor an exporter any more."""
        is_lockout = bool(self.locked) and self.node_uid is None
        return self.expired and not self.node_uid and not is_lockout

    @property
    def is_removed(self) -> bool:
        """Whether it was a node of the cluster and has left."""
        return self.has_left and self.node_uid is not None


class Accepted(msgspec.Struct, frozen=True):
    """Append `event` to the node's report stream, which must have version `expected`."""

    event: ReportEvent
    expected: int
    commit_id: str

    @property
    def alive(self) -> bool:
        return isinstance(self.event, NodeReported | NodeReportChanged)


class Ignored(msgspec.Struct, frozen=True):
    """Nothing to append. `reason` is one of unchanged, older, refused, outranked. Only an unchanged
    report shows that its node is alive."""

    reason: str

    @property
    def alive(self) -> bool:
        return self.reason == "unchanged"


Decision = Accepted | Ignored


def initial() -> NodeState:
    """Return a node that never reported."""
    return NodeState()


def fold_node_object(state: NodeState, event: NodeObserved | NodeEnded) -> None:
    if isinstance(event, NodeObserved):
        state.node_uid = event.uid
    elif state.node_uid == event.uid:
        state.node_uid = ""
        state.expired = state.expired or (event.cause == "moved" and state.report is not None)


def evolve(state: NodeState, event: Event, version: int, at_ms: int) -> NodeState:
    """Fold one event of the node's report stream, written at `at_ms`."""
    state.version = version
    if isinstance(event, NodeReported):
        _supersede(state, event.report)
        state.report, state.deltas = event.report, 0
        _note_alive(state, event.report.boot_time_ms, at_ms)
    elif isinstance(event, NodeReportChanged) and state.report is not None:
        state.report = apply_change(state.report, event)
        state.deltas += 1
        _note_alive(state, event.boot_time_ms, at_ms)
    elif isinstance(event, NodeReportExpired):
        state.expired = True
    elif isinstance(event, NodeReportRefused):
        if event.exporter not in state.refused:
            state.refused = [*state.refused, event.exporter]
        state.locked = event.reason if state.expired else ""
    elif isinstance(event, NodeReleased):
        state.superseded, state.refused, state.locked, state.released = [], [], "", True
    return state


def drop_report(state: NodeState) -> None:
    """Drop the content of a removed node's report, because machines come and go, and a report is
    large. The fields that judge its next report stay; that report is appended in full."""
    if state.is_removed and state.report is not None and state.report.zones:
        last = state.report
        state.report = Report(
            last.node,
            last.boot_id,
            last.boot_time_ms,
            last.exporter,
            policy=UNKNOWN,
            source=last.source,
        )


def _supersede(state: NodeState, report: Report) -> None:
    """Supersede the last boot. Of two sources of one node neither supersedes the other's boots,
    because an operator may switch back."""
    last = state.report
    is_other_boot = last is None or last.boot_id != report.boot_id
    is_same_source = last is not None and last.source == report.source
    if last is not None and is_other_boot and is_same_source and not state.released:
        state.superseded = [*state.superseded, last.boot_id][-SUPERSEDED_BOOTS:]
    if is_other_boot or state.released:
        state.newest_ms = state.boot_began_ms = 0
    state.released = False


def _note_alive(state: NodeState, boot_time_ms: int, at_ms: int) -> None:
    """Note that a report of the running boot is believed."""
    state.expired, state.locked, state.ignored_report = False, "", ("", 0)
    state.boot_began_ms = moments.began(state.boot_began_ms, boot_time_ms, at_ms)
    state.alive_ms = max(state.alive_ms, at_ms)


def note_ignored(state: NodeState, report: Report, decision: Decision, at_ms: int) -> None:
    if decision.alive:
        state.newest_ms = max(state.newest_ms, report.boot_time_ms)
        _note_alive(state, report.boot_time_ms, at_ms)
    else:
        state.ignored_report = (report.boot_id, report.boot_time_ms)


def decide(state: NodeState, report: Report, at_ms: int) -> Decision:
    """Judge one valid report, which reached the bus at `at_ms`."""
    last = state.report
    if moments.is_absurd(report.boot_time_ms, at_ms):
        return _refuse(
            state,
            report,
            f"boot_time_ms {report.boot_time_ms} is longer than the clock's time since 1970",
        )
    if last is None or state.released:
        return _accept(state, NodeReported(report), report)
    if report.boot_id in state.superseded:
        return _refuse(
            state,
            report,
            f"boot {report.boot_id} was superseded; is a second exporter running for this node?",
        )
    if last.source != report.source:
        return _accept(state, NodeReported(report), report)
    if report.boot_id != last.boot_id:
        return _decide_boot(state, last, report, at_ms)
    if not state.expired and moments.runs_ahead(state.boot_began_ms, report.boot_time_ms, at_ms):
        return _refuse(state, report, f"boot_time_ms {report.boot_time_ms} runs ahead of the clock")
    if report.boot_time_ms <= max(last.boot_time_ms, state.newest_ms):
        reason = (
            f"boot_time_ms {report.boot_time_ms} comes after {last.boot_time_ms}; "
            "was the machine set back to a snapshot?"
        )
        return _refuse(state, report, reason) if _locks(state, report) else Ignored("older")
    return _news(state, last, report)


def decide_object(state: NodeState, report: Report, exporter_wins: bool) -> Decision:
    """Judge the report of a NodeResourceTopology object. The API server's versions order such
    reports, no clock does. With `exporter_wins`, objects of a node with an exporter of its own are
    ignored."""
    last = state.report
    if exporter_wins and last is not None and last.source != report.source:
        return Ignored("outranked")
    if last is None or last.boot_id != report.boot_id:
        return _accept(state, NodeReported(report), report)
    if report.boot_time_ms <= max(last.boot_time_ms, state.newest_ms):
        return Ignored("older")
    return _news(state, last, report)


def _news(state: NodeState, last: Report, report: Report) -> Decision:
    """Return a newer report of the same boot in full, as its changes, or as unchanged."""
    if state.expired or not resembles(last, report) or state.deltas >= FULL_EVERY:
        return _accept(state, NodeReported(report), report)
    change = changes(last, report)
    return Ignored("unchanged") if change is None else _accept(state, change, report)


def _decide_boot(state: NodeState, last: Report, report: Report, at_ms: int) -> Decision:
    """Judge another boot. It cannot have begun while reports of the last boot still came. If the
    last boot is silent, nothing contradicts the new one."""
    if not state.expired and moments.overlaps(state.alive_ms, report.boot_time_ms, at_ms):
        return _refuse(
            state,
            report,
            f"boot {report.boot_id} began while boot {last.boot_id} was still running",
        )
    return _accept(state, NodeReported(report), report)


def _accept(state: NodeState, event: NodeReported | NodeReportChanged, report: Report) -> Accepted:
    # A released node may send the same report again, which needs another commit id.
    suffix = f"/{state.version}" if state.released else ""
    return Accepted(event, state.version, f"report/{report.node}/{report.boot_time_ms}{suffix}")


def _refuse(state: NodeState, report: Report, reason: str) -> Decision:
    """Append one refusal for each exporter instance, and one if it locks the node out. A node that
    never reported has no stream."""
    is_appended = report.exporter in state.refused or len(state.refused) >= REFUSED_EXPORTERS
    if state.report is None or (is_appended and not _locks(state, report)):
        return Ignored("refused")
    event = NodeReportRefused(report.node, report.boot_id, report.exporter, reason)
    return Accepted(
        event,
        state.version,
        f"refused/{report.node}/{report.boot_id}/{report.exporter}/{state.version}",
    )


def _locks(state: NodeState, report: Report) -> bool:
    """Return whether a running exporter is refused while the believed boot is silent."""
    return (
        state.expired
        and not state.locked
        and state.ignored_report[0] == report.boot_id
        and 0 < state.ignored_report[1] < report.boot_time_ms
    )


def expire(node: str, state: NodeState, silent_s: float, report_max_age_s: float) -> Decision:
    """Return the expiry of a node that is silent for too long."""
    if state.report is None or state.expired or silent_s <= report_max_age_s:
        return Ignored("unchanged")
    event = NodeReportExpired(node, int(silent_s))
    return Accepted(event, state.version, f"expired/{node}/{state.version}")


def lockout(node: str, reason: str) -> str:
    """Return the problem and remedy of a node that is locked out."""
    return (
        f"reports of node {node} are refused ({reason}); "
        f"look at the machine, then run: topolog node release {node}"
    )
