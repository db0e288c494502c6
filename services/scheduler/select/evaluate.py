"""Filter and score nodes for pod classes: many at once, or singly, kept in the score cache.

The evaluator looks at changed nodes when a pod class asks. Must not know how a
node came to be as it is, nor anything of a pod but its class: what keeps one pod from a node, or
draws it there, is the cluster's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from services.scheduler.filter.constraints.predicates import (
    ConstraintColumns,
    constraint_refusal,
    fits_node,
)
from services.scheduler.filter.topology.fit import ADMITTED, filter_result
from services.scheduler.filter.topology.kubelet_search import kubelet_search_of, steps_taken
from services.scheduler.score.least_spread import least_spread
from services.scheduler.score.predicted_zones import device_closeness, predicted_spread
from services.scheduler.score.ranks import CLOSER, OPTIMISTIC, RULED_OUT, STEP, rank_of, score_of
from services.scheduler.score.runner import StrategyRunner, score_node
from services.scheduler.score.strategies.strategy import DemandClass
from services.scheduler.select.bulk import BulkEvaluator, PlanEvaluation, Selected
from services.scheduler.select.score_cache import ScoreCache
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import Bools, NodeArrays, Slots
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan, PodClass, key_of, without_kept
from shared.domain.pod import Pod
from shared.hints.admission_orders import UNKNOWN

# No rank, because the search used up its budget. The cache keeps it as ruled out.
UNDECIDED = RULED_OUT - 1


def evaluate_node(
    pod_class: PodClass,
    plan: Plan,
    node_info: NodeInfo,
    config: CycleConfig,
    strategy: StrategyRunner,
    steps: int,
    known_score: int | None = None,
    known_rank: int | None = None,
    finds_zones: bool = False,
    first_zone: int | None = None,
) -> int:
    """Return the node's rank, RULED_OUT, or UNDECIDED if `steps` were too few. `known_score` and
    `known_rank` are those of the node if it takes the pod, as far as they are known; `finds_zones`
    says that each part is known to find a zone. `first_zone` is the strategy's zone where Topolog
    chooses zones.
    """
    is_known = known_rank is not None or known_score is not None
    if not (is_known or _passes_whole_node(pod_class, node_info)):
        return RULED_OUT
    if plan.mode != "free":
        result = filter_result(node_info, pod_class, plan, config, steps, finds_zones, first_zone)
        if result == UNKNOWN:
            return UNDECIDED
        if result != ADMITTED:
            return RULED_OUT
    if known_rank is not None:
        return known_rank
    if known_score is None:
        known_score = score_node(node_info, pod_class, plan, strategy)
    return _ranked(node_info, plan, config, known_score, predicted_spread)


def true_rank(
    pod_class: PodClass,
    plan: Plan,
    node_info: NodeInfo,
    config: CycleConfig,
    strategy: StrategyRunner,
) -> int:
    """Return the rank if the zones of the node take the pod; RULED_OUT if the whole node is too
    small.
    """
    if not _passes_whole_node(pod_class, node_info):
        return RULED_OUT
    score = score_node(node_info, pod_class, plan, strategy)
    return _ranked(node_info, plan, config, score, predicted_spread)


def highest_rank(
    pod_class: PodClass,
    plan: Plan,
    node_info: NodeInfo,
    config: CycleConfig,
    strategy: StrategyRunner,
) -> int:
    """Return an upper bound of the rank if the node takes the pod, without a prediction; RULED_OUT
    if the whole node is too small.
    """
    if not _passes_whole_node(pod_class, node_info):
        return RULED_OUT
    score = score_node(node_info, pod_class, plan, strategy)
    return _ranked(node_info, plan, config, score, least_spread)


def _ranked(
    node_info: NodeInfo,
    plan: Plan,
    config: CycleConfig,
    score: int,
    spread: Callable[[NodeInfo, Plan], int],
) -> int:
    if not (config.rank_by_zones and (plan.may_spread or plan.near)):
        return score
    spread_there = spread(node_info, plan) if plan.may_spread else 0
    return rank_of(score, spread_there, device_closeness(node_info, plan) if plan.near else 0)


def _passes_whole_node(pod_class: PodClass, node_info: NodeInfo) -> bool:
    if not fits_node(pod_class.request, node_info):
        return False
    constraints = pod_class.pod.constraints
    return constraint_refusal(constraints, node_info.observed, node_info.name) is None


class Evaluator:
    """Single-threaded. `cache` has a row for each pod class and a column for each of `slots`;
    `over_budget` counts searches with the last budget that ended without an answer.
    """

    def __init__(
        self,
        config: CycleConfig,
        arrays: NodeArrays,
        constraints: ConstraintColumns,
        slots: Sequence[NodeInfo | None],
    ) -> None:
        self.config, self.strategy = config, StrategyRunner(config.strategy, config.weights)
        self.cache, self.over_budget = ScoreCache(), 0
        self.arrays, self._slots = arrays, slots
        self._bulk = BulkEvaluator(arrays, constraints, config, self.strategy, slots)
        self._pod_classes: dict[str, PodClass] = {}
        no_pod = Pod("", "", "")
        self._latest = no_pod, PodClass("", no_pod, -1)
        self._passed_over: dict[int, int] = {}
        # The latest question of `first_zone`, and its answer.
        self._first_zone: tuple[PodClass | None, NodeInfo | None, tuple[int, int], int | None] = (
            None, None, (0, 0), None,
        )  # fmt: skip

    def rank_by(self, demand_classes: Sequence[DemandClass]) -> None:
        """Rank nodes by these demand weights from now on."""
        if self.strategy.ranks_by_demand:
            self.strategy.rank_by(demand_classes)
            self.cache.reranked()

    def pod_class(self, pod: Pod) -> PodClass:
        """Return the pod's class; the longest unused one makes room for a new one.

        What constraints keep of a pod is checked per pod: pods that differ only in their claims
        share a class.
        """
        if pod is self._latest[0]:
            return self._latest[1]
        plain_pod = without_kept(pod) if pod.constraints.kept else pod
        key = key_of(plain_pod)
        pod_class = self._pod_classes.pop(key, None)
        if pod_class is None:
            row = len(self._pod_classes)
            if row >= self.config.max_shapes:
                row = self._pod_classes.pop(next(iter(self._pod_classes))).row
            pod_class = PodClass(key, plain_pod, row)
            self.cache.start(row, self.arrays.profile[: self.arrays.size] >= 0)
        self._pod_classes[key], self._latest = pod_class, (pod, pod_class)
        return pod_class

    def plan(self, pod_class: PodClass, node_info: NodeInfo) -> tuple[Plan, bool]:
        """Return the class's plan on this node, and whether its profile blocks the class."""
        on_nodes = pod_class.plans_on_nodes.get(node_info.profile_id)
        if on_nodes is None:
            on_nodes = self._bulk.plan(pod_class, node_info.profile, node_info.profile_id)
        return on_nodes.plan, on_nodes.is_blocked

    def sure_places(self, pod_class: PodClass, node_info: NodeInfo) -> Sequence[int] | None:
        """See `BulkEvaluator.sure_places`."""
        return self._bulk.sure_places(pod_class, node_info)

    def note_landing(self, pod_class: PodClass, node_info: NodeInfo) -> bool:
        """See `BulkEvaluator.note_landing`."""
        return self._bulk.note_landing(pod_class, node_info)

    def node_at(self, slot: int) -> NodeInfo:
        node_info = self._slots[slot]
        assert node_info is not None
        return node_info

    # -- singly

    def rank(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """Return the node's true rank for the class, or RULED_OUT."""
        index = pod_class.row, node_info.slot
        if not self.cache.sure[index]:
            self.evaluate(pod_class, node_info)
        return int(self.cache.scores[index])

    def score(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """Return the strategy's score of the node, or RULED_OUT."""
        return score_of(self.rank(pod_class, node_info))

    def predict_rank(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """Lower the bound of the node's rank to the predicted zones, and return it. That costs less
        than an evaluation.
        """
        bound = int(self.cache.scores[pod_class.row, node_info.slot])
        plan, is_blocked = self.plan(pod_class, node_info)
        if is_blocked or not (self.config.rank_by_zones and plan.may_spread):
            return bound
        if self._bulk.surely_spreads_nothing(pod_class, node_info):
            return min(bound, bound % STEP)
        rank = min(bound, rank_of(bound % STEP, predicted_spread(node_info, plan)))
        if rank < bound:
            self.cache.lower_bound(pod_class.row, node_info.slot, rank)
        return rank

    def evaluate(
        self, pod_class: PodClass, node_info: NodeInfo, predicted_rank: int = OPTIMISTIC
    ) -> int:
        """Evaluate one node within the ordinary budget and keep the result. `predicted_rank` is
        what `predict_rank` returned for the node as it is.

        An undecided node is looked at again if no other node takes the pod, also after own
        reservations, which keep ruled-out nodes ruled out.
        """
        finds_zones = bool(node_info.pending) and self.note_landing(pod_class, node_info)
        steps = self.config.steps_node
        score = self._evaluate(pod_class, node_info, steps, predicted_rank, finds_zones)
        pod_class.undecided.pop(node_info.slot, None)
        if score == UNDECIDED:
            pod_class.undecided[node_info.slot] = node_info.ledger_version
            score = RULED_OUT
        self.cache.note_score(pod_class.row, node_info.slot, score)
        return score

    def evaluate_harder(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """Evaluate one node with the larger budget of the last resort. The result is not kept."""
        score = self._evaluate(pod_class, node_info, self.config.steps_last_resort)
        self.over_budget += score == UNDECIDED
        return max(score, RULED_OUT)

    def undecided_nodes(self, pod_class: PodClass) -> list[NodeInfo]:
        """Return the nodes, as they are now, that the ordinary budget did not decide: first those
        that a larger one likely decides.
        """
        nodes = []
        for slot, version in list(pod_class.undecided.items()):
            node_info = self._slots[slot]
            if node_info is not None and node_info.ledger_version == version:
                nodes.append(node_info)
            else:
                del pod_class.undecided[slot]
        return self.easiest_first(pod_class, nodes)

    def easiest_first(self, pod_class: PodClass, nodes: Iterable[NodeInfo]) -> list[NodeInfo]:
        """Return the nodes with a likely short search first, equals by name."""

        def disorder(node_info: NodeInfo) -> tuple[int, str]:
            plan, _ = self.plan(pod_class, node_info)
            return kubelet_search_of(node_info, plan).disorder, node_info.name

        return sorted(nodes, key=disorder)

    def steps_taken(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        """Return the steps that the last resort took on this node for the class."""
        plan, _ = self.plan(pod_class, node_info)
        return steps_taken(node_info, plan, self.config.steps_last_resort)

    def evaluate_by_bounds(self, pod_class: PodClass, node_info: NodeInfo) -> None:
        """Evaluate one node without a search. If the bounds do not decide, the node is passed over
        until `restore_passed_over`.
        """
        slot = node_info.slot
        bound = int(self.cache.scores[pod_class.row, slot])
        if pod_class.passed_over.get(slot) == node_info.version:
            score = UNDECIDED
        else:
            score = self._evaluate(pod_class, node_info, 0)
        self.cache.note_score(pod_class.row, slot, max(score, RULED_OUT))
        if score == UNDECIDED:
            pod_class.passed_over[slot] = node_info.version
            self._passed_over[slot] = bound

    @property
    def passed_over(self) -> int:
        """How many nodes are passed over."""
        return len(self._passed_over)

    def restore_passed_over(self, pod_class: PodClass) -> None:
        """Give nodes that were passed over the bound of their score back."""
        if self._passed_over:
            self.cache.note_bounds(pod_class.row, self._passed_over)
            self._passed_over = {}

    def _evaluate(
        self,
        pod_class: PodClass,
        node_info: NodeInfo,
        steps: int,
        predicted_rank: int = OPTIMISTIC,
        finds_zones: bool = False,
    ) -> int:
        plan, is_blocked = self.plan(pod_class, node_info)
        if is_blocked:
            return RULED_OUT
        known_score = known_rank = None
        is_exact = self.strategy.at_once and not plan.counted_zones
        if is_exact and predicted_rank < OPTIMISTIC:
            known_rank = predicted_rank
        elif is_exact:
            known_score = self._known_score(pod_class, node_info)
        first_zone = self.first_zone(pod_class, plan, node_info)
        hints = known_score, known_rank, finds_zones, first_zone
        return evaluate_node(pod_class, plan, node_info, self.config, self.strategy, steps, *hints)

    def first_zone(self, pod_class: PodClass, plan: Plan, node_info: NodeInfo) -> int | None:
        """Return the zone that the strategy prefers if Topolog must choose one zone of the node."""
        if plan.one_zone is None:
            return None
        of_class, of_node, of_changes, zone = self._first_zone
        changes = node_info.version, self.strategy.changes
        if of_class is not pod_class or of_node is not node_info or of_changes != changes:
            zone = self._bulk.best_zone(pod_class, node_info)
            self._first_zone = pod_class, node_info, changes, zone
        return zone

    def _known_score(self, pod_class: PodClass, node_info: NodeInfo) -> int | None:
        """Return the node's score from a bulk evaluation or a ranking since its last change, if
        there is one.
        """
        if self.node_at(node_info.slot) is not node_info:
            return None
        rank = int(self.cache.scores[pod_class.row, node_info.slot])
        if 0 <= rank < CLOSER:
            return rank
        return score_of(rank) if RULED_OUT < rank < OPTIMISTIC else None

    # -- many at once

    def evaluate_all_if_new(self, pod_class: PodClass) -> None:
        """Evaluate every node for a class that has no results yet."""
        if not pod_class.is_evaluated:
            pod_class.is_evaluated = True
            self._rank_changed(pod_class, bulk_from=0)

    def evaluate_unsure(self, pod_class: PodClass, score: int) -> bool:
        """Evaluate at once all nodes that are unsure at `score`; False if they all stay unsure."""
        if score != OPTIMISTIC and not self.strategy.at_once:
            return False
        unsure = self.cache.unsure_at(pod_class.row, score)
        self._evaluate_bulk(pod_class, unsure)
        # A bound that the predicted zones lowered holds, although arrays do not see that.
        scores, _ = self.cache.row(pod_class.row)
        scores[unsure] = np.minimum(scores[unsure], score)
        return len(unsure) > len(self.cache.unsure_at(pod_class.row, score))

    def _evaluate_bulk(self, pod_class: PodClass, slots: Slots) -> None:
        self.arrays.refresh()
        scores, sure = self.cache.row(pod_class.row)
        for _, selected in self._bulk.parted(pod_class, slots):
            scores[selected.selection], sure[selected.selection] = self._bulk.run(
                pod_class, selected
            )

    def candidates(self, pod_class: PodClass) -> Bools:
        """Return by slot which nodes bounds do not rule out, as an array of the caller's own."""
        self.arrays.refresh()
        is_candidate = np.zeros(self.arrays.size, dtype=np.bool_)
        slots = np.flatnonzero(self.arrays.profile[: self.arrays.size] >= 0)
        for _, selected in self._bulk.parted(pod_class, slots):
            is_candidate[selected.selection] = self._bulk.candidates(pod_class, selected)
        return is_candidate

    def evaluations(
        self, pod_class: PodClass, slots: Slots
    ) -> list[tuple[Selected, PlanEvaluation]]:
        """Return the nodes in these ascending slots by the class's plan, without those whose
        profile blocks the class.
        """
        self.arrays.refresh()
        selections = [selected for _, selected in self._bulk.parted(pod_class, slots)]
        return [
            (selected, self._bulk.evaluation(pod_class, selected.on_nodes))
            for selected in selections
            if not selected.on_nodes.is_blocked
        ]

    def rank_changed(self, pod_class: PodClass) -> None:
        """Score every node that changed since the class asked last. Whether it takes the pod is
        evaluated when it comes out on top.
        """
        if self._bulk.bulk_from is not None:
            self._rank_changed(pod_class, self._bulk.bulk_from)

    def _rank_changed(self, pod_class: PodClass, bulk_from: int) -> None:
        cache, row = self.cache, pod_class.row
        if cache.ranked.get(row) == cache.changes:
            return
        self.arrays.refresh()
        scores, sure = cache.row(row)
        if self._bulk.rank(pod_class, scores, sure):
            slots = cache.unsure_at(row, OPTIMISTIC)
            if len(slots) >= bulk_from:
                self._evaluate_bulk(pod_class, slots)
            else:
                ranks = [self._rank(pod_class, self.node_at(slot)) for slot in slots.tolist()]
                scores[slots] = ranks
                sure[slots] = scores[slots] == RULED_OUT
        cache.ranked[row] = cache.changes

    def _rank(self, pod_class: PodClass, node_info: NodeInfo) -> int:
        plan, is_blocked = self.plan(pod_class, node_info)
        if is_blocked:
            return RULED_OUT
        return highest_rank(pod_class, plan, node_info, self.config, self.strategy)
