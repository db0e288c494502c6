"""Where the kubelet will most likely put the pod's parts: hints and merge on the most likely state of the node.

Most likely, a pod on its way stands where it was predicted; others are charged in all their zones. A prediction narrows
nothing: charges stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from services.scheduler.deciding import policy
from services.scheduler.deciding.feasibility.branches import Bounds, fits, minus
from services.scheduler.deciding.feasibility.capacity import size_in
from services.scheduler.deciding.feasibility.spans import narrow
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.prediction.hints.provider import ZoneBook
from services.scheduler.deciding.prediction.hints.registry import best_hint
from services.scheduler.deciding.shape import Part, Plan
from shared.domain.resources import Amounts, is_memory
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.topology_manager import TopologyManager
from shared.ledger.state import ZoneAmounts
from shared.ledger.view import restore, subtract

MOST_ZONES = 8
"""More zones than this are not predicted where sets of zones must be compared."""

Predicted = dict[str, tuple[int, ...]]


class ZonesFree(Protocol):
    """Zone -> free amounts."""

    def __getitem__(self, zone: int, /) -> Amounts:
        """Those of one zone."""
        ...


def predict(facts: NodeFacts, plan: Plan) -> Predicted:
    """Container -> zone ids, for the containers that pin something; empty where nothing can be said."""
    found = _parts(facts, plan)
    whole = found.get("")
    return found if whole is None else dict.fromkeys(plan.names, whole)


def _parts(facts: NodeFacts, plan: Plan) -> Predicted:
    if plan.mode == "free" or plan.rule.policy == policy.NONE or facts.report is None:
        return {}
    if plan.rule.policy == policy.SINGLE or (not facts.tied and narrow(facts, plan)):
        found = _single(facts, plan, LikelyZones(facts))
        if found or plan.rule.policy != policy.BEST_EFFORT:
            return found or _single(facts, plan, facts.lower)
    if len(facts.zone_ids) > MOST_ZONES or facts.zone_ids[-1] >= 64:
        return {}
    return _merged(facts, plan)


class LikelyZones:
    """What is free where pods on their way stand where they were predicted: zone by zone, for those that are asked for."""

    def __init__(self, facts: NodeFacts) -> None:
        self._lower = facts.lower
        self._moved = _moved(facts) if facts.places else []

    def __getitem__(self, zone: int) -> Amounts:
        """Free amounts of one zone; read only."""
        held = self._lower[zone]
        if not self._moved:
            return held
        free = {zone: dict(held)}
        for charged, taken in self._moved:
            restore(free, {zone: charged.get(zone, {})})
            for at, amounts in taken:
                if at == zone:
                    subtract(free, {zone: amounts})
        return free[zone]


def _moved(facts: NodeFacts) -> list[tuple[ZoneAmounts, list[tuple[int, Amounts]]]]:
    """For each pod on its way that was predicted: what it is charged, and what it likely takes where."""
    found = []
    for charge in facts.charges():
        places = facts.places.get(charge.uid)
        if places and charge.zones and not charge.proven and not charge.held:
            parts = [(places.get(part.name, ()), part) for part in charge.demand if part.kind != "init"]
            found.append((charge.zones, [(zones[0], part.amounts) for zones, part in parts if len(zones) == 1]))
    return found


def likely(facts: NodeFacts) -> Bounds:
    """The same for all zones."""
    zones = LikelyZones(facts)
    return {zone: zones[zone] for zone in facts.lower}


def _single(facts: NodeFacts, plan: Plan, free: ZonesFree) -> Predicted:
    """Where single zones are preferred, the merge takes the lowest one that fits everything (kubelet 1.36)."""
    found: Predicted = {}
    forced: dict[str, int] = {}
    left: dict[int, Amounts] = {}
    for part in plan.parts:
        zone = _lowest(facts, part, forced, left, free)
        if zone is None:
            return {}
        found[part.name] = (zone,)
        if part.kind == "init":
            forced.update({name: zone for name in part.amounts if not is_memory(name)})
        elif part is not plan.parts[-1]:
            left[zone] = minus(left[zone], part.amounts)
    return found


def _lowest(facts: NodeFacts, part: Part, forced: Mapping[str, int], left: dict[int, Amounts], free: ZonesFree) -> int | None:
    """The lowest zone that fits the part and is not ruled out by what init containers left; `left` is filled on the way."""
    pulls = {forced[name] for name in part.amounts if name in forced} if forced else set()
    for zone in facts.zone_ids:
        if zone not in left:
            left[zone] = free[zone]
        if fits(part.amounts, left[zone]) and pulls <= {zone}:
            return zone
    return None


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
