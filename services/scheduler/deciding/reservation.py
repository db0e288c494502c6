"""Own reservations: what the ledger's fold will charge, subtracted from a node's facts ahead of it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from services.scheduler.deciding.node_facts import NodeFacts, offered, tied_zones
from services.scheduler.deciding.shape import Shape
from shared.domain.demand import ContainerDemand
from shared.domain.pod import Pod
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.ledger.charge import charge_zones, narrow
from shared.ledger.landing import Landing, landing
from shared.ledger.state import NOT_SENT_YET, Charge, ZoneAmounts
from shared.ledger.view import restore, subtract, total

NOTHING: Mapping[str, tuple[int, ...]] = {}
NO_LANDING = Landing({}, {})


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
    if report is not None and demand and report.policy != SINGLE_NUMA_NODE:
        facts.tied |= tied_zones(facts.ledger, (charge,))
    return charge.zones


def charge_of(facts: NodeFacts, pod: Pod, shape: Shape, trusted: Mapping[str, tuple[int, ...]] = NOTHING) -> Charge:
    """The charge that the fold will make of this pod on this node as it stands."""
    demand = shape.demand(facts.report.tracked) if facts.report is not None else ()
    possible, zones = _landing(facts, demand, trusted)
    return Charge(uid=pod.uid, key=pod.key, charged_at=0, demand=demand, possible=possible, zones=zones, sent_at=NOT_SENT_YET)


def _landing(facts: NodeFacts, demand: tuple[ContainerDemand, ...], trusted: Mapping[str, tuple[int, ...]]) -> Landing:
    """Where it could land, only in the `trusted` zones where some are given."""
    if facts.report is None or not demand:
        return NO_LANDING
    found = landing(demand, facts.report, facts.upper)
    if not trusted:
        return found
    possible = narrow(found.possible, trusted)
    return Landing(possible, charge_zones(demand, possible, facts.zone_ids, facts.report))


def claim_restored(facts: NodeFacts, uid: str) -> NodeFacts:
    """The node as it stands when the nominee's own claim is not held against it."""
    freed = copy(facts)
    freed.lower = {zone: dict(amounts) for zone, amounts in facts.lower.items()}
    restore(freed.lower, facts.claims.get(uid, {}))
    freed.allocatable, freed.totals = offered(facts.ledger, uid), dict(facts.totals)
    freed.claims = {other: claim for other, claim in facts.claims.items() if other != uid}
    freed.outlooks = freed.waiting = freed.expected_zones = freed.views = None
    if freed.spreads:
        restore({0: freed.totals}, {0: total(facts.claims.get(uid, {}).values())})
    return freed
