"""Where the kubelet will most likely put the pod's parts: hints and merge on the most likely state of the node.

Most likely, a pod on its way stands where it was predicted; others are charged in all their zones. A prediction narrows
nothing: charges stay what they are.
"""

from __future__ import annotations

from services.scheduler.cycle import policy
from services.scheduler.cycle.branches import Bounds, fits, minus
from services.scheduler.cycle.capacity import size_in
from services.scheduler.cycle.hints.provider import ZoneBook
from services.scheduler.cycle.hints.registry import best_hint
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.shape import Part, Plan
from services.scheduler.cycle.spans import narrow
from shared.domain.resources import Amounts, is_memory
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.topology_manager import TopologyManager
from shared.ledger.view import restore, subtract

MOST_ZONES = 8
"""More zones than this are not predicted where sets of zones must be compared."""

Predicted = dict[str, tuple[int, ...]]


def predict(facts: NodeFacts, plan: Plan) -> Predicted:
    """Container -> zone ids, for the containers that pin something; empty where nothing can be said."""
    found = _parts(facts, plan)
    whole = found.get("")
    return found if whole is None else dict.fromkeys(plan.names, whole)


def _parts(facts: NodeFacts, plan: Plan) -> Predicted:
    if plan.mode == "free" or plan.rule.policy == policy.NONE or facts.report is None:
        return {}
    if plan.rule.policy == policy.SINGLE or (plan.rule.policy == policy.RESTRICTED and not facts.tied and narrow(facts, plan)):
        return _single(facts, plan, likely(facts)) or _single(facts, plan, facts.lower)
    if len(facts.zone_ids) > MOST_ZONES or facts.zone_ids[-1] >= 64:
        return {}
    return _merged(facts, plan)


def likely(facts: NodeFacts) -> Bounds:
    """What is free when pods on their way stand where they were predicted."""
    if not facts.places:
        return facts.lower
    free = {zone: dict(held) for zone, held in facts.lower.items()}
    for charge in facts.charges():
        places = facts.places.get(charge.uid)
        if places and charge.zones and not charge.proven and not charge.held:
            restore(free, charge.zones)
            for part in charge.demand:
                zones = places.get(part.name, ())
                if len(zones) == 1 and part.kind != "init":
                    subtract(free, {zones[0]: part.amounts})
    return free


def _single(facts: NodeFacts, plan: Plan, free: Bounds) -> Predicted:
    """Where single zones are preferred, the merge takes the lowest one that fits everything (kubelet 1.36)."""
    found: Predicted = {}
    forced: dict[str, int] = {}
    for part in plan.parts:
        pulls = {forced[name] for name in part.amounts if name in forced}
        zones = [zone for zone in facts.zone_ids if pulls <= {zone} and fits(part.amounts, free[zone])]
        if not zones:
            return {}
        found[part.name] = (zones[0],)
        if part.kind == "init":
            forced.update({name: zones[0] for name in part.amounts if not is_memory(name)})
        elif len(plan.parts) > 1:
            free = {**free, zones[0]: minus(free[zones[0]], part.amounts)}
    return found


def _merged(facts: NodeFacts, plan: Plan) -> Predicted:
    manager = _manager(facts, plan)
    book, found = _book(facts, likely(facts)), Predicted()
    for part in plan.parts:
        hint, admitted = best_hint(manager, part.amounts, book)
        if not admitted or hint.mask is None:
            return {}
        zones = nodes_of(hint.mask)
        found[part.name] = zones
        book = _after(book, part, zones)
    return found


def _manager(facts: NodeFacts, plan: Plan) -> TopologyManager:
    report = facts.report
    distances = None
    if report is not None and report.options.get("prefer-closest-numa-nodes") == "true":
        highest = facts.zone_ids[-1] + 1
        distances = {zone.id: tuple(zone.costs.get(other, 255) for other in range(highest)) for zone in report.zones}
    scope = "pod" if plan.rule.scope == "pod" else "container"
    return TopologyManager(plan.rule.policy, scope, mask_of(facts.zone_ids), distances)  # type: ignore[arg-type]


def _book(facts: NodeFacts, free: Bounds) -> ZoneBook:
    assert facts.report is not None
    size = {zone.id: {name: size_in(zone, name) for name in zone.resources} for zone in facts.report.zones}
    groups: dict[int, int] = {}
    used: set[int] = set()
    for placements in (facts.ledger.listed or {}).values():
        for item in (item for placement in placements for item in placement.held if is_memory(item.resource)):
            used.update(item.zones)
            groups.update({zone: mask_of(item.zones) for zone in item.zones})
    return ZoneBook(size, free, groups, frozenset(used))


def _after(book: ZoneBook, part: Part, zones: tuple[int, ...]) -> ZoneBook:
    """The book once the part holds its amounts: filled zone by zone, lowest first."""
    mask = mask_of(zones)
    if part.kind == "init":
        reuse = {name: mask for name in part.amounts if not is_memory(name)}
        return ZoneBook(book.size, book.free, book.groups, book.used, {**book.reuse, **reuse})
    left, free = dict(part.amounts), dict(book.free)
    for zone in zones:
        taken: Amounts = {name: min(amount, max(0, free[zone].get(name, 0))) for name, amount in left.items()}
        free[zone] = minus(free[zone], taken)
        left = {name: amount - taken[name] for name, amount in left.items()}
    groups, used = dict(book.groups), book.used
    if any(is_memory(name) for name in part.amounts):
        groups.update(dict.fromkeys(zones, mask))
        used = used | set(zones)
    return ZoneBook(book.size, free, groups, used, book.reuse)
