"""Does this node surely admit the pod, and does nobody on the way there lose by it? Bounds ahead, hints and merge behind.

Where a bound answers, no kubelet need be imagined. Otherwise the hint providers are asked over every state that the ledger
and the report allow, in every order of arrival, within a budget of steps. Must not know scores or other nodes.
"""

from __future__ import annotations

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.feasibility import bounds
from services.scheduler.deciding.feasibility.outlook import outlook_of
from services.scheduler.deciding.feasibility.pigeonhole import Waiting, everybody_finds_a_zone, waiting_on
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.policy import SINGLE
from services.scheduler.deciding.reservation import charge_of
from services.scheduler.deciding.shape import Plan, Shape
from shared.domain.resources import is_memory
from shared.hints.arrivals import Budget, Verdict, judged
from shared.hints.request import request_of
from shared.ledger.state import Charge, LedgerNode

ADMITTED: Verdict = "admitted"
REFUSED: Verdict = "refused"
ENDANGERS: Verdict = "endangers"
UNKNOWN: Verdict = "unknown"

NEWCOMER = ""
"""No pod's uid: a shape is known by its first pod, which may be one of those on their way."""


def verdict(facts: NodeFacts, shape: Shape, plan: Plan, config: CycleConfig, steps: int) -> Verdict:
    """The answer for a pod of this shape, whose plan is not `free`."""
    if plan.one_by_one:
        return searched(facts, plan, steps)
    if plan.whole_cores and facts.report is not None and facts.report.cpus is None:
        if not bounds.whole_cores_left(facts, plan, config.threads_per_core):
            return REFUSED
        if surely(facts, shape, plan):
            return ADMITTED
    elif not plan.whole_cores and surely(facts, shape, plan):
        return ADMITTED
    if not bounds.possible(facts, plan):
        return REFUSED
    return searched(facts, plan, steps)


def surely(facts: NodeFacts, shape: Shape, plan: Plan) -> bool:
    """Sufficient and cheap; False says nothing."""
    if facts.report is None:
        return False
    if facts.spreads:
        newcomer = charge_of(facts, shape.pod, shape)
        arriving = [charge for charge in facts.charges() if charge.uid in facts.arriving]
        return bounds.enough_on_the_whole(facts, plan, newcomer, arriving)
    if not bounds.one_zone_each(facts, plan):
        return False
    if bounds.together(facts, plan) and (not facts.arriving or _harmless(facts, plan, charge_of(facts, shape.pod, shape))):
        return True
    if not plan.together or plan.whole_cores or not facts.unsettled:
        return False
    waiting = waiting_beside(facts)
    return waiting is not None and everybody_finds_a_zone(waiting, plan)


def _harmless(facts: NodeFacts, plan: Plan, newcomer: Charge) -> bool:
    """Nobody on the way can miss what the newcomer takes, whatever they ask for."""
    if plan.whole_cores or (facts.rule.policy != SINGLE and any(is_memory(name) for name in plan.together) and facts.tied):
        return False
    if bounds.room_beside_all(facts, newcomer):
        return True
    if facts.tied:
        return False
    return bounds.everyone_keeps_a_zone(facts, [each for each in facts.charges() if each.uid in facts.arriving], newcomer)


_Counted = tuple[LedgerNode, int, Waiting | None]


def waiting_beside(facts: NodeFacts) -> Waiting | None:
    """Those on their way, counted; kept until the node's charges change."""
    kept: _Counted | None = facts.waiting
    if kept is None or kept[0] is not facts.ledger or kept[1] != len(facts.overlay):
        found = waiting_on(facts, facts.report) if facts.report is not None else None
        facts.waiting = kept = facts.ledger, len(facts.overlay), found
    return kept[2]


# -- the search --------------------------------------------------------------------------------------------------------


def searched(facts: NodeFacts, plan: Plan, steps: int) -> Verdict:
    """By hints and merge over every consistent state."""
    outlook = outlook_of(facts, plan)
    before = outlook.before(steps)
    if outlook.states is None or before is None:
        return UNKNOWN
    return judged(outlook.states.rules, before, request_of(plan.demand), Budget(steps))
