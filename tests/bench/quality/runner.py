"""Runs one cell: builds its world and its row, plays it, measures it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from services.scheduler.deciding.config import CycleConfig
from tests.bench.quality.cells import Cell, Result
from tests.bench.quality.row_ledger import LedgerRow
from tests.bench.quality.row_oracle import OracleRow
from tests.bench.quality.row_plugin import CacheName, PluginRow
from tests.bench.quality.row_same_news import SameNewsRow
from tests.bench.quality.rows import Row
from tests.bench.quality.simulation import Simulation
from tests.bench.quality.truth import TrueNode
from tests.bench.quality.workloads import Workload, workload

_CACHES: dict[str, CacheName] = {
    "no awareness": "none",
    "passthrough": "passthrough",
    "discardreserved": "discardreserved",
    "overreserve": "overreserve",
}


def run_cell(cell: Cell, traces: Path, progress: Callable[[float], None] = lambda _: None) -> Result:
    """Play the cell to its horizon. Raises TraceError for an unreadable folder."""
    began = time.perf_counter()
    load = workload(cell, traces)
    checkpoint = cell.row.startswith(("ledger, proof", "ledger, trusted"))
    nodes = {node.name: TrueNode(node, checkpoint) for node in load.nodes}
    simulation = Simulation(cell, load, nodes, _row(cell, load, nodes))
    simulation.run(progress)
    return simulation.measures.result(load.infeasible, time.perf_counter() - began)


def _row(cell: Cell, load: Workload, nodes: dict[str, TrueNode]) -> Row:
    zones = max(len(node.machine.zones) for node in load.nodes)
    aligns = cell.policy == "single-numa-node"
    if cell.row == "oracle":
        return OracleRow(nodes, zones, aligns)
    if cell.row == "oracle, same news":
        return SameNewsRow(nodes, zones, aligns)
    if cell.row in _CACHES:
        return PluginRow(_CACHES[cell.row], list(nodes), zones, load.strategy == "MostAllocated", aligns)
    return LedgerRow(_cycle(cell.row), placements=cell.row != "ledger, fingerprint")


def _cycle(row: str) -> CycleConfig:
    """The production defaults, but for what the row is named after."""
    trust = row == "ledger, trusted prediction"
    strategy = row.removeprefix("ledger, proof, ") if row.startswith("ledger, proof, ") else CycleConfig().strategy
    return CycleConfig(strategy=strategy, prediction="trust" if trust else "observe")
