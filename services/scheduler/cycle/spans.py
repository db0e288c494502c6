"""The restricted policy where a part is larger than any one zone: the kubelet then prefers sets of the least number of
zones that could ever hold it, the same set for every resource.
"""

from __future__ import annotations

from services.scheduler.cycle.branches import Bounds, Budget
from services.scheduler.cycle.capacity import capacities
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.shape import Plan


def narrow(facts: NodeFacts, plan: Plan) -> bool:
    """True when every amount fits one zone's capacity: the preferred hints are then single zones."""
    if facts.report is None:
        return True
    largest = capacities(facts.report)
    return all(largest.get(name, 0) >= held for part in plan.parts for name, held in part.amounts.items())


def admitted(facts: NodeFacts, plan: Plan, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """True when every part finds a set of zones of the preferred size on every branch. Raises LimitError."""
    return False


def possible(facts: NodeFacts, plan: Plan, upper: Bounds) -> bool:
    """Could some state hold it?"""
    return False
