"""Would this node's kubelet align the pod, in every state that is consistent with what is known? One node, exactly.

Bounds first; where they refuse although the upper bound would not, unsettled pods' alternatives are told apart.
"""

from __future__ import annotations

from services.scheduler.cycle import policy, spans, spread
from services.scheduler.cycle.branches import Bounds, Budget, LimitError, admitted, fits
from services.scheduler.cycle.config import CycleConfig
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.shape import Plan
from services.scheduler.cycle.unsettled import Unsettled, admitted_in_every_outcome, alternatives
from shared.domain.resources import CPU

YES, NO, UNSURE, TOO_MANY = "yes", "no", "unsure", "too many"


def aligned(facts: NodeFacts, plan: Plan, config: CycleConfig) -> str:
    """YES: admitted in every consistent state. NO: in none that the bounds allow. UNSURE: not in every one.
    TOO_MANY: the search met its limit."""
    budget = Budget(config.branch_limit)
    lower, upper = facts.lower, facts.upper
    try:
        if holds(facts, plan, config, lower, upper, budget):
            return YES
        if not possible(facts, plan, upper):
            return NO
        others = unsettled_of(facts, config)
        if not others:
            return UNSURE if lower != upper or len(plan.parts) > 1 else NO
        found = admitted_in_every_outcome(
            lambda low, high: holds(facts, plan, config, low, high, budget), lower, upper, others, budget
        )
        return YES if found else UNSURE
    except LimitError:
        return TOO_MANY


def surely(facts: NodeFacts, plan: Plan) -> bool:
    """The common case, cheap: one zone surely holds all parts together. False says nothing."""
    if not plan.together or plan.mode != "aligned":
        return False
    return any(fits(plan.together, zone) for zone in facts.firm(facts.lower).values())


def holds(facts: NodeFacts, plan: Plan, config: CycleConfig, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """Admitted whatever is free between `lower` and `upper`. Raises LimitError."""
    if plan.whole_cores and not _whole_cores(facts, plan, config, lower):
        return False
    if plan.mode == "spread":
        return spread.admitted(facts, plan, lower, upper, budget)
    if plan.rule.policy == policy.RESTRICTED and not spans.narrow(facts, plan):
        return spans.admitted(facts, plan, lower, upper, budget)
    return admitted(plan.parts, facts.firm(lower), upper, budget)


def possible(facts: NodeFacts, plan: Plan, upper: Bounds) -> bool:
    """Could some state take the pod at all? Necessary, cheap."""
    if plan.mode == "spread":
        return spread.possible(plan, upper)
    if plan.rule.policy == policy.RESTRICTED and not spans.narrow(facts, plan):
        return spans.possible(facts, plan, upper)
    return all(any(fits(part.amounts, zone) for zone in upper.values()) for part in plan.parts)


def unsettled_of(facts: NodeFacts, config: CycleConfig) -> list[Unsettled]:
    """The pods whose alternatives can be told apart, those that hold most first."""
    if facts.report is None or not facts.unsettled:
        return []
    found = [alternatives(charge, facts.report, config.branch_limit) for charge in facts.charges()]
    return sorted((each for each in found if each is not None), key=_weight, reverse=True)


def _weight(each: Unsettled) -> list[int]:
    return [sum(amounts.get(CPU, 0) for amounts in each.charged.values()), len(each.outcomes)]


def _whole_cores(facts: NodeFacts, plan: Plan, config: CycleConfig, lower: Bounds) -> bool:
    """full-pcpus-only: whole cores only, and enough beside the cores that the reserved CPUs touch (kubelet 1.36)."""
    threads = config.threads_per_core
    asked = [part.amounts[CPU] for part in plan.parts if CPU in part.amounts]
    if any(amount % (threads * 1000) for amount in asked):
        return False
    report = facts.report
    cpus = [z.resources[CPU] for z in report.zones if CPU in z.resources] if report is not None else []
    reserved = sum(each.capacity - each.allocatable for each in cpus)
    free = sum(zone.get(CPU, 0) for zone in lower.values())
    return free - reserved * (threads - 1) >= sum(asked)
