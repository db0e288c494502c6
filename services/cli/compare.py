"""`topolog compare`: the same workload, side by side, without NUMA awareness, as the upstream
plugin, and with Topolog.

Rows come from `services.comparison`; here they are drawn while they count up, and told in one
table.
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
    table,
)

BAR = 20


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("compare")(compare)


def compare(
    zones: Annotated[int, typer.Option(help="NUMA zones a node: 2, 4 or 8.")] = 2,
    reports: Annotated[
        str, typer.Option(help="Seconds between reports of a node: 1, 10 or 60; or change.")
    ] = "1",
    horizon: Annotated[
        int, typer.Option(help="Virtual seconds; 600 gives the numbers of README.")
    ] = 600,
    jobs: Annotated[
        int, typer.Option(help="Processes at once; 0 is one a CPU.", min=0, max=64)
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="A line a row, at the end.")] = False,
) -> None:
    """Play the same pods on the same machines with four schedulers: who is rejected, who waits.

    24 dense nodes, load 0.9, virtual time, a fixed seed: the same numbers on every machine. More
    cells: docs/quality.md.
    """
    from services.comparison.cells import DENSE_ZONES, REPORTS
    from services.comparison.side_by_side import NAMES, RowFailed, cell, play

    for flag, value, known in (("--zones", zones, DENSE_ZONES), ("--reports", reports, REPORTS)):
        if value not in known:
            raise CommandError(
                f"{flag} is {value}; there are {', '.join(map(str, known))}",
                "topolog compare",
                EXIT_USAGE,
            )
    if not 10 <= horizon <= 3600:
        raise CommandError(
            f"--horizon is {horizon}; give 10 to 3600 virtual seconds",
            "topolog compare",
            EXIT_USAGE,
        )
    cells = [cell(row, zones, cast("Any", reports), horizon) for row in NAMES]
    with _Counting(not as_json) as counting:
        try:
            results = play(cells, counting.show, jobs or os.cpu_count() or 1)
        except RowFailed as error:
            raise CommandError(str(error), "topolog compare --jobs 1", EXIT_FAILED) from error
    rows = [_row(NAMES[result.cell.row], result) for result in results]
    if as_json:
        for row in rows:
            json_line(row)
        return
    cells_of = ("row", "tasks", "ran", "rejected", "wait_p99_s")
    shown = [[str(row[name]) for name in cells_of] for row in rows]
    console().print(
        table("", ("", "#tasks", "#ran", "#rejected by kubelets", "#p99 wait s"), shown)
    )


def _row(name: str, result: Any) -> dict[str, Any]:
    return {
        "row": name,
        "tasks": result.tasks,
        "ran": result.admitted,
        "rejected": result.rejected,
        "wait_p99_s": result.wait_p99_s,
    }


class _Counting:
    """The counters while they run: a table on a terminal, nothing elsewhere."""

    def __init__(self, wanted: bool) -> None:
        from rich.live import Live

        self._newest: dict[str, Any] = {}
        self._live = (
            Live(console=console(), auto_refresh=False, transient=True)
            if wanted and is_screen()
            else None
        )

    def __enter__(self) -> _Counting:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Any) -> None:
        """A row went on."""
        self._newest[snapshot.row] = snapshot
        if self._live is None:
            return
        from services.comparison.side_by_side import NAMES

        rows = []
        for row, name in NAMES.items():
            one = self._newest.get(row)
            share = one.share if one is not None else 0.0
            bar = "█" * round(share * BAR) + "·" * (BAR - round(share * BAR))
            counts = [one.ran, one.rejected, one.waiting] if one is not None else [0, 0, 0]
            rows.append([name, bar, *map(str, counts)])
        self._live.update(
            table("", ("", "time", "#ran", "#rejected", "#waiting"), rows), refresh=True
        )
