"""How `topolog up` looks: a live table on a terminal, a line now and then elsewhere, JSON lines for machines; a summary last."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from services.embedded.up.status import Status, Workload

LINE_EVERY_S = 5.0
LISTED = 20


class Display:
    """Shows statuses until `close`, then the summary."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4) if not as_json and sys.stdout.isatty() else None
        self._shown_s = -LINE_EVERY_S
        if self._live is not None:
            self._live.start()

    def note(self, text: str) -> None:
        """One event, for people."""
        if self._json:
            self._line({"event": text})
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    def show(self, status: Status) -> None:
        """The newest status."""
        if self._live is not None:
            self._live.update(_table(status))
        elif status.elapsed_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = status.elapsed_s
            if self._json:
                self._line({"status": status})
            else:
                self._console.print(_sentence(status), markup=False, soft_wrap=True)

    def close(self) -> None:
        """End the live table."""
        if self._live is not None:
            self._live.stop()

    def summary(self, status: Status, exit_code: int) -> None:
        """The end of the run."""
        if self._json:
            self._line({"summary": status, "exit_code": exit_code})
            return
        for line in summary_lines(status):
            self._console.print(line, markup=False, soft_wrap=True)

    def _line(self, value: Any) -> None:
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()


def _rows(status: Status) -> list[tuple[str, str]]:
    pods, numbers = status.workload, status.scheduling
    return [
        ("created", f"{pods.created} of {pods.total}"),
        ("queued", str(numbers.pods_pending)),
        ("reserved", str(numbers.pods_reserved + numbers.pods_intended)),
        ("bound", str(pods.bound)),
        ("running", str(pods.running)),
        ("finished", str(pods.succeeded)),
        ("rejected", str(pods.rejected)),
        ("nodes in use", f"{numbers.nodes_in_use} of {numbers.nodes}"),
        ("zones in use", f"{numbers.zones_in_use} of {numbers.zones}"),
        ("unproven charges", str(numbers.unproven)),
        ("facts", f"{numbers.position} ({status.facts_per_s:,.0f}/s)"),
        ("speed", f"{pods.factor:g} x"),
    ]


def _table(status: Status) -> Table:
    table = Table(title=f"topolog up, {status.elapsed_s:.0f} s", box=None, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in _rows(status):
        table.add_row(name, value)
    return table


def _sentence(status: Status) -> str:
    return f"{status.elapsed_s:6.1f} s  " + ", ".join(f"{name} {value}" for name, value in _rows(status))


def summary_lines(status: Status) -> list[str]:
    """Counts, latencies, and the pods that did not run, with numbers."""
    pods = status.workload
    lines = [
        f"{pods.succeeded + pods.running} of {pods.total} pods ran ({pods.succeeded} to their end), {pods.rejected} rejected "
        f"by a kubelet, {pods.lost} lost, {len(pods.infeasible)} infeasible, {len(pods.left)} left",
        f"submitted to bound p50 {pods.to_bound.p50_ms:g} ms, p99 {pods.to_bound.p99_ms:g} ms; "
        f"to running p50 {pods.to_running.p50_ms:g} ms, p99 {pods.to_running.p99_ms:g} ms",
        f"{pods.virtual_s:g} s of workload in {pods.real_s:g} s: factor {pods.factor:g}; {status.scheduling.position} facts, "
        f"{status.restarts} restart(s)",
    ]
    lines += [f"infeasible: {_infeasible(one)}" for one in pods.infeasible[:LISTED]]
    lines += [f"left: {name}" for name in pods.left[:LISTED]]
    return lines


def _infeasible(one: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in one.items())


def is_over(pods: Workload, idle_after_s: float) -> bool:
    """True when every feasible pod has ended, or nothing has happened for too long."""
    return pods.done or (pods.created >= pods.total > 0 and pods.quiet_s > idle_after_s)
