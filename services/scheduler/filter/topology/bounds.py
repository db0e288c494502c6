"""Cheap bounds of a verdict: what surely passes and what surely does not, from `free_min` and `free_max`
alone.

`free_min` charges every pod of unknown zone in all zones where it may be, `free_max` in none. They spare
the search over a kubelet's states, and never decide otherwise than it would. Must not know hint
providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.scheduler.snapshot.node_info import NodeInfo, held_once
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.zone_sizes import (
    fits_one_zone,
    several_kinds_of_memory,
    widths_at_most,
)
from shared.domain.demand import outside_pod_hint
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts, is_device, memory_of
from shared.ledger.state import Charge, ZoneAmounts

Bounds = Mapping[int, Amounts]


def fits(amounts: Amounts, zone: Amounts) -> bool:
    """True when the zone holds at least `amounts`."""
    for name, asked in amounts.items():  # noqa: SIM110 - the hottest line of a warm decision
        if zone.get(name, 0) < asked:
            return False
    return True


def one_zone_each(node_info: NodeInfo, plan: Plan) -> bool:
    """True where every part of the pod must go into one zone: no wider set of zones is ever
    preferred.
    """
    if plan.rule.policy == SINGLE_NUMA_NODE:
        return True
    return plan.rule.policy == RESTRICTED and fits_one_zone(
        [part.amounts for part in plan.parts], node_info.machine.capacities
    )


def together(node_info: NodeInfo, plan: Plan) -> bool:
    """The common case: one zone surely holds all parts at once. False says nothing."""
    if not plan.together:
        return False
    return any(
        fits(plan.together, zone)
        for zone in node_info.for_single_zones(node_info.free_min).values()
    )


def each_finds_a_zone(node_info: NodeInfo, plan: Plan) -> bool:
    """Each part surely finds a zone whatever zones those before it took: one holds it and all of
    them, or more zones hold it than there are parts before it. What a sweep says of all nodes at
    once. False says nothing."""
    if not plan.together:
        return False
    zones, before = node_info.for_single_zones(node_info.free_min).values(), dict[str, int]()
    for at, part in enumerate(plan.parts):
        beside = {name: amount + before.get(name, 0) for name, amount in part.amounts.items()}
        if (
            not any(fits(beside, zone) for zone in zones)
            and sum(fits(part.amounts, zone) for zone in zones) <= at
        ):
            return False
        before |= {name: amount + before.get(name, 0) for name, amount in part.amounts.items()}
    return True


def room_beside_all(node_info: NodeInfo, newcomer: Charge) -> bool:
    """Enough beside every charge in each zone that the newcomer could take: nobody on the way can
    miss it.
    """
    free_min = node_info.free_min
    return all(
        fits(amounts, free_min[zone])
        for zone, amounts in newcomer.zones.items()
        if zone in free_min
    )


def everyone_keeps_a_zone(node_info: NodeInfo, arriving: list[Charge], newcomer: Charge) -> bool:
    """Each pod on its way has a zone that holds it whole beside every other charge and the
    newcomer. False says nothing.
    """
    taken = newcomer.zones
    if node_info.rule.scope == "pod" and any(
        outside_pod_hint(charge.demand) for charge in arriving
    ):
        return False
    return all(_keeps_a_zone(node_info.free_min, charge, taken) for charge in arriving)


def _keeps_a_zone(free_min: Bounds, earlier: Charge, taken: ZoneAmounts) -> bool:
    """Init containers force zones, and so do devices that are named and not asked for; what was
    proven once is charged elsewhere: not answered here."""
    if earlier.confirmed_zones or any(part.kind == "init" or part.zeros for part in earlier.demand):
        return False
    places = list(earlier.possible.values())
    common = [
        zone
        for zone in places[0]
        if zone in free_min and zone in earlier.zones and all(zone in each for each in places)
    ]
    return any(_covers(free_min[zone], earlier.zones[zone], taken.get(zone)) for zone in common)


def _covers(free: Amounts, held: Amounts, taken: Amounts | None) -> bool:
    """True when enough is free beside what is held already, for what is taken too; a zone without a
    resource has none of it.
    """
    if taken is None:
        return all(free.get(name, -1) >= 0 for name in held)
    return all(free.get(name, -1) >= taken.get(name, 0) for name in held)


def possible(node_info: NodeInfo, plan: Plan) -> bool:
    """Could some state take the pod at all? Necessary, cheap."""
    free_max = node_info.free_max.values()
    if one_zone_each(node_info, plan):
        return all(
            any(fits(part.amounts, zone) for zone in free_max) for part in plan.parts
        ) and _room_for_as_many(plan, free_max)
    asked = [
        (name, held)
        for part in plan.parts
        for name, held in part.amounts.items()
        if name not in plan.placeless
    ]
    enough = all(sum(zone.get(name, 0) for zone in free_max) >= held for name, held in asked)
    return enough and (
        plan.rule.policy != RESTRICTED
        or node_info.report is None
        or _in_as_few_zones(node_info, plan, node_info.report)
    )


def _in_as_few_zones(node_info: NodeInfo, plan: Plan, report: Report) -> bool:
    """restricted takes no more zones of a resource than would do if they were empty: are the freest
    ones enough? And it takes none unless CPUs and memory want as many."""
    for part in plan.parts:
        widths = widths_at_most(part.amounts, report)
        several = several_kinds_of_memory(part.amounts)
        if (
            len(
                {
                    width
                    for name, width in widths.items()
                    if not is_device(name) and name not in several
                }
            )
            > 1
        ):
            return False
        for name, width in widths.items():
            free = sorted(
                [max(0, zone.get(name, 0)) for zone in node_info.free_max.values()], reverse=True
            )
            if name not in plan.placeless and sum(free[:width]) < part.amounts[name]:
                return False
    return True


def _room_for_as_many(plan: Plan, zones: Iterable[Amounts]) -> bool:
    """Would the parts that run side by side find room if each asked for the least that any of them
    does?
    """
    if not plan.least:
        return True
    room = (
        min([zone.get(name, 0) // amount for name, amount in plan.least.items()]) for zone in zones
    )
    return sum(max(0, parts) for parts in room) >= plan.running


def whole_cores_left(node_info: NodeInfo, plan: Plan, threads_per_core: int) -> bool:
    """full-pcpus-only: each container asks for whole cores, and enough are free beside those that
    reserved CPUs touch (kubelet 1.36); what init containers leave does not count as free there,
    whatever the scope."""
    asked = [part.amounts[CPU] for part in plan.demand if CPU in part.amounts]
    if any(amount % (threads_per_core * 1000) for amount in asked):
        return False
    report = node_info.report
    cpus = (
        [z.resources[CPU] for z in report.zones if CPU in z.resources] if report is not None else []
    )
    reserved = sum(each.capacity - each.allocatable for each in cpus)
    return sum(zone.get(CPU, 0) for zone in node_info.free_min.values()) - reserved * (
        threads_per_core - 1
    ) >= sum(asked)


def enough_on_the_whole(
    node_info: NodeInfo, plan: Plan, newcomer: Charge, arriving: list[Charge]
) -> bool:
    """Policies none and best-effort, which only a shortage on the node as a whole refuses: enough
    CPUs and devices beside every charge, and memory under none in one zone, as everybody is charged
    in each, which has all kinds that the others ask for, too; under best-effort in every zone of at
    most two, where no device may draw the mask elsewhere. False says nothing."""
    if plan.whole_cores or plan.inits:
        return False
    taken = held_once(newcomer)
    memory = memory_of(taken)
    if any(
        node_info.totals.get(name, 0) < amount
        for name, amount in taken.items()
        if name not in memory
    ):
        return False
    if not memory and not _kinds_of_memory(arriving):
        return True
    if node_info.grouped_zones and (plan.rule.policy != NONE or arriving):
        return False
    if plan.rule.policy != NONE and len(node_info.free_min) > 2:
        return False
    if not fits_one_zone([memory], node_info.machine.capacities):
        return False
    enough = [
        held
        for held in node_info.for_single_zones(node_info.free_min).values()
        if fits(memory, held)
    ]
    if plan.rule.policy == NONE:
        others = _kinds_of_memory(arriving) if enough else ()
        return any(all(held.get(name, -1) >= 0 for name in others) for held in enough)
    devices = any(
        is_device(name)
        for charge in (*arriving, newcomer)
        for part in charge.demand
        for name in part.amounts
    )
    return (
        plan.rule.policy == BEST_EFFORT and not devices and len(enough) == len(node_info.free_min)
    )


def _kinds_of_memory(charges: Iterable[Charge]) -> set[str]:
    return {
        name for charge in charges for part in charge.demand for name in memory_of(part.amounts)
    }
