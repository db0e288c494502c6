"""Policies none and best-effort: topology refuses nothing, but an allocation can still fail for want of CPUs, memory or
devices on the node as a whole (kubelet 1.36: UnexpectedAdmissionError).

CPUs and devices may come from anywhere. Memory must come from zones that the Memory Manager accepts. Under none it takes its
own best hint: sure where one zone holds all that the pod takes, or where every branch over sets of zones finds one. Under
best-effort the merged mask is part of such a hint, and may be so small that it splits a group of zones, which is refused at
once (a mask of several zones) or leaves the others of the group useless to everybody.
"""

from __future__ import annotations

import msgspec

from services.scheduler.deciding.feasibility import spans
from services.scheduler.deciding.feasibility.branches import Bounds, Budget, fits
from services.scheduler.deciding.feasibility.capacity import size_in
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.policy import BEST_EFFORT, NONE
from services.scheduler.deciding.shape import Part, Plan
from shared.domain.resources import CPU, Amounts, is_device, is_memory
from shared.ledger.view import total


def demand_of(plan: Plan) -> tuple[Amounts, Amounts]:
    """(the most memory and hugepages that may be held in one zone, the most of the rest at any time). What init containers
    leave is reused: CPUs and devices always, memory only by blocks in the same zones, as under none, where each container
    takes its own best hint."""
    return _peak(plan, reused=plan.rule.policy == NONE, memory=True), _peak(plan, reused=True, memory=False)


def _peak(plan: Plan, reused: bool, memory: bool) -> Amounts:
    running, highest = Amounts(), Amounts()
    for part in plan.parts:
        for name, amount in part.amounts.items():
            if is_memory(name) is memory:
                highest[name] = max(highest.get(name, 0), running.get(name, 0) + amount)
                if part.kind != "init" or not reused:
                    running[name] = running.get(name, 0) + amount
    return highest


def admitted(facts: NodeFacts, plan: Plan, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """True when no allocation can fail within the bounds. Raises LimitError."""
    memory, rest = demand_of(plan)
    if any(facts.totals.get(name, 0) < amount for name, amount in rest.items()):
        return False
    if not memory:
        return True
    fitting = {zone for zone, free in lower.items() if fits(memory, free)}
    if plan.rule.policy == BEST_EFFORT:
        if _in_any_mask(facts, plan, fitting, rest, lower) or _drawn_together(facts, plan, lower, upper):
            return True
        return _alone(facts, plan, rest, lower, upper, budget)
    return bool(fitting) or _sets(facts, plan, lower, upper, budget)


def _in_any_mask(facts: NodeFacts, plan: Plan, fitting: set[int], rest: Amounts, lower: Bounds) -> bool:
    """best-effort: memory is found whatever mask the hints are merged to. `fitting`: zones that hold all of the pod's memory."""
    single = spans.alone_zones(facts, lower)
    fitting = fitting | {zone for zone in single if zone in lower and fits(_peak(plan, reused=True, memory=True), lower[zone])}
    useful = fitting & _bearing(facts, [name for name in rest if is_device(name)])
    if not useful:
        return False
    loose, one_mask, compact = set(lower) - single, plan.rule.scope == "pod", _compact(facts, plan)
    whole = compact or len(loose) <= 2  # no mask of several zones is part of a larger group
    if whole and (loose <= useful or (useful & single and (loose <= fitting or not one_mask))):
        return True
    grouped = spans.grouped_zones(facts, lower)
    if one_mask:
        return not grouped and loose <= fitting
    blocks = sum(1 for part in plan.parts if any(is_memory(name) for name in part.amounts))
    undivided = not grouped and (blocks == 1 or (blocks == 2 and len(lower) <= 2))
    return bool(useful - grouped) and (compact or undivided)


def _drawn_together(facts: NodeFacts, plan: Plan, lower: Bounds, upper: Bounds) -> bool:
    """best-effort, where no zones are grouped: one zone surely holds everything, and is the lowest that any init container
    could get. What init containers leave draws the others there; those that are not drawn take the lowest zone that fits."""
    inits = [part for part in plan.parts if part.kind == "init"]
    lowest = {min((zone for zone, held in upper.items() if fits(part.amounts, held)), default=-1) for part in inits}
    if len(lowest) != 1 or plan.rule.scope == "pod" or spans.grouped_zones(facts, lower):
        return False
    return fits(total(part.amounts for part in plan.parts), lower.get(lowest.pop(), {}))


def _alone(facts: NodeFacts, plan: Plan, rest: Amounts, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """best-effort: one container that needs several zones for its memory, on a node without groups."""
    if len(plan.parts) > 1 or plan.rule.scope == "pod" or any(is_device(name) for name in rest):
        return False
    return not spans.grouped_zones(facts, lower) and _sets(facts, plan, lower, upper, budget)


def _compact(facts: NodeFacts, plan: Plan) -> bool:
    """Each container surely finds each of its other resources in one zone: a merged mask is then a single zone (best-effort
    takes no mask that is larger than the largest of the narrowest). What init containers leave may stand in several zones."""
    before: Amounts = {}
    for part in () if plan.inits else plan.parts:
        for name, amount in part.amounts.items():
            if not is_memory(name):
                if not _in_one_zone(facts, name, amount, before.get(name, 0)):
                    return False
                before[name] = before.get(name, 0) + amount
    return not plan.inits


def _in_one_zone(facts: NodeFacts, name: str, amount: int, before: int) -> bool:
    """By what is free in some zone, or by what is free on the whole: if each zone had less, all together had less."""
    unit = 1000 if name == CPU else 1
    if facts.totals.get(name, 0) - before > len(facts.lower) * (amount - unit):
        return True
    return any(free.get(name, 0) >= before + amount for free in facts.lower.values())


def _sets(facts: NodeFacts, plan: Plan, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    parts = [_memory_of(part) for part in plan.parts]
    return spans.memory_admitted(facts, [part for part in parts if part.amounts], lower, upper, budget)


def _bearing(facts: NodeFacts, devices: list[str]) -> set[int]:
    """Zones that have all these devices: best-effort merges memory elsewhere with no device hint, and takes all zones then,
    which the Memory Manager may refuse (kubelet 1.36: device hints only over zones with devices)."""
    zones = facts.report.zones if facts.report is not None else ()
    return {zone.id for zone in zones if all(size_in(zone, name) > 0 for name in devices)}


def _memory_of(part: Part) -> Part:
    return msgspec.structs.replace(part, amounts={name: a for name, a in part.amounts.items() if is_memory(name)})


def possible(plan: Plan, upper: Bounds) -> bool:
    """False when the node as a whole cannot hold it."""
    return all(
        sum(zone.get(name, 0) for zone in upper.values()) >= amount
        for part in plan.parts
        for name, amount in part.amounts.items()
    )
