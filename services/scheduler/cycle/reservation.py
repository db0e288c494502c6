"""Own reservations: what the ledger's fold will charge, subtracted from a node's facts ahead of it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from services.scheduler.cycle.node_facts import NodeFacts, offered, tied_zones
from services.scheduler.cycle.policy import SINGLE
from services.scheduler.cycle.shape import Shape
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.ledger.charge import charge_zones, narrow, possible_zones
from shared.ledger.state import Charge, ZoneAmounts
from shared.ledger.view import restore, subtract, total

NOTHING: Mapping[str, tuple[int, ...]] = {}
REMEMBERED = 256
"""Charges kept for one shape: the same zones come again and again."""


def reserve(facts: NodeFacts, pod: Pod, shape: Shape, trusted: Mapping[str, tuple[int, ...]] = NOTHING) -> ZoneAmounts:
    """Charge the pod to the node's facts in place, only in the `trusted` zones where some are given; returns zone -> amounts,
    shared by like reservations: read only."""
    report, charge = facts.report, charge_of(facts, pod, shape, trusted)
    demand = charge.demand
    if report is not None and demand:
        subtract(facts.lower, charge.zones)
        facts.unsettled = True
        facts.arriving |= {pod.uid}
        if facts.spreads:
            facts.take_total(charge, facts.totals)
    for name, amount in shape.requested.items():
        facts.requested[name] = facts.requested.get(name, 0) + amount
    facts.overlay[pod.uid] = charge
    facts.items = None
    if report is not None and demand and report.policy != SINGLE:
        facts.tied |= tied_zones(facts.ledger, (charge,))
    return charge.zones


def charge_of(facts: NodeFacts, pod: Pod, shape: Shape, trusted: Mapping[str, tuple[int, ...]] = NOTHING) -> Charge:
    """The charge that the fold will make of this pod on this node as it stands."""
    report = facts.report
    demand = shape.demand(report.tracked) if report is not None else ()
    charge = Charge(uid=pod.uid, key=pod.key, charged_at=0, demand=demand)
    if report is not None and demand:
        charge.possible = narrow(possible_zones(demand, report, facts.upper), trusted)
        charge.zones = _zones(charge, report, shape)
    return charge


def _zones(charge: Charge, report: Report, shape: Shape) -> ZoneAmounts:
    ids = tuple([zone.id for zone in report.zones])
    key = (report.tracked, ids, *charge.possible.items())
    zones = shape.charges.get(key)
    if zones is None:
        zones = charge_zones(charge.demand, charge.possible, ids)
        if len(shape.charges) < REMEMBERED:
            shape.charges[key] = zones
    return zones


def claim_restored(facts: NodeFacts, uid: str) -> NodeFacts:
    """The node as it stands when the nominee's own claim is not held against it."""
    freed = copy(facts)
    freed.lower = {zone: dict(amounts) for zone, amounts in facts.lower.items()}
    restore(freed.lower, facts.claims.get(uid, {}))
    freed.allocatable, freed.totals = offered(facts.ledger, uid), dict(facts.totals)
    if freed.spreads:
        restore({0: freed.totals}, {0: total(facts.claims.get(uid, {}).values())})
    return freed
