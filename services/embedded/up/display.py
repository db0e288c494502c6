"""The output of `topolog up`: the live picture on a terminal, otherwise lines or JSON lines, and a
summary at the end.

The picture is handed in: this module does not know `services.top`. Until the picture runs, notes
are printed, so that a start shows its progress from the first second.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from services.embedded.up.status import Scheduling, Status
from shared.domain.quantity import format_amount
from shared.telemetry.printable import printable

LINE_EVERY_S = 5.0
LISTED = 20


class Picture(Protocol):
    """The live picture (`services.top`): runs until its user closes it, or it is cancelled."""

    def note(self, text: str) -> None:
        """Show a message in the picture."""

    async def run(self, database_urls: Mapping[str, str]) -> None:
        """Draw the log, or the logs of all cells by name."""


class Display:
    """Shows notes and statuses, then the summary."""

    def __init__(self, as_json: bool, picture: Picture | None = None) -> None:
        self.picture = picture
        self._json = as_json
        self._picture_runs = False
        self._shown_s = -LINE_EVERY_S

    def note(self, text: str) -> None:
        """Show one message."""
        if self._json:
            self._json_line({"event": text})
        elif self.picture is not None and self._picture_runs:
            self.picture.note(text)
        else:
            self._line(text)

    def begin_picture(self) -> None:
        """Send notes to the picture from now on."""
        self._picture_runs = True

    def without_picture(self, reason: str) -> None:
        """Continue with lines after the picture failed."""
        self.picture = None
        self.note(f"the picture failed ({reason}); the run continues")

    def show(self, status: Status) -> None:
        """Show the newest status, unless the picture runs."""
        if self.picture is not None or status.elapsed_s - self._shown_s < LINE_EVERY_S:
            return
        self._shown_s = status.elapsed_s
        if self._json:
            self._json_line({"status": status})
        else:
            self._line(_sentence(status))

    def close(self) -> None:
        """Print to the terminal from now on."""
        self.picture = None

    def summary(self, status: Status, exit_code: int, at_end: bool) -> None:
        """Show the end of the run."""
        if self._json:
            self._json_line({"summary": status, "exit_code": exit_code})
            return
        for line in summary_lines(status, at_end):
            self._line(line)

    def _line(self, text: str) -> None:
        print(printable(text), flush=True)

    def _json_line(self, value: Any) -> None:
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()


def _rows(status: Status) -> list[tuple[str, str]]:
    pods, numbers = status.workload, status.scheduling
    if not status.simulated:
        under_way = numbers.pods_reserved + numbers.pods_intended + numbers.pods_bound
        return [
            ("nodes", _with_unnamed(str(numbers.nodes), numbers)),
            ("zones", str(numbers.zones)),
            ("waiting", str(numbers.pods_pending)),
            ("under way", str(under_way)),
            ("running", str(numbers.pods_running)),
            ("unconfirmed charges", str(numbers.unproven)),
            ("events", f"{numbers.position} ({status.events_per_s:,.0f}/s)"),
        ]
    return [
        ("created", f"{pods.created} of {pods.total}" if pods.total else str(pods.created)),
        ("queued", str(numbers.pods_pending)),
        ("reserved", str(numbers.pods_reserved + numbers.pods_intended)),
        ("bound", str(pods.bound)),
        ("running", str(pods.running)),
        ("finished", str(pods.succeeded)),
        ("rejected", str(pods.rejected)),
        ("nodes in use", _with_unnamed(f"{numbers.nodes_in_use} of {numbers.nodes}", numbers)),
        ("zones in use", f"{numbers.zones_in_use} of {numbers.zones}"),
        ("unconfirmed charges", str(numbers.unproven)),
        ("events", f"{numbers.position} ({status.events_per_s:,.0f}/s)"),
        ("speed", f"{pods.factor:g} x"),
    ]


def _with_unnamed(nodes: str, numbers: Scheduling) -> str:
    """Mention names that exporters report and no Node object has: they are no nodes of the cluster,
    and most often a mistake in an exporter's configuration.
    """
    if not numbers.nodes_unnamed:
        return nodes
    return f"{nodes} ({numbers.nodes_unnamed} more report without a Node object)"


def _sentence(status: Status) -> str:
    return f"{status.elapsed_s:6.1f} s  " + ", ".join(
        f"{name} {value}" for name, value in _rows(status)
    )


def summary_lines(status: Status, at_end: bool = True) -> list[str]:
    """Return pods by outcome, latencies, and the pods that did not run.

    Every pod is counted once, so the counts add up to the pods created. After a resume the counts
    cover the whole workload, and the latencies and the speed only the last run; the lines say so.
    `at_end`: the run came to its end, so that unfinished pods are "left".
    """
    pods = status.workload
    if not status.simulated:
        return ["stopped: " + ", ".join(f"{name} {value}" for name, value in _rows(status))]
    if not (pods.total or pods.created):
        return [_without_workload(status)]
    waiting = "left waiting" if at_end else "waiting"
    total = f"{pods.created} of {pods.total}" if pods.total else str(pods.created)
    whole = f" over all runs, {pods.resumed} of them before this one" if pods.resumed else ""
    lines = [
        f"{total} pods created{whole}: {pods.succeeded} finished, {pods.running} running, "
        f"{pods.bound} bound, {pods.waiting} {waiting}, {infeasible_pods(status)} infeasible, "
        f"{pods.rejected} rejected by a kubelet, {pods.lost} lost",
        _latencies(status),
        f"{pods.virtual_s:g} s of workload in {pods.real_s:g} s: factor {pods.factor:g}; "
        f"{status.scheduling.position} events in the log, {status.restarts} restart(s)",
    ]
    lines += [f"infeasible: {_infeasible(pod)}" for pod in pods.infeasible[:LISTED]]
    lines += [f"left: {name}" for name in pods.left[:LISTED]] if at_end else []
    return lines


def infeasible_pods(status: Status) -> int:
    """Return the number of created pods that fit no node, deleted ones included."""
    pods = status.workload
    placed = pods.bound + pods.running + pods.succeeded
    return max(0, pods.created - placed - pods.waiting - pods.rejected - pods.lost)


def _latencies(status: Status) -> str:
    pods = status.workload
    if not pods.to_bound.count:
        return "no pod was bound in this run"
    of_run = f"of the {pods.to_bound.count} pods bound in this run: " if pods.resumed else ""
    return (
        f"{of_run}submitted to bound p50 {pods.to_bound.p50_ms:g} ms, "
        f"p99 {pods.to_bound.p99_ms:g} ms; to running p50 {pods.to_running.p50_ms:g} ms, "
        f"p99 {pods.to_running.p99_ms:g} ms"
    )


def _without_workload(status: Status) -> str:
    """Summarize what the scheduler observed, for a run without a workload."""
    numbers = status.scheduling
    return (
        f"{numbers.reserved} pods placed, {numbers.pods_bound + numbers.pods_running} on "
        f"{numbers.nodes} nodes now, {numbers.pods_pending} waiting; "
        f"{numbers.position} events, {status.restarts} restart(s)"
    )


def _infeasible(task: dict[str, Any]) -> str:
    demand: dict[str, int] = task.get("demand", {})
    requests = ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in demand.items())
    return f"{task.get('task', '')} requests {requests}, which fits no node"


def is_over(status: Status, idle_after_s: float) -> bool:
    """Return whether every feasible pod has ended and the scheduler knows it, or nothing has
    happened for too long.
    """
    pods = status.workload
    if pods.done and status.scheduler_answered and status.scheduling.live <= len(pods.infeasible):
        return True
    return pods.created >= pods.total > 0 and pods.quiet_s > idle_after_s
