"""Policies none and best-effort: topology refuses nothing, but an allocation can still fail for want of CPUs, memory or
devices on the node as a whole (kubelet 1.36: UnexpectedAdmissionError).

CPUs and devices may come from anywhere. Memory must come from zones that the Memory Manager accepts: sure only where one
zone holds all that the pod takes, since what it takes may turn zones into groups.
"""

from __future__ import annotations

from services.scheduler.cycle.branches import Bounds
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.policy import BEST_EFFORT
from services.scheduler.cycle.shape import Plan
from shared.domain.resources import Amounts, is_memory


def demand_of(plan: Plan) -> tuple[Amounts, Amounts]:
    """(memory and hugepages, the rest) that all parts take together; init containers may be reused but need not be."""
    memory: Amounts = {}
    rest: Amounts = {}
    for part in plan.parts:
        for name, amount in part.amounts.items():
            side = memory if is_memory(name) else rest
            side[name] = side.get(name, 0) + amount
    return memory, rest


def careful(plan: Plan) -> bool:
    """Under best-effort any zone may be chosen for all of a pod, or for a container whose memory is elsewhere: then every
    zone must hold the pod's memory."""
    several = sum(1 for part in plan.parts if any(is_memory(name) for name in part.amounts)) > 1
    return plan.rule.policy == BEST_EFFORT and (several or plan.rule.scope == "pod")


def admitted(facts: NodeFacts, plan: Plan, lower: Bounds) -> bool:
    """True when no allocation can fail within the bounds."""
    memory, rest = demand_of(plan)
    if any(facts.totals.get(name, 0) < amount for name, amount in rest.items()):
        return False
    if not memory:
        return True
    fitting = [all(zone.get(name, 0) >= held for name, held in memory.items()) for zone in lower.values()]
    return all(fitting) if careful(plan) else any(fitting)


def possible(plan: Plan, upper: Bounds) -> bool:
    """False when the node as a whole cannot hold it."""
    return all(
        sum(zone.get(name, 0) for zone in upper.values()) >= amount
        for part in plan.parts
        for name, amount in part.amounts.items()
    )
