"""How `topolog up` looks: the live picture on a terminal, a line now and then elsewhere, JSON lines
for machines; a summary last.

The picture itself is somebody else's: it is handed in.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import msgspec
from rich.console import Console

from services.embedded.up.status import Scheduling, Status
from shared.domain.quantity import format_amount

LINE_EVERY_S = 5.0
LISTED = 20


class Picture(Protocol):
    """The live picture (`services.top`): runs until its user closes it, or it is cancelled."""

    def note(self, text: str) -> None:
        """Show an event."""

    async def run(self, database_url: str) -> None:
        """Draw what the log says."""


class Display:
    """Shows statuses until `close`, then the summary."""

    def __init__(self, as_json: bool, picture: Picture | None = None) -> None:
        self._json = as_json
        self._console = Console(highlight=False)
        self._picture = picture
        self._shown_s = -LINE_EVERY_S

    def note(self, text: str) -> None:
        """One event, for people."""
        if self._json:
            self._line({"event": text})
        elif self._picture is not None:
            self._picture.note(text)
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    def without_picture(self, why: str) -> None:
        """The picture failed: go on in lines."""
        self._picture = None
        self.note(f"the picture ended ({why}); the run goes on")

    def show(self, status: Status) -> None:
        """The newest status."""
        if self._picture is None and status.elapsed_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = status.elapsed_s
            if self._json:
                self._line({"status": status})
            else:
                self._console.print(_sentence(status), markup=False, soft_wrap=True)

    def close(self) -> None:
        """What comes now is for the terminal itself."""
        self._picture = None

    def summary(self, status: Status, exit_code: int, at_end: bool) -> None:
        """The end of the run, by itself or by hand."""
        if self._json:
            self._line({"summary": status, "exit_code": exit_code})
            return
        for line in summary_lines(status, at_end):
            self._console.print(line, markup=False, soft_wrap=True)

    def _line(self, value: Any) -> None:
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()


def _rows(status: Status) -> list[tuple[str, str]]:
    pods, numbers = status.workload, status.scheduling
    if not status.simulated:
        way = numbers.pods_reserved + numbers.pods_intended + numbers.pods_bound
        return [
            ("nodes", _with_unnamed(str(numbers.nodes), numbers)),
            ("zones", str(numbers.zones)),
            ("waiting", str(numbers.pods_pending)),
            ("on the way", str(way)),
            ("running", str(numbers.pods_running)),
            ("unproven charges", str(numbers.unproven)),
            ("facts", f"{numbers.position} ({status.events_per_s:,.0f}/s)"),
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
        ("unproven charges", str(numbers.unproven)),
        ("facts", f"{numbers.position} ({status.events_per_s:,.0f}/s)"),
        ("speed", f"{pods.factor:g} x"),
    ]


def _with_unnamed(nodes: str, numbers: Scheduling) -> str:
    """Names that exporters report and no Node object has are none of the cluster's nodes, and worth
    a word.
    """
    return (
        f"{nodes} ({numbers.nodes_unnamed} more report without a Node object)"
        if numbers.nodes_unnamed
        else nodes
    )


def _sentence(status: Status) -> str:
    return f"{status.elapsed_s:6.1f} s  " + ", ".join(
        f"{name} {value}" for name, value in _rows(status)
    )


def summary_lines(status: Status, at_end: bool = True) -> list[str]:
    """Counts, latencies, and the pods that did not run, with numbers; those that are left only of a
    run that came to its end.
    """
    pods = status.workload
    if not status.simulated:
        return ["stopped: " + ", ".join(f"{name} {value}" for name, value in _rows(status))]
    of = pods.total or pods.created
    if not of:
        return [_of_others(status)]
    lines = [
        f"{pods.succeeded + pods.running} of {of} pods ran ({pods.succeeded} to their end), {pods.rejected} rejected "
        f"by a kubelet, {pods.lost} lost, {len(pods.infeasible) + pods.withdrawn} infeasible"
        + (f", {len(pods.left)} left" if at_end else f", {len(pods.left)} under way"),
        f"submitted to bound p50 {pods.to_bound.p50_ms:g} ms, p99 {pods.to_bound.p99_ms:g} ms; "
        f"to running p50 {pods.to_running.p50_ms:g} ms, p99 {pods.to_running.p99_ms:g} ms",
        f"{pods.virtual_s:g} s of workload in {pods.real_s:g} s: factor {pods.factor:g}; {status.scheduling.position} facts, "
        f"{status.restarts} restart(s)",
    ]
    lines += [f"infeasible: {_infeasible(one)}" for one in pods.infeasible[:LISTED]]
    lines += [f"left: {name}" for name in pods.left[:LISTED]] if at_end else []
    return lines


def _of_others(status: Status) -> str:
    """A run without a workload of its own: what the scheduler saw of the cluster's."""
    seen = status.scheduling
    return (
        f"{seen.reserved} pods placed, {seen.pods_bound + seen.pods_running} on {seen.nodes} nodes now, "
        f"{seen.pods_pending} waiting; {seen.position} facts, {status.restarts} restart(s)"
    )


def _infeasible(one: dict[str, Any]) -> str:
    demand: dict[str, int] = one.get("demand", {})
    asked = ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in demand.items())
    return f"{one.get('task', '')} asks for {asked}, which fits no node"


def is_over(status: Status, idle_after_s: float) -> bool:
    """True when every feasible pod has ended and the scheduler knows it, or nothing has happened
    for too long.
    """
    pods = status.workload
    if pods.done and status.heard and status.scheduling.live <= len(pods.infeasible):
        return True
    return pods.created >= pods.total > 0 and pods.quiet_s > idle_after_s
