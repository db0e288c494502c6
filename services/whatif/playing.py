"""One side of the comparison: a simulation under one configuration, with every decision and every
sample.

`services.comparison` has the rows, kubelets and time. This module counts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from services.comparison.cells import Cell, Reports
from services.comparison.measures import Measures
from services.comparison.row_ledger import LedgerRow
from services.comparison.simulation import Simulation
from services.comparison.truth import TrueNode, free_of
from services.comparison.workloads import pod_of
from services.replay.deciding_state import placing_at
from services.replay.near_miss import near_miss
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.score.predicted_zones import rank_words
from services.scheduler.score.ranks import score_of
from services.scheduler.settings import Choice
from services.whatif.world import RecordedDelays, World
from shared.domain.resources import CPU
from shared.events.scheduling_events import PodReserved, PodVerdictChanged

SAMPLES = 120
# The number of most frequent requests by which fragmentation is measured.
SHAPES = 40


class Decided(msgspec.Struct, frozen=True, gc=False):
    """One decision: a node, or "" with the reason why no node takes the pod."""

    uid: str
    node: str = ""
    score: int = 0
    candidates: int = 0
    message: str = ""

    @property
    def text(self) -> str:
        if self.node:
            return (
                f"reserved on {self.node}, score {self.score} of 100, {self.candidates} candidates"
            )
        return f"refused: {self.message}"


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The state at one moment: pods that run or ran, rejections so far, waiting pods, zones in use,
    and the share of free CPUs in zones too small for the workload's own containers (0..1).
    """

    at_s: float
    ran: int
    rejected: int
    waiting: int
    zones_used: int
    fragmentation: float


class Side(msgspec.Struct, frozen=True):
    """The results of one configuration.

    Waits are seconds from arrival to admission, rejections included. A pod that still waits at the
    end counts with its wait so far. `unplaced` are those pods; `underway` of them have a node and
    would have run later. Zones and fragmentation are means over time, and `zones_per_pod` is the
    mean of the pods that hold something of zones.
    """

    name: str
    pods: int
    ran: int
    rejected: int
    unplaced: int
    wait_mean_s: float
    wait_p99_s: float
    zones_used: float
    fragmentation: float
    underway: int = 0
    cpu_s: float = 0.0
    samples: tuple[Sample, ...] = ()
    decisions: tuple[Decided, ...] = ()
    zones_per_pod: float = 0.0


class Asked(Exception):
    """The run reached the requested decision. `judgement` is that of the other node."""

    def __init__(self, decided: Decided, at_s: float, judgement: list[str]) -> None:
        super().__init__(decided.uid)
        self.decided, self.at_s, self.judgement = decided, at_s, judgement


class DecidingRow(LedgerRow):
    """The production core, with its decisions noted in order.

    At decision number `ask_at` it raises Asked with its judgement of the node `ask_of` for the pod.
    """

    def __init__(self, choice: Choice, ask_at: int = -1, ask_of: str = "") -> None:
        super().__init__(choice.core, True, choice.resync_period_s)
        self.decisions: list[Decided] = []
        self._ask_at, self._ask_of = ask_at, ask_of

    def proposed(self, now_s: float) -> list[Proposal]:
        made = super().proposed(now_s)
        batch_reservations: list[PodReserved] = []
        for event in (draft.event for proposal in made for draft in proposal.drafts):
            if self.is_booking(event.about.pod):
                continue
            if isinstance(event, PodReserved):
                self._note(
                    Decided(event.uid, event.node, event.score, event.candidates),
                    batch_reservations,
                    now_s,
                )
                batch_reservations.append(event)
            elif isinstance(event, PodVerdictChanged):
                self._note(Decided(event.uid, message=event.message), batch_reservations, now_s)
        return made

    def _note(self, decided: Decided, batch_reservations: list[PodReserved], now_s: float) -> None:
        if len(self.decisions) == self._ask_at:
            raise Asked(decided, now_s, self._of_other(decided.uid, batch_reservations))
        self.decisions.append(decided)

    def _of_other(self, uid: str, batch_reservations: list[PodReserved]) -> list[str]:
        if not self._ask_of or self.core.config.upstream is not None:
            return []
        followed, pod = self.core.folded, self.core.ledger.pods[uid].pod
        placing = placing_at(followed, self.core.config.cycle, None, batch_reservations)
        refusal = placing.verdict(pod, self._ask_of)
        if refusal is not None:
            keys = {pod_uid: entry.pod.key for pod_uid, entry in followed.ledger.pods.items()}
            return near_miss(msgspec.to_builtins(refusal), keys)
        pod_class, node_info = placing.evaluator.pod_class(pod), placing.node(self._ask_of)
        placing.evaluator.evaluate_all_if_new(pod_class)
        if node_info is None:
            return []
        rank = placing.evaluator.rank(pod_class, node_info)
        return [f"{self._ask_of} had score {score_of(rank)} here{rank_words(rank)}"]


class SideMeasures(Measures):
    """The bench's counts, and a sample of everything at every step of the horizon."""

    def __init__(
        self, cell: Cell, nodes: dict[str, TrueNode], row: LedgerRow, demands: list[tuple[int, int]]
    ) -> None:
        super().__init__(cell, nodes, row)
        self.sample_s = max(0.5, cell.horizon_s / SAMPLES)
        self.samples: list[Sample] = []
        self._true, self._demands = nodes, demands
        self._empty = {name: _whole(node) for name, node in nodes.items()}
        self.now_s = 0.5

    def sample(self) -> None:
        free, used = [], 0
        for node in self._true.values():
            whole = self._empty[node.name]
            for zone, amounts in free_of(node.kubelet.state).items():
                free.append(amounts.get(CPU, 0))
                used += amounts.get(CPU, 0) < whole.get(zone, 0)
        ran, rejected, waiting = self.so_far()
        self.samples.append(
            Sample(
                round(self.now_s, 3),
                ran,
                rejected,
                waiting,
                used,
                _fragmentation(free, self._demands),
            )
        )
        self.now_s += self.sample_s

    def underway(self, decisions: list[Decided]) -> int:
        """Return how many of the waiting pods were given a node by these decisions."""
        nodes = {decision.uid: decision.node for decision in decisions}
        return sum(bool(nodes.get(uid)) for uid in self._arrived)


def _whole(node: TrueNode) -> dict[int, int]:
    """Return the millicpu of the empty node by zone."""
    manager = node.kubelet.state.kubelet.cpu
    return {
        zone: (mask & ~manager.reserved).bit_count() * 1000
        for zone, mask in manager.topology.numa_mask.items()
    }


def _fragmentation(free: list[int], demands: list[tuple[int, int]]) -> float:
    """Return the expected share of free CPUs in zones too small for a container of the workload.

    This is the measure of Weng et al., Beware of Fragmentation, ATC 2023, with zones for nodes.
    """
    total, weights = sum(free), sum(weight for _, weight in demands)
    if not total or not weights:
        return 0.0
    zones = np.array(free, dtype=np.int64)
    lost = sum(weight * int(zones[zones < asked].sum()) for asked, weight in demands)
    return round(lost / total / weights, 4)


def demands_of(world: World) -> list[tuple[int, int]]:
    """Return (millicpu, how many containers request it), the most frequent first."""
    counts: dict[int, int] = {}
    for arrival in world.load.arrivals:
        for part in pod_of(arrival.task, "").containers:
            asked = part.requests.get(CPU, 0)
            if asked and part.kind == "app":
                counts[asked] = counts.get(asked, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHAPES]


def play(
    name: str,
    world: World,
    choice: Choice,
    seed: int,
    reports: Reports,
    progress: Callable[[float], None],
    ask: tuple[int, str],
) -> Side:
    """Run the simulation to its end. Raises Asked at the requested decision (a number and a node;
    -1 for none).
    """
    cell = Cell(
        "recorded", len(world.nodes), 0, 0.0, reports, "ledger, proof", world.horizon_s, seed
    )
    nodes = {node.name: TrueNode(node, checkpoint=True) for node in world.nodes}
    row = DecidingRow(choice, *ask)
    measures = SideMeasures(cell, nodes, row, demands_of(world))
    Simulation(cell, world.load, nodes, row, measures, RecordedDelays(seed, world.delays)).run(
        progress
    )
    result = measures.result(0, 0.0)
    samples = measures.samples
    return Side(
        name,
        result.tasks,
        result.admitted,
        result.rejected,
        result.tasks - result.admitted,
        result.wait_mean_s,
        result.wait_p99_s,
        round(sum(sample.zones_used for sample in samples) / max(1, len(samples)), 2),
        round(sum(sample.fragmentation for sample in samples) / max(1, len(samples)), 4),
        underway=measures.underway(row.decisions),
        samples=tuple(samples),
        decisions=tuple(row.decisions),
        zones_per_pod=result.zones_per_pod,
    )
