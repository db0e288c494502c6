"""The whole judgement of one node for one shape: constraints, node resources, feasibility, score.

Cheap tests first. Must not know other nodes, nor the table that keeps the result.

What nodes answer for shapes of pods: swept many at once, or judged singly, and kept on the table
of verdicts.

Told of nodes that changed, it looks at them when a shape is asked for. Must not know how a node
came to be as it is, nor anything of a pod but its shape: what bars one pod or draws it to a node is
the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.predicates import (
    ConstraintColumns,
    constraint_refusal,
    fits_node,
)
from services.scheduler.filter.topology.fit import ADMITTED, verdict
from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.score.runner import Scorer, StrategyRunner, score_node, scorer
from services.scheduler.score.strategies.strategy import DemandClass
from services.scheduler.select.bulk import Answers, Sweeping
from services.scheduler.select.score_bounds import ScoreDrops
from services.scheduler.select.verdict_cache import OPTIMISTIC, RULED_OUT, ScoreCache
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import NodeArrays, ReservationArrays
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan, PodClass, key_of, without_kept
from shared.domain.pod import Pod
from shared.hints.admission_orders import UNKNOWN
from shared.hints.request import request_of

UNDECIDED = -2
"""No score: the search met its budget. The table keeps it as ruled out."""


def judge(
    pod_class: PodClass,
    plan: Plan,
    node_info: NodeInfo,
    config: CycleConfig,
    strategy: Scorer,
    steps: int,
    ranked: int | None = None,
) -> int:
    """The node's score, RULED_OUT, or UNDECIDED where `steps` were too few. `ranked` is its `rank`,
    where that is known.
    """
    if not _open(pod_class, node_info):
        return RULED_OUT
    if plan.mode != "free":
        found = verdict(node_info, pod_class, plan, config, steps)
        if found != ADMITTED:
            return UNDECIDED if found == UNKNOWN else RULED_OUT
    if ranked is not None:
        return ranked
    return score_node(node_info, pod_class, plan, strategy)


def rank(pod_class: PodClass, plan: Plan, node_info: NodeInfo, strategy: Scorer) -> int:
    """The score that the node would have if it took the pod, or RULED_OUT where that is plain to
    see.
    """
    return (
        score_node(node_info, pod_class, plan, strategy)
        if _open(pod_class, node_info)
        else RULED_OUT
    )


def _open(pod_class: PodClass, node_info: NodeInfo) -> bool:
    """Does the node's object allow the pod, and is there enough on the node as a whole?"""
    return (
        fits_node(pod_class.request, node_info)
        and constraint_refusal(pod_class.pod.constraints, node_info.observed, node_info.name)
        is None
    )


class Evaluator:
    """Single-threaded. `table` has a row for each shape and a column for each of `slots`;
    `over_budget` counts searches of last resort that ended without an answer."""

    def __init__(
        self,
        config: CycleConfig,
        columns: NodeArrays,
        constraints: ConstraintColumns,
        slots: Sequence[NodeInfo | None],
    ) -> None:
        self.config, self.strategy = config, scorer(config.strategy, config.weights)
        self.table, self.over_budget = ScoreCache(), 0
        self._columns, self._slots, self._drops = columns, slots, ScoreDrops()
        self._sweeping = Sweeping(columns, constraints, config, self.strategy)
        self._shapes: dict[str, PodClass] = {}
        nobody = Pod("", "", "")
        self._latest = nobody, PodClass("", nobody, -1)
        self._passed_over: dict[int, int] = {}

    # -- demand
    # --------------------------------------------------------------------------------------------------

    @property
    def ranks_by_demand(self) -> bool:
        """True where the strategy must be told what pods ask for."""
        return isinstance(self.strategy, StrategyRunner) and self.strategy.ranks_by_demand

    def rank_by(self, wants: Sequence[DemandClass]) -> None:
        """Rank nodes by this from now on."""
        if isinstance(self.strategy, StrategyRunner) and self.strategy.ranks_by_demand:
            self.strategy.rank_by(wants)
            self.table.reranked()

    def pod_class(self, pod: Pod) -> PodClass:
        """The pod's shape; the longest unused one makes room for a new one. What constraints keep
        of a pod bars nodes beside it: pods that differ in their claims only share one."""
        if pod is self._latest[0]:
            return self._latest[1]
        key = key_of(judged := without_kept(pod))
        pod_class = self._shapes.pop(key, None)
        if pod_class is None:
            row = len(self._shapes)
            if row >= self.config.max_shapes:
                row = self._shapes.pop(next(iter(self._shapes))).row
            pod_class = PodClass(key, judged, row)
            self.table.start(row)
            self._drops.learn(row, pod_class.evenly, self._columns.rows)
        self._shapes[key], self._latest = pod_class, (pod, pod_class)
        return pod_class

    def plan(self, pod_class: PodClass, node_info: NodeInfo) -> tuple[Plan, bool]:
        """The shape's plan on this node, and whether the node is barred whatever it has free."""
        planned = self._sweeping.plan(pod_class, node_info.profile, node_info.profile_id)
        return planned.plan, planned.barred

    # -- changes
    # -------------------------------------------------------------------------------------------------

    def reserved(self, node_info: NodeInfo, delta: ReservationArrays | None) -> None:
        """The node has an own reservation more, in columns `delta` where that is known."""
        if self.strategy.monotone:
            self.table.lowered(node_info.slot, self._drop(node_info.slot, delta))
        else:
            self.table.tightened(node_info.slot)

    def _drop(self, slot: int, delta: ReservationArrays | None) -> npt.NDArray[np.int16] | None:
        """How far the score of each shape surely drops on the node; None where nothing is known."""
        if delta is None or delta.least is None or not self.strategy.even:
            return None
        return self._drops.of(
            delta.least, self._columns.widest[:, slot], self._columns.rows, len(self.table.scores)
        )

    # -- singly
    # --------------------------------------------------------------------------------------------------

    def at(self, slot: int) -> NodeInfo:
        """The node in a slot of the table."""
        node_info = self._slots[slot]
        assert node_info is not None
        return node_info

    def score(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """The node's true score for the shape, or RULED_OUT."""
        at = pod_class.row, node_info.slot
        if not self.table.sure[at]:
            self.judge(pod_class, node_info)
        return int(self.table.scores[at])

    def judge(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """Judge one node within the ordinary budget and note the result; one that was not decided
        is looked at again when no other node takes the pod, also after own reservations, which
        leave ruled out what is."""
        score = self._judged(pod_class, node_info, self.config.steps_node)
        pod_class.undecided.pop(node_info.slot, None)
        if score == UNDECIDED:
            pod_class.undecided[node_info.slot] = node_info.ledger_version
            score = RULED_OUT
        self.table.judged(pod_class.row, node_info.slot, score)
        return score

    def judge_harder(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """The last resort: the same with a larger budget."""
        score = self._judged(pod_class, node_info, self.config.steps_last_resort)
        self.over_budget += score == UNDECIDED
        return max(score, RULED_OUT)

    def undecided(self, pod_class: PodClass) -> list[NodeInfo]:
        """Nodes on which the ordinary budget was not enough, as they stand: first those that a
        larger one likely decides.
        """
        slots = [
            slot
            for slot, at in pod_class.undecided.items()
            if (node_info := self._slots[slot]) and node_info.ledger_version == at
        ]
        pod_class.undecided = {slot: pod_class.undecided[slot] for slot in slots}
        return self.easiest_first(pod_class, map(self.at, slots))

    def easiest_first(self, pod_class: PodClass, nodes: Iterable[NodeInfo]) -> list[NodeInfo]:
        """Those whose search is likely short come first; of equals by name."""
        return sorted(
            nodes, key=lambda node_info: (self._disorder(pod_class, node_info), node_info.name)
        )

    def steps_taken(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """By the latest search of this node for the shape."""
        plan, _ = self.plan(pod_class, node_info)
        return kubelet_search_of(node_info, plan).steps_taken(request_of(plan.demand))

    def _disorder(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        return kubelet_search_of(node_info, self.plan(pod_class, node_info)[0]).disorder

    def pass_over_unless_bounds_tell(self, pod_class: PodClass, node_info: NodeInfo) -> None:
        """Judge one node without a search; what bounds do not tell is out of the way until
        `take_back`.
        """
        at, bound = node_info.slot, int(self.table.scores[pod_class.row, node_info.slot])
        score = (
            UNDECIDED
            if pod_class.untold.get(at) == node_info.version
            else self._judged(pod_class, node_info, 0)
        )
        self.table.judged(pod_class.row, at, max(score, RULED_OUT))
        if score == UNDECIDED:
            pod_class.untold[at] = node_info.version
            self._passed_over[at] = bound

    def take_back(self, pod_class: PodClass) -> None:
        """Nodes that were passed over have the bound of their score again that they had before."""
        if self._passed_over:
            self.table.doubted(pod_class.row, self._passed_over)
            self._passed_over = {}

    def _judged(self, pod_class: PodClass, node_info: NodeInfo, steps: int) -> int:
        plan, barred = self.plan(pod_class, node_info)
        ranked = self._ranked(pod_class, node_info)
        return (
            RULED_OUT
            if barred
            else judge(pod_class, plan, node_info, self.config, self.strategy, steps, ranked)
        )

    def _ranked(self, pod_class: PodClass, node_info: NodeInfo) -> int | None:
        """What the node scores if it takes the pod, where a sweep or a ranking said so since it
        changed.
        """
        known = self._sweeping.ranks and self.at(node_info.slot) is node_info
        score = int(self.table.scores[pod_class.row, node_info.slot]) if known else OPTIMISTIC
        return score if RULED_OUT < score < OPTIMISTIC else None

    # -- many at once
    # --------------------------------------------------------------------------------------------

    def sweep_if_new(self, pod_class: PodClass) -> None:
        """Judge every node for a shape that has no verdicts yet."""
        if not pod_class.swept:
            pod_class.swept = True
            self._sweep(pod_class, None)

    def sweep_unsure(self, pod_class: PodClass, score: int) -> bool:
        """Judge at once all nodes that stand at `score` in doubt; False when no more than doubt
        comes out of it.
        """
        if score != OPTIMISTIC and self._sweeping.singly:
            return False
        unsure = self.table.unsure_at(pod_class.row, score)
        self._sweep(pod_class, unsure)
        return len(unsure) > len(self.table.unsure_at(pod_class.row, score))

    def rank_changed(self, pod_class: PodClass) -> None:
        """Score every node that changed since the shape was asked for, as far as that can be told
        of many. Whether they take the pod is asked when they come out on top."""
        many = self._sweeping.ranks_from
        if many is None:
            return
        slots = self.table.news(pod_class.row)
        if not len(slots):
            self.table.swept(pod_class.row)
            return
        if len(slots) >= many:
            scores, sure = self._swept(pod_class, slots)
        else:
            scores = np.array(
                [self._rank(pod_class, self.at(slot)) for slot in slots.tolist()], dtype=np.int64
            )
            sure = scores == RULED_OUT
        self.table.ranked_all(pod_class.row, slots, scores, sure)

    def _swept(self, pod_class: PodClass, slots: npt.NDArray[np.int64]) -> Answers:
        """Scores and certainty of these nodes, in their order."""
        self._columns.refresh()
        parts = [
            (where, self._sweeping.run(pod_class, selected, self._slots))
            for where, selected in self._sweeping.parted(pod_class, slots)
        ]
        if len(parts) == 1:
            return parts[0][1]
        scores, sure = np.empty(len(slots), dtype=np.int64), np.empty(len(slots), dtype=np.bool_)
        for where, (their_scores, their_certainty) in parts:
            scores[where], sure[where] = their_scores, their_certainty
        return scores, sure

    def _rank(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        plan, barred = self.plan(pod_class, node_info)
        return RULED_OUT if barred else rank(pod_class, plan, node_info, self.strategy)

    def _sweep(self, pod_class: PodClass, only: npt.NDArray[np.int64] | None) -> None:
        self._columns.refresh()
        scores, sure = self.table.row(pod_class.row)
        if only is None:
            scores[:], sure[:] = RULED_OUT, True
            self.table.exact[pod_class.row] = False
        for _, selected in self._sweeping.parted(pod_class, only):
            scores[selected.selection], sure[selected.selection] = self._sweeping.run(
                pod_class, selected, self._slots
            )
        if only is None:
            self.table.swept(pod_class.row)
