"""Runs one cell of the quality bench: the rows of `topolog compare`, and two oracles as bounds of
what a scheduler can reach.
"""

from __future__ import annotations

from pathlib import Path

from services.comparison import runner
from services.comparison.cells import Cell, Result
from services.comparison.rows import Row
from services.comparison.truth import TrueNode
from services.comparison.workloads import SCHEDULER, Workload
from tests.bench.quality.row_oracle import OracleRow
from tests.bench.quality.row_same_news import SameNewsRow


def run_cell(cell: Cell, traces: Path) -> Result:
    """Play the cell to its horizon. Raises TraceError for an unreadable folder."""
    return runner.run_cell(cell, traces, make_row=_row)


def _row(cell: Cell, load: Workload, nodes: dict[str, TrueNode]) -> Row:
    if cell.row == "oracle":
        return OracleRow(nodes, SCHEDULER)
    if cell.row == "oracle, same news":
        return SameNewsRow(nodes, SCHEDULER)
    return runner.row_of(cell, load, nodes)
