"""Bench of decisions with late reports: the scheduler's core in virtual time, kubelets by the
model, reports every `--reports` seconds and never on a change.

A JSON line for each interval. `verdicts` are outcomes without a node that differ from the pod's
last, and `undecided_share` is the share of them in which the search left some node undecided
(`node(s) had too many possible states to check`). `undecided_nodes` is the same by node: of all
nodes that such verdicts count. `waited_s` is the mean wait from arrival to admission, and
`decide_ms` the CPU time of deciding by reserved pod. `rejected_early` are kubelet rejections that
no end between decision and admission explains: must be 0. `--speed` divides lifetimes and waits of
the trace, so that more pods come between two reports.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

import msgspec

from services.comparison.cells import Cell
from services.comparison.measures import Measures
from services.comparison.row_ledger import LedgerRow
from services.comparison.simulation import Simulation
from services.comparison.truth import TrueNode
from services.comparison.workloads import SCHEDULER, Workload, workload
from services.scheduler.core import CoreConfig
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.snapshot.config import CycleConfig
from services.simulator.workload import Arrival, Task
from shared.events.scheduling_events import PodReserved, PodVerdictChanged
from tests.bench.road import TRACES, undecided_shares


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench late", description=__doc__)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--workload", default="openb", help="openb, or dense (24 nodes)")
    parser.add_argument("--zones", type=int, default=2, help="of dense nodes")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--seconds", type=int, default=120, help="virtual time of a run")
    parser.add_argument("--policy", default="single-numa-node")
    parser.add_argument("--reports", nargs="+", default=["10", "60"], help="seconds, or `change`")
    options = parser.parse_args(argv)
    for reports in options.reports:
        print(json.dumps(measure(options, reports)), flush=True)


class CountedRow(LedgerRow):
    """Counts what the core proposes."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config)
        self.reserved = 0
        self.decide_s = 0.0
        self.outcomes: list[dict[str, int]] = []

    def proposed(self, now_s: float) -> list[Proposal]:
        began = time.process_time()
        proposals = super().proposed(now_s)
        self.decide_s += time.process_time() - began
        for proposal in proposals:
            for draft in proposal.drafts:
                self.reserved += isinstance(draft.event, PodReserved)
                if isinstance(draft.event, PodVerdictChanged):
                    self.outcomes.append(draft.event.counts)
        return proposals


def measure(options: argparse.Namespace, reports: str) -> dict[str, object]:
    """Return one line."""
    zones = options.zones if options.workload == "dense" else 0
    cell = Cell(
        options.workload,
        options.nodes,
        zones,
        options.load,
        reports,  # type: ignore[arg-type]
        "ledger, proof",
        int(options.seconds * (options.speed if zones == 0 else 1)),
        policy=options.policy,
    )
    load = workload(cell, TRACES)
    if zones == 0:
        load = _faster(load, options.speed)
        cell = msgspec.structs.replace(cell, horizon_s=options.seconds)
    nodes = {node.name: TrueNode(node, True) for node in load.nodes}
    row = CountedRow(CoreConfig(SCHEDULER, CycleConfig()))
    simulation = Simulation(cell, load, nodes, row, Measures(cell, nodes, row))
    simulation.run()
    result = simulation.measures.result(load.infeasible, 0.0)
    return {
        "bench": "late",
        "workload": options.workload,
        "nodes": len(nodes),
        "load": options.load,
        "speed": options.speed,
        "reports": reports,
        "reserved": row.reserved,
        **undecided_shares(row.outcomes),
        "waited_s": round(result.wait_mean_s, 2),
        "admitted": result.admitted,
        "tasks": result.tasks,
        "rejected": result.rejected,
        "rejected_early": result.rejected - result.rejected_after_end,
        "decide_ms": round(row.decide_s * 1e3 / max(1, row.reserved), 3),
    }


def _faster(load: Workload, speed: float) -> Workload:
    arrivals = [Arrival(a.at_s / speed, _shorter(a.task, speed)) for a in load.arrivals]
    running = _all_shorter(load.running, speed)
    return msgspec.structs.replace(load, arrivals=tuple(arrivals), running=running)


def _all_shorter(tasks: Sequence[Task], speed: float) -> tuple[Task, ...]:
    return tuple(_shorter(task, speed) for task in tasks)


def _shorter(task: Task, speed: float) -> Task:
    return msgspec.structs.replace(task, lifetime_s=task.lifetime_s / speed)
