"""Pods on their way may arrive in any order: a newcomer must not take a zone that a pod decided before it counts on.

Kubelets admit in the order of arrival, not of decision: bindings differ in their latency, and a kubelet sorts what arrives
together by creation. So a pod passes only if every pod on its way to the node would still be admitted after it, wherever
it lands. Must not know the log or time.
"""

from __future__ import annotations

from copy import copy

import msgspec

from services.scheduler.cycle.alignment import YES, aligned, items_on
from services.scheduler.cycle.config import CycleConfig
from services.scheduler.cycle.counting import everyone_finds_a_zone
from services.scheduler.cycle.node_facts import NodeFacts, tied_zones
from services.scheduler.cycle.policy import SINGLE
from services.scheduler.cycle.reservation import charge_of
from services.scheduler.cycle.shape import Shape, plan_of
from services.scheduler.cycle.unsettled import items_of
from shared.ledger.state import Charge, LedgerNode
from shared.ledger.view import restore, subtract

MOST_ARRIVING = 6
"""Pods on their way that are looked at one by one; beside more, only what is plain passes until a report settles them."""
MOST_OUTCOMES = 16
NEWCOMER = ""
"""No pod's uid: a shape is known by its first pod, which may be one of those on their way."""


def harmless(facts: NodeFacts, shape: Shape, config: CycleConfig) -> bool:
    """True when no pod on its way to this node could be refused because this one came first."""
    if not facts.arriving or facts.report is None or facts.spreads:
        return True
    newcomer = charge_of(facts, shape.pod, shape)
    newcomer.uid = NEWCOMER
    if _roomy(facts, newcomer) or everyone_finds_a_zone(
        facts.firm(facts.lower), items_on(facts), items_of(newcomer, facts.report, ())
    ):
        return True
    if len(facts.arriving) > MOST_ARRIVING:
        return False
    return not any(_costs(facts, each, newcomer, config) for each in facts.charges() if each.uid in facts.arriving)


def _roomy(facts: NodeFacts, newcomer: Charge) -> bool:
    """Enough beside every charge, in each zone that the newcomer could take."""
    return all(
        facts.lower[zone].get(name, 0) >= amount
        for zone, amounts in newcomer.zones.items()
        if zone in facts.lower
        for name, amount in amounts.items()
    )


def _costs(facts: NodeFacts, earlier: Charge, newcomer: Charge, config: CycleConfig) -> bool:
    """Would the newcomer cost the earlier pod its place? One that has none anyway (bound by others) has nothing to lose."""
    nobody = Charge(uid=newcomer.uid, key="", charged_at=0)
    return not _admitted(facts, earlier, newcomer, config) and _admitted(facts, earlier, nobody, config)


def _admitted(facts: NodeFacts, earlier: Charge, newcomer: Charge, config: CycleConfig) -> bool:
    after = copy(facts)
    after.lower = {zone: dict(amounts) for zone, amounts in facts.lower.items()}
    restore(after.lower, earlier.zones)
    subtract(after.lower, newcomer.zones)
    after.ledger = _without(facts.ledger, earlier.uid)
    after.overlay = {uid: charge for uid, charge in facts.overlay.items() if uid != earlier.uid}
    after.overlay[newcomer.uid] = newcomer
    after.unsettled, after.items = True, None
    if facts.report is not None and facts.report.policy != SINGLE:
        after.tied = facts.tied | tied_zones(facts.ledger, (newcomer,))
    return aligned(after, plan_of(earlier.demand, facts.profile), config, MOST_OUTCOMES) == YES


def _without(node: LedgerNode, uid: str) -> LedgerNode:
    return msgspec.structs.replace(node, charges={other: charge for other, charge in node.charges.items() if other != uid})
