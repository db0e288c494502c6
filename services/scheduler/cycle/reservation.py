"""Own reservations: what the ledger's fold will charge, subtracted from a node's facts ahead of it."""

from __future__ import annotations

from copy import copy

from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.shape import Shape
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.resources import PODS
from shared.ledger.charge import charge_zones, possible_zones
from shared.ledger.state import Charge, ZoneAmounts
from shared.ledger.view import restore, subtract


def reserve(facts: NodeFacts, pod: Pod, shape: Shape) -> ZoneAmounts:
    """Charge the pod to the node's facts in place; returns zone -> amounts."""
    report = facts.report
    demand = shape.demand(report.tracked) if report is not None else ()
    charge = Charge(uid=pod.uid, key=pod.key, charged_at=0, demand=demand)
    if report is not None and demand:
        charge.possible = possible_zones(demand, report, facts.upper)
        charge.zones = charge_zones(demand, charge.possible, [zone.id for zone in report.zones])
        subtract(facts.lower, charge.zones)
        facts.unsettled = True
    for name, amount in effective_request(pod).items():
        facts.requested[name] = facts.requested.get(name, 0) + amount
    facts.requested[PODS] = facts.requested.get(PODS, 0) + 1
    facts.overlay[pod.uid] = charge
    return charge.zones


def claim_restored(facts: NodeFacts, uid: str) -> NodeFacts:
    """The node as it stands when the nominee's own claim is not held against it."""
    freed = copy(facts)
    freed.lower = {zone: dict(amounts) for zone, amounts in facts.lower.items()}
    restore(freed.lower, facts.claims.get(uid, {}))
    return freed
