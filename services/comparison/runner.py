"""Runs one cell: makes its nodes, tasks and scheduler, plays it, and returns the measurements."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from services.comparison.cells import HOLDING, Cell, Result
from services.comparison.measures import Measures
from services.comparison.row_ledger import LedgerRow
from services.comparison.row_plugin import CacheName, PluginRow
from services.comparison.rows import Row
from services.comparison.simulation import Simulation
from services.comparison.truth import TrueNode
from services.comparison.workloads import SCHEDULER, Workload, workload
from services.scheduler.core import CoreConfig
from services.scheduler.snapshot.config import CycleConfig, HoldSettings

# The most nodes that may be held at once, in percent.
HELD_SHARE = 10

_CACHES: dict[str, CacheName] = {
    "no awareness": "none",
    "passthrough": "passthrough",
    "discardreserved": "discardreserved",
    "overreserve": "overreserve",
}


def row_of(cell: Cell, load: Workload, nodes: dict[str, TrueNode]) -> Row:
    """Return the scheduler that the cell's row names. The quality bench adds oracles."""
    if cell.row in _CACHES:
        zones = max(len(node.machine.zones) for node in load.nodes)
        favours_full_nodes = load.strategy == "MostAllocated"
        aligns = cell.policy == "single-numa-node"
        return PluginRow(_CACHES[cell.row], list(nodes), zones, favours_full_nodes, aligns)
    hold = HoldSettings(60.0, HELD_SHARE) if cell.row == HOLDING else HoldSettings()
    config = CoreConfig(SCHEDULER, _cycle(cell.row), hold=hold)
    return LedgerRow(config, placements=cell.row != "ledger, fingerprint")


def run_cell(
    cell: Cell,
    traces: Path,
    progress: Callable[[float, Measures], None] = lambda *_: None,
    make_row: Callable[[Cell, Workload, dict[str, TrueNode]], Row] = row_of,
    asks_every_node: bool = False,
) -> Result:
    """Play the cell to its horizon. `progress` gets the share that is done and the measures so far.
    `ZoneCounts` explains `asks_every_node`. Raises TraceError for an unreadable folder.
    """
    began = time.perf_counter()
    load = workload(cell, traces)
    checkpoint = cell.row.startswith(("ledger, proof", "ledger, trusted", "oracle, same news"))
    nodes = {node.name: TrueNode(node, checkpoint) for node in load.nodes}
    row = make_row(cell, load, nodes)
    simulation = Simulation(cell, load, nodes, row, Measures(cell, nodes, row, asks_every_node))
    simulation.run(lambda share: progress(share, simulation.measures))
    return simulation.measures.result(load.infeasible, time.perf_counter() - began)


def _cycle(row: str) -> CycleConfig:
    """Return the production defaults, changed in the one point that the row is named after."""
    if row == "ledger, proof, by strategy alone":
        return CycleConfig(rank_by_zones=False)
    trust = row == "ledger, trusted prediction"
    strategy = (
        row.removeprefix("ledger, proof, ")
        if row.startswith("ledger, proof, ") and row != HOLDING
        else CycleConfig().strategy
    )
    return CycleConfig(strategy=strategy, prediction="trust" if trust else "observe")
