"""Would this node's kubelet align the pod, in every state that is consistent with what is known? One node, exactly.

Bounds first; where they refuse although the upper bound would not, unsettled pods' alternatives are told apart.
"""

from __future__ import annotations

from services.scheduler.deciding import policy
from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.feasibility import spans, spread
from services.scheduler.deciding.feasibility.branches import Bounds, Budget, LimitError, admitted, fits
from services.scheduler.deciding.feasibility.counting import one_zone_remains
from services.scheduler.deciding.feasibility.crowd import NOBODY, Crowd, Item
from services.scheduler.deciding.feasibility.unsettled import Holds, admitted_in_every_outcome, items_of
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.shape import Plan
from shared.domain.resources import CPU

YES, NO, UNSURE, TOO_MANY = "yes", "no", "unsure", "too many"


def aligned(facts: NodeFacts, plan: Plan, config: CycleConfig, outcomes: int | None = None) -> str:
    """YES: admitted in every consistent state. NO: in none that the bounds allow. UNSURE: not in every one.
    TOO_MANY: the search met its limit. `outcomes` replaces the configured limit of outcomes."""
    budget = Budget(config.branch_limit)
    lower, upper = facts.lower, facts.upper
    try:
        if holds(facts, plan, config, lower, upper, budget):
            return YES
        if not possible(facts, plan, upper):
            return NO
        crowd = crowd_on(facts)
        if not crowd:
            return UNSURE if lower != upper or len(plan.parts) > 1 else NO
        told_apart = Budget(config.outcome_limit if outcomes is None else outcomes)
        found = admitted_in_every_outcome(_test(facts, plan, config, budget), lower, upper, crowd, told_apart)
        return YES if found else UNSURE
    except LimitError:
        return TOO_MANY


def _test(facts: NodeFacts, plan: Plan, config: CycleConfig, budget: Budget) -> Holds:
    """What must hold of bounds and of items that are charged in all their zones."""
    narrow = plan.rule.policy == policy.SINGLE or spans.narrow(facts, plan)
    single = plan.mode == "aligned" and bool(plan.together) and narrow

    def test(lower: Bounds, upper: Bounds, crowd: Crowd) -> bool:
        if single and crowd and one_zone_remains(plan.parts, facts.firm(lower), crowd):
            return True
        return holds(facts, plan, config, lower, upper, budget)

    return test


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


def crowd_on(facts: NodeFacts) -> Crowd:
    """What unproven pods take, those first that take most; kept until the node's charges change."""
    if facts.report is None or not facts.unsettled:
        return NOBODY
    kept = facts.items
    if not isinstance(kept, Crowd):
        report, listed = facts.report, facts.ledger.listed or {}
        found = [item for charge in facts.charges() for item in items_of(charge, report, listed.get(charge.key, ()))]
        facts.items = kept = Crowd.of(sorted(found, key=_weight, reverse=True))
    return kept


def _weight(item: Item) -> tuple[int, int, tuple[int, ...], list[tuple[str, int]]]:
    """By content alone, so that equal nodes are searched in the same order."""
    cpu = sum(amounts.get(CPU, 0) for amounts in item.charged.values())
    return cpu, len(item.zones), item.zones, sorted(item.at_most.items())


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
