"""Bench of alignment: how many zones kubelets give pods, by policy, number of zones, load and
strategy, on the dense workload in virtual time, with reports on change.

A JSON line for each cell. Shares are of admitted pods that hold something of zones.
`aligned_share`: each part of the pod has one zone. `could_be_aligned_share`: it has, or it would
have had on some node at the moment of the decision, by the exact kubelets with all pods that were
on their way; nodes with an end that the scheduler has not received do not count. `missed_share`: of
these, the pods that are not aligned. `zones_per_pod`: mean of the zones of a pod's widest part.
With `--off` each cell is also played without ranking by zones (`ranked_by_zones` false), so that
waits compare.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from services.comparison.cells import DENSE, DENSE_NODES, DENSE_ZONES, Cell, Result, RowName
from services.comparison.runner import run_cell
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.policies import POLICIES

LOADS = {"light": 0.4, "heavy": 0.9}
# Virtual seconds of a run by number of zones, because larger machines get more pods a second.
HORIZONS_S = {2: 240, 4: 120, 8: 60}
SEED = 20230815
RANKED: RowName = "ledger, proof"
BY_STRATEGY: RowName = "ledger, proof, by strategy alone"
STRATEGY_ROWS: dict[str, RowName] = {
    CycleConfig().strategy: RANKED,
    "LeastAllocated": "ledger, proof, LeastAllocated",
    "MostAllocated": "ledger, proof, MostAllocated",
    "BestFit": "ledger, proof, BestFit",
}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench alignment", description=__doc__)
    add = parser.add_argument
    add("--policy", choices=POLICIES, action="append", help="default: all of them")
    add("--zones", type=int, choices=DENSE_ZONES, action="append", help=f"default {DENSE_ZONES}")
    add("--load", choices=LOADS, action="append", help=f"default {', '.join(LOADS)}")
    add("--strategy", choices=STRATEGY_ROWS, default=CycleConfig().strategy)
    add("--seed", type=int, action="append", help=f"default {SEED}")
    add("--nodes", type=int, default=DENSE_NODES)
    add("--horizon", type=int, default=0, help=f"virtual seconds (default by zones: {HORIZONS_S})")
    add("--off", action="store_true", help="play each cell without ranking by zones, too")
    for cell in _cells(parser.parse_args(argv)):
        print(json.dumps(_line(run_cell(cell, Path(), asks_every_node=True))), flush=True)


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    rows = [STRATEGY_ROWS[options.strategy], *([BY_STRATEGY] if options.off else [])]
    for policy in options.policy or POLICIES:
        for zones in options.zones or DENSE_ZONES:
            horizon_s = options.horizon or HORIZONS_S[zones]
            for load in options.load or LOADS:
                for seed in options.seed or (SEED,):
                    for row in rows:
                        cell = Cell(
                            DENSE, options.nodes, zones, LOADS[load], "change", row, horizon_s, seed
                        )
                        yield msgspec.structs.replace(cell, policy=policy)


def _line(result: Result) -> dict[str, object]:
    cell, pods = result.cell, max(1, result.zoned)
    strategies = {row: strategy for strategy, row in STRATEGY_ROWS.items()}
    return {
        "policy": cell.policy,
        "nodes": cell.nodes,
        "zones": cell.zones,
        "load": next(name for name, load in LOADS.items() if load == cell.load),
        "strategy": strategies.get(cell.row, CycleConfig().strategy),
        "ranked_by_zones": cell.row != BY_STRATEGY,
        "seed": cell.seed,
        "pods": result.zoned,
        "aligned_share": result.aligned_share,
        "zones_per_pod": result.zones_per_pod,
        "could_be_aligned_share": round(result.alignable / pods, 4),
        "missed_share": round(result.missed / max(1, result.alignable), 4),
        "tasks": result.tasks,
        "admitted": result.admitted,
        "rejected": result.rejected,
        "infeasible": result.infeasible,
        "wait_mean_s": result.wait_mean_s,
        "wait_p99_s": result.wait_p99_s,
    }
