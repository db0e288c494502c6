"""Policies none and best-effort: topology refuses nothing, but an allocation can still fail for want of CPUs, memory or
devices on the node as a whole (kubelet 1.36: UnexpectedAdmissionError).

CPUs and devices may come from anywhere. Memory must come from zones that the Memory Manager accepts, which is sure where one
zone holds all that the pod takes, or where every branch over sets of zones finds one.
"""

from __future__ import annotations

import msgspec

from services.scheduler.cycle import spans
from services.scheduler.cycle.branches import Bounds, Budget
from services.scheduler.cycle.capacity import size_in
from services.scheduler.cycle.node_facts import NodeFacts
from services.scheduler.cycle.policy import BEST_EFFORT
from services.scheduler.cycle.shape import Part, Plan
from shared.domain.resources import Amounts, is_device, is_memory


def demand_of(plan: Plan) -> tuple[Amounts, Amounts]:
    """(memory and hugepages that all parts hold together, the most of the rest at any time). What init containers leave
    is reused: CPUs and devices always, memory only in the same zones."""
    memory: Amounts = {}
    running: Amounts = {}
    highest: Amounts = {}
    for part in plan.parts:
        for name, amount in part.amounts.items():
            if is_memory(name):
                memory[name] = memory.get(name, 0) + amount
                continue
            highest[name] = max(highest.get(name, 0), running.get(name, 0) + amount)
            if part.kind != "init":
                running[name] = running.get(name, 0) + amount
    return memory, highest


def careful(plan: Plan) -> bool:
    """Under best-effort a container's hint need not be where its memory is. With several containers, or one hint for all of
    them, only a node whose every zone holds the pod's memory is sure."""
    several = sum(1 for part in plan.parts if any(is_memory(name) for name in part.amounts)) > 1
    return plan.rule.policy == BEST_EFFORT and (several or plan.rule.scope == "pod")


def admitted(facts: NodeFacts, plan: Plan, lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """True when no allocation can fail within the bounds. Raises LimitError."""
    memory, rest = demand_of(plan)
    if any(facts.totals.get(name, 0) < amount for name, amount in rest.items()):
        return False
    if not memory:
        return True
    fitting = {zone for zone, free in lower.items() if all(free.get(name, 0) >= held for name, held in memory.items())}
    if careful(plan):
        return len(fitting) == len(lower)
    devices = [name for name in rest if is_device(name)] if plan.rule.policy == BEST_EFFORT else []
    if devices:
        return bool(fitting & _bearing(facts, devices))
    if fitting:
        return True
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
