"""Several rows of one cell at once, one process each, with progress: the display of `topolog
compare`. This module does not know terminals.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import msgspec

from services.comparison.cells import (
    DENSE,
    DENSE_HORIZON_S,
    DENSE_NODES,
    Cell,
    Reports,
    Result,
    RowName,
)
from services.comparison.measures import Measures
from services.comparison.runner import run_cell
from shared.domain.policies import SINGLE_NUMA_NODE, Policy
from shared.runtime import lean
from shared.runtime.secret_file import withheld

# Row of the results page -> its name for people.
NAMES: dict[RowName, str] = {
    "no awareness": "without NUMA awareness",
    "passthrough": "upstream plugin, passthrough",
    "overreserve": "upstream plugin, reserve cache",
    "ledger, proof": "Topolog",
}


class Snapshot(msgspec.Struct, frozen=True):
    """One row at one moment of virtual time. `result` is None until its end."""

    row: RowName
    share: float = 0.0
    ran: int = 0
    rejected: int = 0
    waiting: int = 0
    result: Result | None = None


class RowFailed(Exception):
    """A row's process ended without a result."""


def cell(
    row: RowName,
    zones: int,
    reports: Reports,
    horizon_s: int = DENSE_HORIZON_S,
    policy: Policy = SINGLE_NUMA_NODE,
) -> Cell:
    """Return a cell of the dense workload of docs/quality.md."""
    return Cell(DENSE, DENSE_NODES, zones, 0.9, reports, row, horizon_s, policy=policy)


def play(cells: Sequence[Cell], show: Callable[[Snapshot], None], jobs: int) -> list[Result]:
    """Play the cells, at most `jobs` at a time. Return their results in order. Raises RowFailed."""
    context = multiprocessing.get_context("spawn")
    waiting, running, results = (
        list(cells),
        dict[Connection, tuple[RowName, Any]](),
        dict[RowName, Result](),
    )
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_play_one, args=(cell, theirs), daemon=True)
                with withheld():
                    process.start()
                theirs.close()
                running[ours] = cell.row, process
            for ready in cast("list[Connection]", wait(list(running))):
                row, process = running[ready]
                snapshot = _received(ready, row)
                show(snapshot)
                if snapshot.result is not None:
                    results[row] = snapshot.result
                    process.join()
                    del running[ready]
    finally:
        for _, process in running.values():
            process.terminate()
    return [results[cell.row] for cell in cells]


def _received(ready: Connection, row: RowName) -> Snapshot:
    try:
        return msgspec.json.decode(ready.recv_bytes(), type=Snapshot)
    except EOFError:
        raise RowFailed(f"the row {NAMES.get(row, row)!r} ended without a result") from None


def _play_one(cell: Cell, pipe: Connection) -> None:
    lean.collect_seldom()

    def progress(share: float, measures: Measures) -> None:
        pipe.send_bytes(msgspec.json.encode(Snapshot(cell.row, share, *measures.so_far())))

    result = run_cell(cell, Path(), progress)
    pipe.send_bytes(
        msgspec.json.encode(Snapshot(cell.row, 1.0, result.admitted, result.rejected, 0, result))
    )
