"""`topolog compare`: rows side by side, counted while they go, the same numbers as the bench."""

from __future__ import annotations

from pathlib import Path

from services.comparison.runner import run_cell
from services.comparison.side_by_side import Snapshot, cell, play


def test_rows_are_printed_while_they_run_and_equal_the_benchs_numbers() -> None:
    heard: list[Snapshot] = []
    cells = [cell("no awareness", 2, "10", 12), cell("ledger, proof", 2, "10", 12)]
    results = play(cells, heard.append, jobs=2)
    assert [result.cell.row for result in results] == ["no awareness", "ledger, proof"]
    for cell_shown, result in zip(cells, results, strict=True):
        own_snapshots = [snapshot for snapshot in heard if snapshot.row == cell_shown.row]
        assert [snapshot.share for snapshot in own_snapshots] == sorted(
            snapshot.share for snapshot in own_snapshots
        )
        assert (own_snapshots[-1].result, own_snapshots[-1].rejected) == (result, result.rejected)
        again = run_cell(cell_shown, Path())
        assert (again.tasks, again.admitted, again.rejected) == (
            result.tasks,
            result.admitted,
            result.rejected,
        )
    assert results[0].rejected > results[1].rejected == 0
