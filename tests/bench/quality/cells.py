"""The cells of the table: what is varied, what is fixed, and the key by which a finished cell is found again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

RowName = Literal[
    "no awareness",
    "passthrough",
    "discardreserved",
    "overreserve",
    "ledger, fingerprint",
    "ledger, proof",
    "ledger, trusted prediction",
    "oracle",
]
ROWS: tuple[RowName, ...] = (
    "no awareness",
    "passthrough",
    "discardreserved",
    "overreserve",
    "ledger, fingerprint",
    "ledger, proof",
    "ledger, trusted prediction",
    "oracle",
)
LOADS = (0.7, 0.9, 1.05)
INTERVALS_S = (1, 10, 60)
TRACE_NODES = (200, 1523)
DENSE_ZONES = (2, 4, 8)
DENSE_NODES = 24
HORIZON_S = {"traces-200": 900, "traces-1523": 300, "dense": 600}
SEED = 20230815
FORMAT = 2
"""Raised when a change of the bench makes older results incomparable."""


class Cell(msgspec.Struct, frozen=True):
    """One run. `zones` is 0 for the traces (their overlay decides), `load` the offered share of the scarce resource."""

    workload: Literal["traces", "dense"]
    nodes: int
    zones: int
    load: float
    interval_s: int
    row: RowName
    horizon_s: int
    seed: int = SEED

    @property
    def key(self) -> str:
        """The cell's name in the results."""
        where = f"traces-{self.nodes}" if self.workload == "traces" else f"dense-{self.zones}z"
        parts = (where, f"load {self.load:g}", f"{self.interval_s}s", self.row, f"{self.horizon_s}s", str(self.seed), str(FORMAT))
        return " | ".join(parts)


def full() -> Iterator[Cell]:
    """The whole grid, small cells first."""
    for zones in DENSE_ZONES:
        for interval in INTERVALS_S:
            yield from _dense(zones, interval)
    for nodes in TRACE_NODES:
        for load in LOADS:
            for interval in INTERVALS_S:
                yield from _traces(nodes, load, interval, HORIZON_S[f"traces-{nodes}"])


def quick() -> Iterator[Cell]:
    """The part that tells most in a few minutes: shorter, the middle report interval, 200 nodes."""
    for load in LOADS:
        yield from _traces(200, load, 10, 300)
    yield from _traces(200, 0.9, 60, 300)
    for zones in DENSE_ZONES:
        yield from _dense(zones, 10, horizon_s={2: 300, 4: 180, 8: 90}[zones])


def _traces(nodes: int, load: float, interval_s: int, horizon_s: int) -> Iterator[Cell]:
    for row in ROWS:
        yield Cell("traces", nodes, 0, load, interval_s, row, horizon_s)


def _dense(zones: int, interval_s: int, horizon_s: int = HORIZON_S["dense"]) -> Iterator[Cell]:
    for row in ROWS:
        yield Cell("dense", DENSE_NODES, zones, 0.9, interval_s, row, horizon_s)


class Result(msgspec.Struct, frozen=True):
    """What one cell measured.

    `rejected` counts admission rejections, `rejected_after_end` those of them that would not have happened had no pod ended
    between decision and admission, `rejected_overtaken` those of the rest that would not have happened had no pod decided
    later been admitted earlier. `admitted` is pods running by the horizon, `tasks` those that arrived and fit some
    node. Waits in seconds from a task's arrival to its admission; tasks still waiting count as long as they waited.
    `withheld` is zone-CPU-hours free in truth and hidden from the scheduler while pods waited, `hidden` the same at all times.
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
