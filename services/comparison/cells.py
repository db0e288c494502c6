"""The cells of the table: what varies between runs, what does not, and the key of a
finished cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, Policy

RowName = Literal[
    "no awareness",
    "passthrough",
    "discardreserved",
    "overreserve",
    "ledger, fingerprint",
    "ledger, proof",
    "ledger, proof, LeastAllocated",
    "ledger, proof, MostAllocated",
    "ledger, proof, BestFit",
    "ledger, proof, by strategy alone",
    "ledger, proof, hold after 60 s",
    "ledger, trusted prediction",
    "oracle, same news",
    "oracle",
]
ROWS: tuple[RowName, ...] = get_args(RowName)
# Holds nodes for overdue pods (`hold-after`). Only the wide workload has a row for it, because few
# other pods become overdue.
HOLDING: RowName = "ledger, proof, hold after 60 s"
Owner = Literal["kubelet", "topolog"]
OWNERS: tuple[Owner, ...] = get_args(Owner)
Reports = Literal["change", "1", "10", "60"]
REPORTS: tuple[Reports, ...] = get_args(Reports)
# The exporter's interval between full reports when it sends on change (its default).
ON_CHANGE_S = 10
LOADS = (0.7, 0.9, 1.05)
TRACE_NODES = (200, 1523)
DENSE_ZONES = (2, 4, 8)
DENSE_NODES = 24
DENSE = "dense"
# Pods of one GPU around pods of a zone, of two zones and of a whole node.
WIDE = "wide"
WIDE_ZONES = (2, 4)
WIDE_NODES = 10
WIDE_LOADS = (0.6, 0.8)
WIDE_POLICIES: tuple[Policy, ...] = (RESTRICTED, BEST_EFFORT, NONE)
WIDE_ROWS: tuple[RowName, ...] = (
    "ledger, proof",
    "ledger, proof, BestFit",
    "ledger, proof, MostAllocated",
    HOLDING,
)
WIDE_HORIZON_S = 1800
OPENB = "openb"
HORIZON_S = {200: 600, 1523: 200}
DENSE_HORIZON_S = 600
SEEDS = (20230815, 20230816, 20230817)
# Raised if a change of the bench makes older results incomparable.
FORMAT = 4


class Cell(msgspec.Struct, frozen=True):
    """One run of the bench.

    `workload` is `dense`, `wide`, `openb` or another trace's name; `zones` is 0 for traces (their
    overlay decides). `load` is the offered share of the scarce resource, `reports` the seconds
    between two reports of a node or `change`, `policy` the kubelets' Topology Manager policy, or
    the nodes' policy if Topolog is their `owner`: it chooses zones, and kubelets align nothing.
    """

    workload: str
    nodes: int
    zones: int
    load: float
    reports: Reports
    row: RowName
    horizon_s: int
    seed: int = SEEDS[0]
    policy: Policy = "single-numa-node"
    owner: Owner = "kubelet"

    @property
    def on_change(self) -> bool:
        """Whether a report follows each change that the exporter notices."""
        return self.reports == "change"

    @property
    def interval_s(self) -> int:
        """The seconds between full reports."""
        return ON_CHANGE_S if self.reports == "change" else int(self.reports)

    @property
    def place(self) -> str:
        """The part of the key that cells with the same machines and tasks have in common, without
        the seed.
        """
        where = (
            f"{self.workload}-{self.zones}z"
            if self.workload in (DENSE, WIDE)
            else f"{self.workload}-{self.nodes}"
        )
        owner = "" if self.owner == "kubelet" else f" by {self.owner}"
        policy = f"{self.policy}{owner}"
        return " | ".join((where, f"load {self.load:g}", policy, f"{self.horizon_s}s"))

    @property
    def key(self) -> str:
        """The cell's name in the results."""
        return " | ".join(
            (self.place, f"reports {self.reports}", self.row, str(self.seed), str(FORMAT))
        )


class Grid(msgspec.Struct, frozen=True):
    """What varies between cells. `sizes` are numbers of nodes of the trace called `trace`. A
    `horizon_s` of 0 means that the number of nodes decides.
    """

    trace: str = OPENB
    sizes: tuple[int, ...] = TRACE_NODES
    loads: tuple[float, ...] = LOADS
    reports: tuple[Reports, ...] = REPORTS
    seeds: tuple[int, ...] = SEEDS
    policy: Policy = "single-numa-node"
    wide_loads: tuple[float, ...] = WIDE_LOADS
    wide_policies: tuple[Policy, ...] = WIDE_POLICIES
    horizon_s: int = 0
    owner: Owner = "kubelet"


def full(grid: Grid) -> Iterator[Cell]:
    """Return the whole grid, small cells first."""
    for zones in DENSE_ZONES:
        for reports in grid.reports:
            yield from _dense(grid, zones, reports, grid.horizon_s or DENSE_HORIZON_S)
    for nodes in grid.sizes:
        horizon_s = grid.horizon_s or HORIZON_S[min(HORIZON_S, key=lambda size: abs(size - nodes))]
        for load in grid.loads:
            for reports in grid.reports:
                yield from _traces(grid, nodes, load, reports, horizon_s)
    yield from _wide(grid)


def quick(grid: Grid) -> Iterator[Cell]:
    """Return the most informative part in a few minutes: shorter, one seed, reports on change and
    every 10 s, the smaller cluster.
    """
    for zones in DENSE_ZONES:
        for reports in _both(grid):
            yield from _dense(
                msgspec.structs.replace(grid, seeds=grid.seeds[:1]),
                zones,
                reports,
                {2: 300, 4: 180, 8: 90}[zones],
            )
    for load in grid.loads:
        yield from _traces(
            msgspec.structs.replace(grid, seeds=grid.seeds[:1]), grid.sizes[0], load, "10", 300
        )


def _both(grid: Grid) -> tuple[Reports, ...]:
    return (
        tuple(interval for interval in grid.reports if interval in ("change", "10"))
        or grid.reports[:1]
    )


def _traces(
    grid: Grid, nodes: int, load: float, reports: Reports, horizon_s: int
) -> Iterator[Cell]:
    for row in _rows(grid):
        for seed in grid.seeds:
            yield Cell(
                grid.trace, nodes, 0, load, reports, row, horizon_s, seed, grid.policy, grid.owner
            )


def _dense(grid: Grid, zones: int, reports: Reports, horizon_s: int) -> Iterator[Cell]:
    for row in _rows(grid):
        for seed in grid.seeds:
            yield Cell(
                DENSE,
                DENSE_NODES,
                zones,
                0.9,
                reports,
                row,
                horizon_s,
                seed,
                grid.policy,
                grid.owner,
            )


def _rows(grid: Grid) -> Iterator[RowName]:
    """Yield the rows that the grid can compare. Only the ledger, with the agent's reports, knows
    zones that Topolog chooses. The oracle is no bound under policy none: its pods overtake each
    other, too, so that kubelets split them.
    """
    left_out = {HOLDING, "oracle"} if grid.policy == NONE else {HOLDING}
    for row in ROWS:
        if row not in left_out and (grid.owner == "kubelet" or row.startswith("ledger, proof")):
            yield row


def _wide(grid: Grid) -> Iterator[Cell]:
    """Yield the wide cells. Reports come every 10 s, because the room that is kept does not depend
    on them.
    """
    horizon_s = grid.horizon_s or WIDE_HORIZON_S
    for policy in grid.wide_policies:
        for zones in WIDE_ZONES:
            for load in grid.wide_loads:
                for row in WIDE_ROWS:
                    for seed in grid.seeds:
                        yield Cell(
                            WIDE,
                            WIDE_NODES,
                            zones,
                            load,
                            "10",
                            row,
                            horizon_s,
                            seed,
                            policy,
                            grid.owner,
                        )


class Waits(msgspec.Struct, frozen=True):
    """Waits of the tasks of one size; tasks that still wait at the horizon count."""

    tasks: int
    admitted: int
    mean_s: float
    p99_s: float


class Result(msgspec.Struct, frozen=True):
    """The measurements of one cell.

    `rejected` counts admission rejections. Of these, `rejected_after_end` would not have happened
    without the end of another pod between decision and admission, and `rejected_overtaken` not
    without a pod that was decided later and admitted earlier (`TrueNode.why_refused`). `admitted`
    is pods that ran by the horizon, `tasks` those that arrived and fit some node, each member of a
    set once: the same in every row. `infeasible` tasks fit no node and never arrive. Waits are
    seconds from a task's arrival to its admission; waiting tasks, also in back-off after a
    rejection, count with their wait so far. `withheld_cpu_h` is zone-CPU-hours that were free in
    the kubelets and that the scheduler did not treat as free while pods waited, `hidden_cpu_h` the
    same at all times. `waits_by_gpus` has the waits by the GPUs that a task requests.
    `zones_per_pod` and `aligned_share` concern the `zoned` pods, which hold something of zones.
    `alignable` and `missed` (`ZoneCounts`) are 0 if the other nodes were not asked.
    """

    cell: Cell
    tasks: int
    admitted: int
    rejected: int
    rejected_after_end: int
    rejected_overtaken: int
    wait_mean_s: float
    wait_p99_s: float
    withheld_cpu_h: float
    hidden_cpu_h: float
    infeasible: int
    unexplained: tuple[str, ...]
    real_s: float
    notes: tuple[str, ...] = ()
    waits_by_gpus: dict[int, Waits] = {}
    zones_per_pod: float = 0.0
    aligned_share: float = 0.0
    zoned: int = 0
    alignable: int = 0
    missed: int = 0
