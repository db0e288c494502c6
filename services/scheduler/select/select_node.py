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

from services.scheduler.filter.constraints.registry import Bars
from services.scheduler.filter.topology.predict import predict
from services.scheduler.select.cluster import Cluster
from services.scheduler.select.verdict_cache import RULED_OUT, salt_of
from services.scheduler.snapshot.node_arrays import Lifts
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Shape
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod

SWEEP_AFTER = 4
"""Single judgements after which one sweep over all nodes in doubt is cheaper, while it may leave doubts."""


def select_node(cluster: Cluster, pod: Pod, shape: Shape, bars: Bars) -> Placed | None:
    """Choose a node for the pod; None if no node takes it. The caller explains why."""
    nominee = _nominated(cluster, pod, shape, bars)
    if nominee is not None:
        return nominee
    cluster.judging.sweep_if_new(shape)  # filter: every node at once
    best = _best(cluster, pod, shape, cluster.lifts(pod, bars)) or last_resort(
        cluster, shape, lambda node_info: bars.refusal(node_info) is None
    )
    if best is None:
        return None
    node_info, score = best
    return _placed(cluster, pod, shape, node_info, score)


def _best(
    cluster: Cluster, pod: Pod, shape: Shape, lifts: Lifts | None
) -> tuple[NodeInfo, int] | None:
    judging, salt, row = cluster.judging, salt_of(pod.uid), shape.row
    table = judging.table
    unsure, searches = 0, cluster.config.steps_pod // cluster.config.steps_node
    judging.rank_changed(shape)
    try:
        while True:
            slot, best = (
                table.top(row, salt) if lifts is None else table.top_lifted(row, salt, lifts)
            )
            if best == RULED_OUT:
                return None
            node_info = judging.at(slot)
            if table.sure[row, slot] and (not node_info.arriving or table.exact[row, slot]):
                return node_info, best
            if not table.sure[row, slot]:
                unsure += 1
                if unsure % SWEEP_AFTER == 0 and judging.sweep_unsure(shape, best):
                    continue
            if searches <= 0:
                judging.pass_over_unless_bounds_tell(shape, node_info)
            elif judging.judge(shape, node_info) == best:
                return node_info, best
            else:
                searches -= shape.undecided.get(slot) == node_info.taken_in
    finally:
        judging.take_back(shape)


def last_resort(
    cluster: Cluster, shape: Shape, may: Callable[[NodeInfo], bool]
) -> tuple[NodeInfo, int] | None:
    """The first node, of those that may be, that a larger budget decides for the pod, as long as
    the pod's own budget lasts.
    """
    judging, left = cluster.judging, cluster.config.steps_pod
    for node_info in judging.undecided(shape):
        if left <= 0:
            break
        if may(node_info):
            score = judging.judge_harder(shape, node_info)
            if score != RULED_OUT:
                return node_info, score
            left -= judging.steps_taken(shape, node_info)
    return None


def _nominated(cluster: Cluster, pod: Pod, shape: Shape, bars: Bars) -> Placed | None:
    """A pod that others were evicted for takes what it claims, if that is enough by now."""
    node_info = cluster.claimed_by(pod.uid)
    if node_info is None or bars.refusal(node_info) is not None:
        return None
    score = cluster.judging.judge_harder(shape, node_info)
    return None if score == RULED_OUT else _placed(cluster, pod, shape, node_info, score)


def _placed(cluster: Cluster, pod: Pod, shape: Shape, node_info: NodeInfo, score: int) -> Placed:
    plan, _ = cluster.judging.plan(shape, node_info)
    candidates = cluster.judging.table.candidates(shape.row)
    predicted = predict(node_info, plan) if cluster.config.prediction != "off" else {}
    return Placed(node_info.name, score, candidates, node_info.ledger.report_version, predicted)
