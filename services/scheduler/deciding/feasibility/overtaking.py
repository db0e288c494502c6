"""Pods on their way may arrive in any order: a newcomer must not take a zone that a pod decided before it counts on.

Kubelets admit in the order of arrival, not of decision: bindings differ in their latency, and a kubelet sorts what arrives
together by creation. So a pod passes only if every pod on its way to the node would still be admitted after it, wherever
it lands. Under none and best-effort, too: an init container's CPUs are reused by the pod itself, so that it may hold more in
the end than it needs to be admitted, and its memory may be where another needs it. Must not know the log or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import msgspec

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.feasibility.alignment import TOO_MANY, YES, aligned, crowd_on
from services.scheduler.deciding.feasibility.branches import Bounds, fits
from services.scheduler.deciding.feasibility.counting import everyone_finds_a_zone
from services.scheduler.deciding.feasibility.unsettled import items_of
from services.scheduler.deciding.node_facts import NodeFacts, held_once, tied_zones
from services.scheduler.deciding.policy import BEST_EFFORT, NONE, SINGLE
from services.scheduler.deciding.reservation import charge_of
from services.scheduler.deciding.shape import WHOLE_CORES, Shape, plan_of
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device, is_memory
from shared.ledger.state import Charge, LedgerNode, ZoneAmounts
from shared.ledger.view import restore, subtract

MOST_ARRIVING = 6
"""Pods on their way that are looked at one by one; beside more, only what is plain passes until a report settles them."""
MOST_OUTCOMES = 16
NEWCOMER = ""
"""No pod's uid: a shape is known by its first pod, which may be one of those on their way."""


def harmless(facts: NodeFacts, shape: Shape, config: CycleConfig) -> bool:
    """True when no pod on its way to this node could be refused because this one came first."""
    if not facts.arriving or facts.report is None:
        return True
    newcomer = charge_of(facts, shape.pod, shape)
    newcomer.uid = NEWCOMER
    arriving = [charge for charge in facts.charges() if charge.uid in facts.arriving]
    if _enough_for_all(facts, arriving, newcomer) if facts.spreads else _zones_for_all(facts, facts.report, arriving, newcomer):
        return True
    if len(arriving) > MOST_ARRIVING:
        return False
    return not any(_costs(facts, each, newcomer, config) for each in arriving)


def _zones_for_all(facts: NodeFacts, report: Report, arriving: Sequence[Charge], newcomer: Charge) -> bool:
    """Where pods take single zones: one for each, whatever the order. False says nothing."""
    if _roomy(facts, newcomer) or _everyone_keeps_a_zone(facts, arriving, newcomer):
        return True
    return everyone_finds_a_zone(facts.firm(facts.lower), crowd_on(facts), items_of(newcomer, report, ()))


def _roomy(facts: NodeFacts, newcomer: Charge) -> bool:
    """Enough beside every charge, in each zone that the newcomer could take."""
    lower = facts.lower
    return all(fits(amounts, lower[zone]) for zone, amounts in newcomer.zones.items() if zone in lower)


def _enough_for_all(facts: NodeFacts, arriving: Sequence[Charge], newcomer: Charge) -> bool:
    """Enough CPUs and devices beside every charge on the node as a whole, and memory: under none in one zone, as every pod is
    charged in all of them; under best-effort in each. False says nothing."""
    if facts.tied or WHOLE_CORES in facts.profile[3] or tied_zones(facts.ledger, (newcomer,)):
        return False
    taken = held_once(newcomer)
    if any(facts.totals.get(name, 0) < amount for name, amount in taken.items() if not is_memory(name)):
        return False
    holders = [charge for charge in arriving if any(is_memory(name) for name in held_once(charge))]
    if not holders or (facts.rule.policy == NONE and not any(map(is_memory, taken))):
        return True
    if facts.rule.policy == BEST_EFFORT and (len(facts.lower) > 2 or any(map(_has_devices, holders))):
        return False  # the mask of one on its way may depend on more than memory
    memory = {name for charge in (*holders, newcomer) for name in held_once(charge) if is_memory(name)}
    enough = [all(held.get(name, 0) >= taken.get(name, 0) for name in memory) for held in facts.lower.values()]
    return any(enough) if facts.rule.policy == NONE else all(enough)


def _has_devices(charge: Charge) -> bool:
    return any(is_device(name) for part in charge.demand for name in part.amounts)


def _everyone_keeps_a_zone(facts: NodeFacts, arriving: Sequence[Charge], newcomer: Charge) -> bool:
    """Each pod on its way has a zone that holds it whole beside every other charge and the newcomer. False says nothing."""
    if facts.tied or WHOLE_CORES in facts.profile[3]:
        return False
    if facts.rule.policy != SINGLE and tied_zones(facts.ledger, (newcomer,)):
        return False
    return all(_keeps_a_zone(facts.lower, charge, newcomer.zones) for charge in arriving)


def _keeps_a_zone(lower: Bounds, earlier: Charge, taken: ZoneAmounts) -> bool:
    """Init containers force zones, and what was proven once is charged elsewhere: not answered here."""
    if earlier.held or any(part.kind == "init" for part in earlier.demand):
        return False
    places = list(earlier.possible.values())
    return any(
        zone in earlier.zones
        and all(zone in each for each in places)
        and _covers(lower[zone], earlier.zones[zone], taken.get(zone))
        for zone in places[0]
        if zone in lower
    )


def _covers(free: Amounts, held: Amounts, taken: Amounts | None) -> bool:
    """True when enough is free beside what is held already, for what is taken too."""
    if taken is None:
        return all(free.get(name, 0) >= 0 for name in held)
    return all(free.get(name, 0) >= taken.get(name, 0) for name in held)


def _costs(facts: NodeFacts, earlier: Charge, newcomer: Charge, config: CycleConfig) -> bool:
    """Would the newcomer cost the earlier pod its place? One that is known to have none (bound by others) has nothing to lose;
    where a search met its limit, nobody knows."""
    nobody = Charge(uid=newcomer.uid, key="", charged_at=0)
    if _verdict(facts, earlier, newcomer, config) == YES:
        return False
    return _verdict(facts, earlier, nobody, config) in (YES, TOO_MANY)


def _verdict(facts: NodeFacts, earlier: Charge, newcomer: Charge, config: CycleConfig) -> str:
    """Whether the earlier pod is aligned after the newcomer."""
    after = copy(facts)
    after.lower = {zone: dict(amounts) for zone, amounts in facts.lower.items()}
    restore(after.lower, earlier.zones)
    subtract(after.lower, newcomer.zones)
    after.ledger = _without(facts.ledger, earlier.uid)
    after.overlay = {uid: charge for uid, charge in facts.overlay.items() if uid != earlier.uid}
    after.overlay[newcomer.uid] = newcomer
    after.unsettled, after.items = True, None
    after.totals = after.surely_free() if after.spreads else {}
    if facts.report is not None and facts.report.policy != SINGLE:
        after.tied = facts.tied | tied_zones(facts.ledger, (newcomer,))
    return aligned(after, plan_of(earlier.demand, facts.profile), config, MOST_OUTCOMES)


def _without(node: LedgerNode, uid: str) -> LedgerNode:
    return msgspec.structs.replace(node, charges={other: charge for other, charge in node.charges.items() if other != uid})
