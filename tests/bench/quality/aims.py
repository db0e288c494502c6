"""Cells that differ only in the row, side by side, and what the aims say of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.bench.quality.cells import ROWS, Cell, Result


class Group(msgspec.Struct, frozen=True):
    """Results of one workload, size, load and report interval, by row in the table's order."""

    title: str
    rows: dict[str, Result]


def groups(results: Sequence[Result]) -> list[Group]:
    """In the order of their first cells."""
    found: dict[str, dict[str, Result]] = {}
    for result in results:
        found.setdefault(_title(result.cell), {})[result.cell.row] = result
    return [Group(title, {row: rows[row] for row in ROWS if row in rows}) for title, rows in found.items()]


def _title(cell: Cell) -> str:
    where = f"traces, {cell.nodes} nodes" if cell.workload == "traces" else f"dense, {cell.zones} zones"
    return f"{where}, load {cell.load:g}, reports every {cell.interval_s} s"


def aims(group: Group) -> list[str]:
    """One line for each aim that the group can speak of."""
    proof, oracle, over = (group.rows.get(row) for row in ("ledger, proof", "oracle", "overreserve"))
    if proof is None:
        return []
    judged = [_no_rejections(proof)]
    if oracle is not None:
        judged.append(_wait(proof, oracle))
    if over is not None:
        judged.append(_withheld(proof, over))
    return [f"{group.title}: {line}" for line in judged]


def _no_rejections(proof: Result) -> str:
    rest = proof.rejected - proof.rejected_after_end
    verdict = "met" if rest == 0 else "**missed**"
    return f"{verdict}: {rest} rejections by proof beside {proof.rejected_after_end} after an end"


def _wait(proof: Result, oracle: Result) -> str:
    limit = oracle.wait_p99_s + proof.cell.interval_s
    verdict = "met" if proof.wait_p99_s <= limit else "**missed**"
    return f"{verdict}: p99 wait {proof.wait_p99_s:.1f} s by proof, {limit:.1f} s is the oracle's and one interval"


def _withheld(proof: Result, over: Result) -> str:
    limit = over.withheld_cpu_h / 2
    verdict = "met" if proof.withheld_cpu_h <= limit else "**missed**"
    return f"{verdict}: withheld {proof.withheld_cpu_h:.2f} zone-CPU-h by proof, half of overreserve's is {limit:.2f}"
