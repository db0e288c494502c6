"""Why the zones of one node cannot take a pod: the part of the pod, the resource and the zone with
the smallest shortage, and the remedy.

If amounts by zone do not explain a refusal, the kubelet model is asked again about a changed pod:

1. A hint provider may decide by more than amounts. The model is asked about one resource alone, and
   about all resources except those of one provider.
2. A request of 0 devices draws a pod to zones that have the device. The model is asked about the
   pod without that request.
3. The kubelet places an init container first, and later containers must reuse its CPUs, so they
   must use its zones (kubelet 1.36). The model is asked about the pod without these CPUs.

This module only explains; `filter/topology` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import msgspec

from services.scheduler.explain.remedies import NECESSARY, more_free
from services.scheduler.filter.topology.bounds import fits, possible
from services.scheduler.filter.topology.fit import (
    ADMITTED,
    ENDANGERS,
    NOT_IN_ONE_ZONE,
    REFUSED,
    filter_result,
)
from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import AlignedPart, Plan, PodClass
from services.scheduler.snapshot.topology_policy import without_promise
from services.scheduler.snapshot.zone_sizes import MOST_ZONES, fits_one_zone, preferred_widths
from shared.domain.demand import ContainerDemand
from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Report, Zone
from shared.domain.resources import CPU, Amounts, is_device, is_memory
from shared.hints import registry
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.admission_orders import UNKNOWN
from shared.hints.cpu import by_socket
from shared.hints.request import request_of
from shared.hints.splits import TooManyChoicesError
from shared.kubelet.layout import threads_per_core
from shared.ledger.state import ZoneAmounts

LARGER_ZONES = "use nodes with larger zones"
Demand = tuple[ContainerDemand, ...]
Refuses = Callable[[Demand], bool]

WITH_OTHERS = "together with the other resources"


def alignment_refusal(
    node_info: NodeInfo, pod_class: PodClass, plan: Plan, config: CycleConfig, steps: int
) -> Refusal | None:
    """Return why the node's zones cannot take the pod; None if they can."""
    # Amounts alone refuse most nodes.
    is_possible = plan.needs_search or possible(node_info, plan)
    result = filter_result(node_info, pod_class, plan, config, steps) if is_possible else REFUSED
    if result == ADMITTED:
        return None
    if plan.rule.one_zone:
        kubelets = msgspec.structs.replace(plan, rule=without_promise(plan.rule))
        refusal = alignment_refusal(node_info, pod_class, kubelets, config, steps)
        if refusal is not None:
            return refusal
        if result == REFUSED:
            rule = plan.rule
            subject = (
                f"{rule.wanted_by} wants it, and the kubelet has {rule.policy}; "
                "topologyManagerPolicy single-numa-node keeps it"
            )
            return NOT_IN_ONE_ZONE.refusal(node_info.name, subject)
    if result == ENDANGERS:
        remedy = "wait until the node has admitted its pending pods"
        subject = "it could take zones that pending pods need"
        return Refusal(node_info.name, Reason.NOT_ON_EVERY_BRANCH, subject, remedy=remedy)
    if result == UNKNOWN:
        count = len(node_info.pending)
        remedy = (
            f"wait for the node's next report, which confirms pods that it lists ({count} pending "
            "now), or raise steps_last_resort and steps_pod"
        )
        subject = f"{count} pod(s) pending on the node, more than {steps} states"
        return Refusal(node_info.name, Reason.BRANCH_LIMIT, subject, remedy=remedy)
    return (
        _partial_core_refusal(node_info, plan, config)
        or _shortage(node_info, plan)
        or provider_refusal(node_info, plan, steps)
        or zero_request_refusal(node_info, plan, steps)
        or init_container_refusal(node_info, plan, steps)
        or _unnamed_refusal(node_info, plan)
    )


def larger_than_zones(node_info: NodeInfo, plan: Plan) -> Refusal | None:
    """Return the refusal of a part that no zone could hold even when it is empty, if each part must
    go into one zone.
    """
    if plan.mode != "aligned" or plan.rule.policy != SINGLE_NUMA_NODE or plan.may_be_split:
        return None
    refusals = (_larger_than_every_zone(node_info, part) for part in plan.parts)
    return next((refusal for refusal in refusals if refusal is not None), None)


def _partial_core_refusal(node_info: NodeInfo, plan: Plan, config: CycleConfig) -> Refusal | None:
    """Return the refusal of a container whose CPUs do not fill whole cores, if they must."""
    if not plan.full_pcpus_only:
        return None
    threads = _threads_per_core(node_info, config)
    remedy = (
        f"{NECESSARY}a multiple of {threads} CPUs, because the kubelet runs with full-pcpus-only"
    )
    for part in plan.demand:
        asked, reason = part.amounts.get(CPU, 0), Reason.SMT_ALIGNMENT
        if asked % (1000 * threads):
            return Refusal(node_info.name, reason, "", CPU, part.name, asked, remedy=remedy)
    return None


def _threads_per_core(node_info: NodeInfo, config: CycleConfig) -> int:
    """Return the number that the node's report shows, or else the setting for all nodes."""
    cpus = node_info.report.cpus if node_info.report is not None else None
    return (threads_per_core(cpus) if cpus is not None else 0) or config.threads_per_core


def _shortage(node_info: NodeInfo, plan: Plan) -> Refusal | None:
    """Return the refusal of the first part for which amounts do not suffice."""
    for part in plan.parts:
        refusal = (
            _node_shortage(node_info, _decided_by_amounts(part))
            if plan.mode == "unaligned"
            else _zone_shortage(node_info, plan, part)
        )
        if refusal is not None:
            return refusal
    return None


def _decided_by_amounts(part: AlignedPart) -> AlignedPart:
    """Return the part without resources for which a zone's amounts decide nothing: for these,
    `provider_refusal` asks the provider.
    """
    if registry.amounts_are_all():
        return part
    amounts = {
        name: asked for name, asked in part.amounts.items() if not registry.beyond_amounts(name)
    }
    return msgspec.structs.replace(part, amounts=amounts)


def _providers_allow(report: Report | None, part: AlignedPart, zone: int) -> bool:
    """Return whether every provider may allocate the part in this zone, whatever amounts the report
    shows there.
    """
    if registry.amounts_are_all() or report is None:
        return True
    zone_lists = (
        registry.zones_of(report, name) for name in part.amounts if registry.beyond_amounts(name)
    )
    return all(zones is None or zone in zones for zones in zone_lists)


def _short(
    node_info: NodeInfo,
    reason: Reason,
    part: AlignedPart,
    resource: str,
    best: int,
    remedy: str,
    zone: int | None = None,
    subject: str = "",
) -> Refusal:
    """Return the refusal of a part for lack of one resource; `best` is the most that is there."""
    return Refusal(
        node_info.name,
        reason,
        subject,
        resource,
        part.name,
        part.amounts[resource],
        max(0, best),
        zone,
        remedy=remedy,
    )


def _node_shortage(node_info: NodeInfo, part: AlignedPart) -> Refusal | None:
    """Return the refusal of a part that all zones together cannot hold."""
    for name, asked in part.amounts.items():
        free = node_info.totals.get(name, 0)
        if is_memory(name):
            free = sum(zone.get(name, 0) for zone in node_info.free_min.values())
        if free < asked:
            remedy = more_free(name, asked - free, "on the node")
            return _short(node_info, Reason.TOO_LITTLE_FREE, part, name, free, remedy)
    return None


def _zone_shortage(node_info: NodeInfo, plan: Plan, whole_part: AlignedPart) -> Refusal | None:
    """Return the refusal of a part that no zone, or no set of zones, has room for now."""
    report, needs_one_zone = node_info.report, plan.rule.policy == SINGLE_NUMA_NODE
    free_min = node_info.free_min
    if not registry.amounts_are_all():
        allowed = (zone for zone in free_min if _providers_allow(report, whole_part, zone))
        free_min = {zone: free_min[zone] for zone in allowed}
    part = _decided_by_amounts(whole_part)
    if (
        report is not None
        and not needs_one_zone
        and not fits_one_zone([part.amounts], node_info.machine.capacities)
    ):
        return _zone_set_shortage(node_info, part, free_min, report)
    if not free_min and needs_one_zone:
        return _larger_than_every_zone(node_info, whole_part)
    if not free_min or any(fits(part.amounts, zone) for zone in free_min.values()):
        return None
    never = _larger_than_every_zone(node_info, whole_part)
    if never is not None:
        splits = plan.may_be_split and not whole_part.name
        return (_container_shortage(node_info, plan) if splits else None) or never
    nearest = _nearest_zone(free_min, part)
    name, zone = nearest.resource, nearest.key
    remedy = more_free(name, part.amounts[name] - nearest.free, f"in zone {zone}")
    return _short(
        node_info, Reason.NO_SINGLE_ZONE, part, name, nearest.free, remedy, zone, nearest.subject
    )


def _container_shortage(node_info: NodeInfo, plan: Plan) -> Refusal | None:
    """Return the refusal of the first container that no zone holds, of a pod that the kubelet may
    split.
    """
    parts = (AlignedPart(entry.name, entry.kind, entry.amounts) for entry in plan.demand)
    refusals = (_zone_shortage(node_info, plan, part) for part in parts)
    return next((refusal for refusal in refusals if refusal is not None), None)


class Nearest(NamedTuple):
    """The zone or set of zones that comes nearest to holding a part: the scarcest resource, the
    zone's key in the mapping that was searched, the free amount there, and the other resources that
    the zone must hold, too.
    """

    resource: str
    key: int
    free: int
    subject: str


def _nearest_zone(places: ZoneAmounts, part: AlignedPart) -> Nearest:
    """Return the nearest of zones, or of sets of zones with their summed amounts."""
    name, key, free = _scarcest(places, part)
    if free < part.amounts[name] or len(part.amounts) == 1:
        return Nearest(name, key, free, "")
    free, key = _most_with_the_others(places, part, name)
    others = [
        f"{format_amount(other, asked)} {other}"
        for other, asked in part.amounts.items()
        if other != name
    ]
    return Nearest(name, key, free, "with " + " and ".join(others))


def _zone_set_shortage(
    node_info: NodeInfo, part: AlignedPart, free_min: ZoneAmounts, report: Report
) -> Refusal | None:
    """Return the refusal of a part that is larger than a zone, under policy restricted.

    Each resource prefers the smallest number of zones that could hold it when they are empty. The
    kubelet admits the part only if all resources prefer the same number (kubelet 1.36).
    """
    largest_sizes = node_info.machine.capacities.largest
    amounts = {name: asked for name, asked in part.amounts.items() if largest_sizes.get(name)}
    part = msgspec.structs.replace(part, amounts=amounts)
    widths = preferred_widths(amounts, report)
    count = max(widths.values(), default=0)
    if not free_min or not count or len(free_min) > MOST_ZONES:
        return None
    if min(widths.values()) < count and not by_socket(report):
        widest = min(name for name in widths if widths[name] == count)
        listed = ", ".join(f"{name} {width}" for name, width in sorted(widths.items()))
        remedy = f"{NECESSARY}amounts that fit the same number of empty zones (now: {listed})"
        free = sum(max(0, amounts.get(widest, 0)) for amounts in free_min.values())
        subject = "that all resources prefer"
        return _short(node_info, Reason.NEVER_ALIGNED, part, widest, free, remedy, subject=subject)
    nearest = _nearest_set(free_min, part, count)
    if nearest is None:
        return None
    name, zones, free, subject = nearest
    sizes = [zone.resources[name].allocatable for zone in report.zones if name in zone.resources]
    most = sum(sorted(sizes, reverse=True)[:count])
    if most < part.amounts[name]:
        never, subject = Reason.NEVER_ALIGNED, "when empty"
        return _short(node_info, never, part, name, most, LARGER_ZONES, subject=subject)
    place = f"in zones {', '.join(map(str, zones))} together"
    remedy = more_free(name, part.amounts[name] - free, place)
    return _short(node_info, Reason.NO_ZONE_SET, part, name, free, remedy, subject=subject)


def _nearest_set(
    free_min: ZoneAmounts, part: AlignedPart, count: int
) -> tuple[str, tuple[int, ...], int, str] | None:
    """Return the resource, zones, free amount and subject of the nearest set of `count` zones; None
    if a set holds the part.

    This runs for every node. So it tries all sets only if, for each resource alone, some set has
    enough.
    """
    free = {
        name: {zone: max(0, zone_amounts.get(name, 0)) for zone, zone_amounts in free_min.items()}
        for name in part.amounts
    }
    fullest = {
        name: sorted((-amount, zone) for zone, amount in zones.items())[:count]
        for name, zones in free.items()
    }
    most = {name: -sum(amount for amount, _ in zones) for name, zones in fullest.items()}
    name = min(
        part.amounts, key=lambda resource: (most[resource] / part.amounts[resource], resource)
    )
    if most[name] < part.amounts[name]:
        return name, tuple(sorted(zone for _, zone in fullest[name])), most[name], ""
    sets = list(combinations(sorted(free_min), min(count, len(free_min))))

    def free_together(zone_set: tuple[int, ...]) -> Amounts:
        return {name: sum(zones[zone] for zone in zone_set) for name, zones in free.items()}

    places = {index: free_together(zone_set) for index, zone_set in enumerate(sets)}
    if any(fits(part.amounts, zone_amounts) for zone_amounts in places.values()):
        return None
    nearest = _nearest_zone(places, part)
    return nearest.resource, sets[nearest.key], nearest.free, nearest.subject


def _larger_than_every_zone(node_info: NodeInfo, part: AlignedPart) -> Refusal | None:
    """Return the refusal of a part that no zone could hold even when it is empty. It names the
    largest zone, and of equal zones the lowest.
    """
    report = node_info.report
    zones = report.zones if report is not None else ()
    if not registry.amounts_are_all():
        zones = tuple(zone for zone in zones if _providers_allow(report, part, zone.id))
    if not zones and report is not None and report.zones:
        return _no_common_zone(node_info, report, part)
    for name, asked in _decided_by_amounts(part).amounts.items():
        if _has_large_zone(zones, name, asked):
            continue
        sizes = {
            zone.id: zone.resources[name].allocatable if name in zone.resources else 0
            for zone in zones
        }
        largest = min(sizes, key=lambda zone_id: (-sizes[zone_id], zone_id), default=None)
        best = sizes[largest] if largest is not None else 0
        remedy = LARGER_ZONES if best else f"use nodes whose zones have {name}"
        return _short(node_info, Reason.NEVER_ALIGNED, part, name, best, remedy, largest)
    return None


def _no_common_zone(node_info: NodeInfo, report: Report, part: AlignedPart) -> Refusal:
    """Return the refusal of a part that providers never allocate in one zone: no zone has one of
    the resources, or different zones have them.
    """
    names = [name for name in part.amounts if registry.beyond_amounts(name)]
    for name in names:
        alone = msgspec.structs.replace(part, amounts={name: 1})
        if not any(_providers_allow(report, alone, zone.id) for zone in report.zones):
            remedy = f"use nodes whose zones have {name}"
            return _short(node_info, Reason.NEVER_ALIGNED, part, name, 0, remedy)
    remedy = (
        f"request {' and '.join(names)} in separate containers, or use nodes with a zone that has "
        "all of them"
    )
    never = Reason.NEVER_ALIGNED
    return _short(node_info, never, part, names[0], 0, remedy, subject=WITH_OTHERS)


def _has_large_zone(zones: Sequence[Zone], name: str, asked: int) -> bool:
    """Return whether an empty zone holds the amount. A loop, because nearly always the first
    does.
    """
    for zone in zones:
        zone_amounts = zone.resources.get(name)
        if zone_amounts is not None and zone_amounts.allocatable >= asked:
            return True
    return False


def _scarcest(places: ZoneAmounts, part: AlignedPart) -> tuple[str, int, int]:
    """Return the resource whose best zone covers the smallest share of the request, that zone, and
    the free amount there.
    """
    coverage = []
    for name, asked in part.amounts.items():
        free, zone = max([(amounts.get(name, 0), -zone) for zone, amounts in places.items()])
        coverage.append((max(0, free) / asked, name, -zone, free))
    _, name, zone, free = min(coverage)
    return name, zone, free


def _most_with_the_others(places: ZoneAmounts, part: AlignedPart, name: str) -> tuple[int, int]:
    """Return the most that a zone has of `name` if it holds all other resources of the part, and
    the zone; 0 and the lowest zone if no zone holds the others.
    """
    others = {other: asked for other, asked in part.amounts.items() if other != name}
    candidates = [
        (amounts.get(name, 0), -zone) for zone, amounts in places.items() if fits(others, amounts)
    ]
    free, zone = max(candidates, default=(0, -min(places)))
    return free, -zone


def _unnamed_refusal(node_info: NodeInfo, plan: Plan) -> Refusal:
    """Return the refusal if no single resource explains it."""
    parts = ", ".join(part.name for part in plan.parts if part.name)
    is_certain = node_info.free_min == node_info.free_max or not possible(node_info, plan)
    reason = Reason.NO_ZONE_SET if is_certain else Reason.NOT_ON_EVERY_BRANCH
    subject = f"containers {parts}" if parts else ""
    remedy = "wait for a newer topology report of the node"
    return Refusal(node_info.name, reason, subject, remedy=remedy)


# -- by the kubelet model
# --------------------------------------------------------------------------------------------------


def provider_refusal(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal that names the resource which a provider refuses although its amounts
    suffice; None if another cause decides, or several resources together.

    It describes the first state of the kubelet in which the pod is refused.
    """
    asked = (name for part in plan.demand for name in part.amounts)
    names = tuple(dict.fromkeys(name for name in asked if registry.beyond_amounts(name)))
    search = kubelet_search_of(node_info, plan) if names else None
    exploration = search.exact() if search is not None else None
    orders = exploration.before(steps) if exploration is not None else None
    if search is None or search.states is None or orders is None:
        return None
    node_states = (moment.states for order in orders for moment in order.search_states)
    by_state = (partial(_refuses, search.states.model, state) for state in node_states)
    try:
        refuses = next((refuses for refuses in by_state if refuses(plan.demand)), None)
        return _named_refusal(node_info, plan, names, refuses) if refuses is not None else None
    except TooManyChoicesError:
        return None


def _refuses(model: KubeletModel, state: NodeState, demand: Demand) -> bool:
    return model.refuses(state, request_of(demand))


def _named_refusal(
    node_info: NodeInfo, plan: Plan, names: tuple[str, ...], refuses: Refuses
) -> Refusal | None:
    """Return the refusal of a resource that is refused alone, or without which the rest of the
    demand is admitted.
    """
    for name in names:
        alone = _only(plan.demand, {name})
        if refuses(alone):
            return _resource_refusal(node_info, plan, name, "", _refused_at(alone, refuses))
    for name in names:
        provider = registry.owner_of(name)
        provided = {other for other in names if registry.owner_of(other) == provider}
        requested = {other for part in plan.demand for other in part.amounts}
        if not refuses(_only(plan.demand, requested - provided)):
            index = _refused_at(plan.demand, refuses)
            return _resource_refusal(node_info, plan, name, WITH_OTHERS, index)
    return None


def _only(demand: Demand, names: set[str]) -> Demand:
    """Return the demand reduced to these resources."""
    parts = []
    for part in demand:
        amounts = {name: amount for name, amount in part.amounts.items() if name in names}
        parts.append(msgspec.structs.replace(part, amounts=amounts))
    return tuple(parts)


def _refused_at(demand: Demand, refuses: Refuses) -> int:
    """Return the index of the first container that is refused."""
    return next(index for index in range(len(demand)) if refuses(demand[: index + 1]))


def _resource_refusal(
    node_info: NodeInfo, plan: Plan, name: str, others: str, index: int
) -> Refusal:
    """Return the refusal for the container at the index, or for the whole pod under scope pod."""
    owner = registry.owner_of(name)
    provider = registry.PROVIDERS[owner].name
    if plan.rule.scope == "pod" and plan.rule.policy != NONE:
        container, asked = "", dict(request_of(plan.demand).whole[owner])[name]
    else:
        part = next(part for part in reversed(plan.demand[: index + 1]) if name in part.amounts)
        container, asked = part.name, part.amounts[name]
    subject, remedy = f"that {provider} offers", f"wait until {provider} has some"
    if others:
        subject = f"{subject}, {others}"
        remedy = f"{remedy} in a zone that has room for the other resources, or request less"
    return Refusal(node_info.name, _no_zone(plan), subject, name, container, asked, remedy=remedy)


def zero_request_refusal(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal of a pod that requests 0 of a device, if it would be admitted without that
    request.
    """
    zeros = [(part.name, name) for part in plan.demand for name in part.zeros if is_device(name)]
    if plan.rule.policy == NONE or not zeros:
        return None
    without_zeros = tuple(msgspec.structs.replace(part, zeros=()) for part in plan.demand)
    if not _admits(node_info, plan, without_zeros, steps):
        return None
    container, name = zeros[0]
    remedy = (
        f"remove {name} from the container's limits: the kubelet prefers zones that have it, even "
        "for a request of 0"
    )
    return Refusal(node_info.name, _no_zone(plan), WITH_OTHERS, name, container, remedy=remedy)


def init_container_refusal(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal of a pod that would be admitted if one init container requested no whole
    CPUs; None if that holds for no single init container.
    """
    for part in plan.demand:
        if part.kind != "init" or CPU not in part.amounts:
            continue
        amounts = {name: amount for name, amount in part.amounts.items() if name != CPU}
        without_cpus = msgspec.structs.replace(part, amounts=amounts)
        changed = (without_cpus if demand is part else demand for demand in plan.demand)
        demand = tuple(demand for demand in changed if demand.amounts or demand.zeros)
        if _admits(node_info, plan, demand, steps):
            remedy = (
                f"request a fraction of a CPU in init container {part.name} (for example "
                f"{part.amounts[CPU] - 1}m): the kubelet then pins no CPU for it, and later "
                "containers may use another zone"
            )
            subject = f"init container {part.name} pins the zone of later containers"
            return Refusal(
                node_info.name, _no_zone(plan), subject, container=part.name, remedy=remedy
            )
    return None


def _admits(node_info: NodeInfo, plan: Plan, demand: Demand, steps: int) -> bool:
    return kubelet_search_of(node_info, plan).result(request_of(demand), steps) == "admitted"


def _no_zone(plan: Plan) -> Reason:
    """Return the reason for the policy: no single zone, or no set of zones."""
    return Reason.NO_SINGLE_ZONE if plan.rule.policy == SINGLE_NUMA_NODE else Reason.NO_ZONE_SET
