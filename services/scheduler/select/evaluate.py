"""The whole judgement of one node for one shape: constraints, node resources, feasibility, score.

Cheap tests first. Must not know other nodes, nor the table that keeps the result.
"""

from __future__ import annotations

from services.scheduler.filter.constraints.predicates import constraint_refusal, fits_node
from services.scheduler.filter.topology.fit import ADMITTED, verdict
from services.scheduler.score.scores import Scorer, score_node
from services.scheduler.select.verdict_cache import RULED_OUT
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan, Shape
from shared.hints.admission_orders import UNKNOWN

UNDECIDED = -2
"""No score: the search met its budget. The table keeps it as ruled out."""


def judge(
    shape: Shape,
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
    if not _open(shape, node_info):
        return RULED_OUT
    if plan.mode != "free":
        found = verdict(node_info, shape, plan, config, steps)
        if found != ADMITTED:
            return UNDECIDED if found == UNKNOWN else RULED_OUT
    if ranked is not None:
        return ranked
    return score_node(node_info, shape, plan, strategy)


def rank(shape: Shape, plan: Plan, node_info: NodeInfo, strategy: Scorer) -> int:
    """The score that the node would have if it took the pod, or RULED_OUT where that is plain to
    see.
    """
    return score_node(node_info, shape, plan, strategy) if _open(shape, node_info) else RULED_OUT


def _open(shape: Shape, node_info: NodeInfo) -> bool:
    """Does the node's object allow the pod, and is there enough on the node as a whole?"""
    return (
        fits_node(shape.request, node_info)
        and constraint_refusal(shape.pod.constraints, node_info.observed, node_info.name) is None
    )
