"""The whole judgement of one node for one shape: constraints, node resources, feasibility, order of arrival, score.

Cheap tests first. Must not know other nodes, nor the table that keeps the result.
"""

from __future__ import annotations

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.constraints.predicates import constraint_refusal, fits_node
from services.scheduler.deciding.feasibility.alignment import YES, aligned, surely
from services.scheduler.deciding.feasibility.overtaking import harmless
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.scores import Scorer, score_node
from services.scheduler.deciding.shape import Plan, Shape
from services.scheduler.deciding.verdicts.table import RULED_OUT


def judge(shape: Shape, plan: Plan, facts: NodeFacts, config: CycleConfig, strategy: Scorer) -> int:
    """The node's score, or RULED_OUT."""
    if not fits_node(shape.request, facts):
        return RULED_OUT
    if constraint_refusal(shape.pod.constraints, facts.observed, facts.name) is not None:
        return RULED_OUT
    if plan.mode != "free" and not surely(facts, plan) and aligned(facts, plan, config) != YES:
        return RULED_OUT
    if plan.mode != "free" and not harmless(facts, shape, config):
        return RULED_OUT
    return score_node(facts, shape, plan, strategy)
