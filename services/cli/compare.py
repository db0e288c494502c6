"""`topolog compare`: the same workload without NUMA awareness, with the upstream plugin, and with
Topolog. `services.comparison` plays it; this file draws the counters and prints the table.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, cast

import typer

from services.cli.output import (
    EXIT_FAILED,
    EXIT_USAGE,
    CommandError,
    console,
    is_screen,
    json_line,
    say_table,
    table,
)

BAR = 20


def register(app: typer.Typer) -> None:
    app.command("compare")(compare)


def compare(
    zones: Annotated[int, typer.Option(help="NUMA zones per node: 2, 4 or 8.")] = 2,
    reports: Annotated[
        str, typer.Option(help="Seconds between reports of a node: 1, 10 or 60; or change.")
    ] = "1",
    policy: Annotated[
        str, typer.Option(help="The kubelets' Topology Manager policy, for example best-effort.")
    ] = "single-numa-node",
    horizon: Annotated[
        int, typer.Option(help="Virtual seconds; 600 gives the numbers of README.")
    ] = 600,
    jobs: Annotated[
        int, typer.Option(help="Processes at once; 0 means one per CPU.", min=0, max=64)
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line per row at the end.")
    ] = False,
) -> None:
    """Compare four schedulers on the same pods and nodes.

    `zones/pod` and `aligned` show how many zones kubelets gave, which differs under the policies
    none and best-effort.

    24 dense nodes, load 0.9, virtual time, a fixed seed: the same numbers on every machine. More
    cells: docs/quality.md.
    """
    from services.comparison.side_by_side import NAMES, RowFailed, cell, play

    _check(zones, reports, policy, horizon)
    kind = cast("Any", reports), horizon, cast("Any", policy)
    cells = [cell(row, zones, *kind) for row in NAMES]
    with _Counters(not as_json) as counters:
        try:
            results = play(cells, counters.show, jobs or os.cpu_count() or 1)
        except RowFailed as error:
            raise CommandError(str(error), "topolog compare --jobs 1", EXIT_FAILED) from error
    rows = [_row(NAMES[result.cell.row], result) for result in results]
    if as_json:
        for row in rows:
            json_line(row)
        return
    keys = ("row", "tasks", "ran", "rejected", "wait_p99_s", "zones_per_pod", "aligned_share")
    say_table(
        ("", "#tasks", "#ran", "#rejected by kubelets", "#p99 wait s", "#zones/pod", "#aligned"),
        [[str(row[key]) for key in keys] for row in rows],
    )


def _check(zones: int, reports: str, policy: str, horizon: int) -> None:
    """Raise CommandError for a value that no cell has."""
    from services.comparison.cells import DENSE_ZONES, REPORTS
    from shared.domain.policies import POLICIES

    for flag, value, allowed in (
        ("--zones", zones, DENSE_ZONES),
        ("--reports", reports, REPORTS),
        ("--policy", policy, POLICIES),
    ):
        if value not in allowed:
            raise CommandError(
                f"{flag} must be one of {', '.join(map(str, allowed))} (found {value})",
                "topolog compare",
                EXIT_USAGE,
            )
    if not 10 <= horizon <= 3600:
        raise CommandError(
            f"--horizon must be 10 to 3600 virtual seconds (found {horizon})",
            "topolog compare",
            EXIT_USAGE,
        )


def _row(name: str, result: Any) -> dict[str, Any]:
    return {
        "row": name,
        "tasks": result.tasks,
        "ran": result.admitted,
        "rejected": result.rejected,
        "wait_p99_s": result.wait_p99_s,
        "zones_per_pod": result.zones_per_pod,
        "aligned_share": result.aligned_share,
        "infeasible": result.infeasible,
    }


class _Counters:
    """The counters during a run: a table on a terminal, nothing in a pipe."""

    def __init__(self, enabled: bool) -> None:
        from rich.live import Live

        self._newest: dict[str, Any] = {}
        self._live = (
            Live(console=console(), auto_refresh=False, transient=True)
            if enabled and is_screen()
            else None
        )

    def __enter__(self) -> _Counters:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Any) -> None:
        """Redraw after a row has advanced."""
        self._newest[snapshot.row] = snapshot
        if self._live is None:
            return
        from services.comparison.side_by_side import NAMES

        rows = []
        for row, name in NAMES.items():
            newest = self._newest.get(row)
            share = newest.share if newest is not None else 0.0
            bar = "█" * round(share * BAR) + "·" * (BAR - round(share * BAR))
            counts = (newest.ran, newest.rejected, newest.waiting) if newest else (0, 0, 0)
            rows.append([name, bar, *map(str, counts)])
        self._live.update(table(("", "time", "#ran", "#rejected", "#waiting"), rows), refresh=True)
