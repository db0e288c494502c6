"""Where the kubelet will most likely put the pod's parts, in the most likely state of the node: the lower bound."""

from __future__ import annotations

from services.scheduler.cycle.branches import fits, minus
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.shape import Plan


def predict(facts: NodeFacts, plan: Plan) -> dict[str, tuple[int, ...]]:
    """Container -> zone ids; containers that cannot be predicted are left out."""
    if plan.mode != "aligned":
        return {}
    left = facts.lower
    found: dict[str, tuple[int, ...]] = {}
    for part in plan.parts:
        zone = next((zone for zone in facts.zone_ids if fits(part.amounts, left[zone])), None)
        if zone is None:
            return {}
        found[part.name] = (zone,)
        if part.kind != "init":
            left = {**left, zone: minus(left[zone], part.amounts)}
    return found
