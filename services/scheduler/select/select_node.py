"""The deciding of one pod, top to bottom: demand, filter, hints and merge, score, choose. Reserving
is the caller's.

`select_node` walks down the table of verdicts from the best score; only nodes that come out on top and
are not sure are judged singly, by hints and merge where bounds do not tell (`judge`). Once as many
searches met their budget as a pod may have steps, bounds alone are asked, and what they do not tell
is passed over for this pod. Where no node is left, those are judged once more on which the ordinary
budget of steps was too small.
"""

from __future__ import annotations

from collections.abc import Callable

from services.scheduler.filter.constraints.registry import PodChecks
from services.scheduler.filter.topology.predict import predict
from services.scheduler.select.cluster import Cluster
from services.scheduler.select.verdict_cache import RULED_OUT, salt_of
from services.scheduler.snapshot.node_arrays import ScoreOffsets
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod

SWEEP_AFTER = 4
"""Single judgements after which one sweep over all nodes in doubt is cheaper, while it may leave doubts."""


def select_node(cluster: Cluster, pod: Pod, pod_class: PodClass, bars: PodChecks) -> Placed | None:
    """Choose a node for the pod; None if no node takes it. The caller explains why."""
    nominee = _nominated(cluster, pod, pod_class, bars)
    if nominee is not None:
        return nominee
    cluster.evaluator.sweep_if_new(pod_class)  # filter: every node at once
    best = _best(cluster, pod, pod_class, cluster.offsets(pod, bars)) or last_resort(
        cluster, pod_class, lambda node_info: bars.refusal(node_info) is None
    )
    if best is None:
        return None
    node_info, score = best
    return _placed(cluster, pod, pod_class, node_info, score)


def _best(
    cluster: Cluster, pod: Pod, pod_class: PodClass, offsets: ScoreOffsets | None
) -> tuple[NodeInfo, int] | None:
    evaluator, salt, row = cluster.evaluator, salt_of(pod.uid), pod_class.row
    table = evaluator.table
    unsure, searches = 0, cluster.config.steps_pod // cluster.config.steps_node
    evaluator.rank_changed(pod_class)
    try:
        while True:
            slot, best = (
                table.top(row, salt) if offsets is None else table.top_lifted(row, salt, offsets)
            )
            if best == RULED_OUT:
                return None
            node_info = evaluator.at(slot)
            if table.sure[row, slot] and (not node_info.pending or table.exact[row, slot]):
                return node_info, best
            if not table.sure[row, slot]:
                unsure += 1
                if unsure % SWEEP_AFTER == 0 and evaluator.sweep_unsure(pod_class, best):
                    continue
            if searches <= 0:
                evaluator.pass_over_unless_bounds_tell(pod_class, node_info)
            elif evaluator.judge(pod_class, node_info) == best:
                return node_info, best
            else:
                searches -= pod_class.undecided.get(slot) == node_info.ledger_version
    finally:
        evaluator.take_back(pod_class)


def last_resort(
    cluster: Cluster, pod_class: PodClass, may: Callable[[NodeInfo], bool]
) -> tuple[NodeInfo, int] | None:
    """The first node, of those that may be, that a larger budget decides for the pod, as long as
    the pod's own budget lasts.
    """
    evaluator, left = cluster.evaluator, cluster.config.steps_pod
    for node_info in evaluator.undecided(pod_class):
        if left <= 0:
            break
        if may(node_info):
            score = evaluator.judge_harder(pod_class, node_info)
            if score != RULED_OUT:
                return node_info, score
            left -= evaluator.steps_taken(pod_class, node_info)
    return None


def _nominated(cluster: Cluster, pod: Pod, pod_class: PodClass, bars: PodChecks) -> Placed | None:
    """A pod that others were evicted for takes what it claims, if that is enough by now."""
    node_info = cluster.claimed_by(pod.uid)
    if node_info is None or bars.refusal(node_info) is not None:
        return None
    score = cluster.evaluator.judge_harder(pod_class, node_info)
    return None if score == RULED_OUT else _placed(cluster, pod, pod_class, node_info, score)


def _placed(
    cluster: Cluster, pod: Pod, pod_class: PodClass, node_info: NodeInfo, score: int
) -> Placed:
    plan, _ = cluster.evaluator.plan(pod_class, node_info)
    candidates = cluster.evaluator.table.candidates(pod_class.row)
    predicted = predict(node_info, plan) if cluster.config.prediction != "off" else {}
    return Placed(node_info.name, score, candidates, node_info.ledger.report_version, predicted)
