"""Why the zones of one node cannot take a pod: the part, resource and zone with the smallest
shortage, and the remedy.

This module only explains; `filter/topology` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

from services.scheduler.explain.init_containers import pinned_by_init
from services.scheduler.explain.provider_refusal import drawn_by_zeros, unoffered
from services.scheduler.explain.remedies import NECESSARY, more_free
from services.scheduler.filter.topology.bounds import fits, possible
from services.scheduler.filter.topology.fit import ADMITTED, ENDANGERS, filter_result
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import AlignedPart, Plan, PodClass
from services.scheduler.snapshot.zone_sizes import MOST_ZONES, fits_one_zone, preferred_widths
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Report, Zone
from shared.domain.resources import CPU, Amounts, is_memory
from shared.hints import registry
from shared.hints.admission_orders import UNKNOWN
from shared.hints.cpu import by_socket
from shared.kubelet.layout import threads_per_core
from shared.ledger.state import ZoneAmounts


def alignment_refusal(
    node_info: NodeInfo, pod_class: PodClass, plan: Plan, config: CycleConfig, steps: int
) -> Refusal | None:
    """Return the refusal; None if the node takes the pod."""
    result = filter_result(node_info, pod_class, plan, config, steps)
    if result == ADMITTED:
        return None
    if result == ENDANGERS:
        remedy = "wait until the pods on their way to the node are admitted"
        return Refusal(
            node_info.name,
            Reason.NOT_ON_EVERY_BRANCH,
            "may take the place of pods on their way",
            remedy=remedy,
        )
    if result == UNKNOWN:
        count = len(node_info.pending)
        remedy = (
            f"wait for the node's next report, which confirms pods that it lists ({count} pending "
            "now), or raise steps_last_resort and steps_pod"
        )
        subject = f"{count} pod(s) pending on the node, more than {steps} states"
        return Refusal(node_info.name, Reason.BRANCH_LIMIT, subject, remedy=remedy)
    short = _smt(node_info, plan, config) or _shortage(node_info, plan)
    return (
        short
        or unoffered(node_info, plan, steps)
        or drawn_by_zeros(node_info, plan, steps)
        or pinned_by_init(node_info, plan, steps)
        or _uncertain(node_info, plan)
    )


def larger_than_zones(node_info: NodeInfo, plan: Plan) -> Refusal | None:
    """Return the refusal of a part that no empty zone holds, if each part must go into one zone."""
    if plan.mode != "aligned" or plan.rule.policy != SINGLE_NUMA_NODE or plan.may_be_split:
        return None
    return next(
        (refusal for part in plan.parts if (refusal := _never(node_info, part)) is not None), None
    )


def _smt(node_info: NodeInfo, plan: Plan, config: CycleConfig) -> Refusal | None:
    if not plan.full_pcpus_only:
        return None
    threads = _threads_per_core(node_info, config)
    for part in plan.demand:
        asked = part.amounts.get(CPU, 0)
        if asked % (1000 * threads):
            remedy = (
                f"{NECESSARY}a multiple of {threads} CPUs, because the kubelet runs with "
                "full-pcpus-only"
            )
            return Refusal(
                node_info.name,
                Reason.SMT_ALIGNMENT,
                resource=CPU,
                container=part.name,
                asked=asked,
                remedy=remedy,
            )
    return None


def _threads_per_core(node_info: NodeInfo, config: CycleConfig) -> int:
    """The node's own if its report shows them, else the setting for all nodes."""
    cpus = node_info.report.cpus if node_info.report is not None else None
    return (threads_per_core(cpus) if cpus is not None else 0) or config.threads_per_core


def _shortage(node_info: NodeInfo, plan: Plan) -> Refusal | None:
    for part in plan.parts:
        refusal = (
            _total(node_info, _by_amounts(part))
            if plan.mode == "unaligned"
            else _zonal(node_info, plan, part)
        )
        if refusal is not None:
            return refusal
    return None


def _by_amounts(part: AlignedPart) -> AlignedPart:
    """Without what the zones' amounts say nothing of: its provider is asked (`unoffered`)."""
    if registry.amounts_are_all():
        return part
    amounts = {
        name: asked for name, asked in part.amounts.items() if not registry.beyond_amounts(name)
    }
    return msgspec.structs.replace(part, amounts=amounts)


def _given(report: Report | None, part: AlignedPart, zone: int) -> bool:
    """Return whether every provider may allocate the part in this zone, whatever amounts the report
    shows there.
    """
    if registry.amounts_are_all() or report is None:
        return True
    listed = (
        registry.zones_of(report, name) for name in part.amounts if registry.beyond_amounts(name)
    )
    return all(zones is None or zone in zones for zones in listed)


def _total(node_info: NodeInfo, part: AlignedPart) -> Refusal | None:
    for name, asked in part.amounts.items():
        free = (
            sum(zone.get(name, 0) for zone in node_info.free_min.values())
            if is_memory(name)
            else node_info.totals.get(name, 0)
        )
        if free < asked:
            remedy = more_free(name, asked - free, "on the node")
            return Refusal(
                node_info.name,
                Reason.TOO_LITTLE_FREE,
                "",
                name,
                part.name,
                asked,
                max(0, free),
                remedy=remedy,
            )
    return None


def _zonal(node_info: NodeInfo, plan: Plan, whole: AlignedPart) -> Refusal | None:
    free_min = {
        zone: zone_amounts
        for zone, zone_amounts in node_info.free_min.items()
        if _given(node_info.report, whole, zone)
    }
    part = _by_amounts(whole)
    if (
        node_info.report is not None
        and plan.rule.policy != SINGLE_NUMA_NODE
        and not _fits_a_zone_when_empty(node_info, part)
    ):
        return _wide(node_info, part, free_min, node_info.report)
    if not free_min and plan.rule.policy == SINGLE_NUMA_NODE:
        return _never(node_info, whole)
    if not free_min or any(fits(part.amounts, zone) for zone in free_min.values()):
        return None
    never = _never(node_info, whole)
    if never is not None:
        return (
            _first_short(node_info, plan) if plan.may_be_split and not whole.name else None
        ) or never
    name, zone, best, subject = _nearest(free_min, part)
    remedy = more_free(name, part.amounts[name] - best, f"in zone {zone}")
    return Refusal(
        node_info.name,
        Reason.NO_SINGLE_ZONE,
        subject,
        name,
        part.name,
        part.amounts[name],
        max(0, best),
        zone,
        remedy=remedy,
    )


def _first_short(node_info: NodeInfo, plan: Plan) -> Refusal | None:
    """Return the first container that no zone holds alone, of a pod that may be split."""
    parts = (AlignedPart(entry.name, entry.kind, entry.amounts) for entry in plan.demand)
    return next(
        (refusal for part in parts if (refusal := _zonal(node_info, plan, part)) is not None), None
    )


def _nearest(places: ZoneAmounts, part: AlignedPart) -> tuple[str, int, int, str]:
    """(resource, place, free there, with which others) of the place that comes nearest."""
    name, place, best = _scarcest(places, part)
    others = [format_amount(n, a) + " " + n for n, a in part.amounts.items() if n != name]
    if best < part.amounts[name] or not others:
        return name, place, best, ""
    best, place = _beside(places, part, name)
    return name, place, best, "with " + " and ".join(others)


def _wide(
    node_info: NodeInfo, part: AlignedPart, free_min: ZoneAmounts, report: Report
) -> Refusal | None:
    """restricted, and no zone holds the part when it is empty: as many zones as would do then are
    what the kubelet prefers, and it takes none unless that is one number for all resources (kubelet
    1.36)."""
    largest_sizes = node_info.machine.capacities.largest
    part = msgspec.structs.replace(
        part,
        amounts={name: asked for name, asked in part.amounts.items() if largest_sizes.get(name)},
    )
    widths = preferred_widths(part.amounts, report)
    count = max(widths.values(), default=0)
    if not free_min or not count or len(free_min) > MOST_ZONES:
        return None
    if min(widths.values()) < count and not by_socket(report):
        largest = min(name for name in widths if widths[name] == count)
        listed = ", ".join(
            f"{name} {zone_amounts}" for name, zone_amounts in sorted(widths.items())
        )
        remedy = (
            f"{NECESSARY}amounts that fit as few zones each when these are empty (now: {listed})"
        )
        asked, best = (
            part.amounts[largest],
            sum(max(0, zone_amounts.get(largest, 0)) for zone_amounts in free_min.values()),
        )
        subject = "that all resources prefer"
        return Refusal(
            node_info.name,
            Reason.NEVER_ALIGNED,
            subject,
            largest,
            part.name,
            asked,
            best,
            remedy=remedy,
        )
    nearest = _nearest_set(free_min, part, count)
    if nearest is None:
        return None
    name, zones, best, subject = nearest
    asked = part.amounts[name]
    sizes = [zone.resources[name].allocatable for zone in report.zones if name in zone.resources]
    most = sum(sorted(sizes, reverse=True)[:count])
    if most < asked:
        never, remedy = Reason.NEVER_ALIGNED, "use nodes with larger zones"
        return Refusal(
            node_info.name, never, "when empty", name, part.name, asked, most, remedy=remedy
        )
    remedy = more_free(name, asked - best, f"in zones {', '.join(map(str, zones))} together")
    return Refusal(
        node_info.name, Reason.NO_ZONE_SET, subject, name, part.name, asked, best, remedy=remedy
    )


def _nearest_set(
    free_min: ZoneAmounts, part: AlignedPart, count: int
) -> tuple[str, tuple[int, ...], int, str] | None:
    """(resource, zones, free there, with which others) of the nearest set of so many zones;
    None where one has all. Sets are tried only where each resource has one of its own: every node
    may be asked."""
    free = {
        name: {zone: max(0, zone_amounts.get(name, 0)) for zone, zone_amounts in free_min.items()}
        for name in part.amounts
    }
    fullest = {
        name: sorted((-entry, zone) for zone, entry in zones.items())[:count]
        for name, zones in free.items()
    }
    most = {name: -sum(entry for entry, _ in zones) for name, zones in fullest.items()}
    name = min(part.amounts, key=lambda entry: (most[entry] / part.amounts[entry], entry))
    if most[name] < part.amounts[name]:
        return name, tuple(sorted(zone for _, zone in fullest[name])), most[name], ""
    sets = list(combinations(sorted(free_min), min(count, len(free_min))))

    def free_together(zone_set: tuple[int, ...]) -> Amounts:
        return {name: sum(zones[zone] for zone in zone_set) for name, zones in free.items()}

    places = {index: free_together(zone_set) for index, zone_set in enumerate(sets)}
    if any(fits(part.amounts, zone_amounts) for zone_amounts in places.values()):
        return None
    name, index, best, subject = _nearest(places, part)
    return name, sets[index], best, subject


def _fits_a_zone_when_empty(node_info: NodeInfo, part: AlignedPart) -> bool:
    return fits_one_zone([part.amounts], node_info.machine.capacities)


def _never(node_info: NodeInfo, part: AlignedPart) -> Refusal | None:
    """The part is larger than any zone is when it is empty. Of equal zones the lowest is named."""
    zones = (
        [entry for entry in node_info.report.zones if _given(node_info.report, part, entry.id)]
        if node_info.report is not None
        else []
    )
    if not zones and node_info.report is not None and node_info.report.zones:
        return _given_nowhere(node_info, node_info.report, part)
    for name, asked in _by_amounts(part).amounts.items():
        if _has_one(zones, name, asked):
            continue
        sizes = {z.id: z.resources[name].allocatable if name in z.resources else 0 for z in zones}
        zone = min(sizes, key=lambda entry: (-sizes[entry], entry), default=None)
        best = sizes[zone] if zone is not None else 0
        remedy = "use nodes with larger zones"
        if not best:
            remedy = f"use nodes whose zones have {name}"
        return Refusal(
            node_info.name,
            Reason.NEVER_ALIGNED,
            "",
            name,
            part.name,
            asked,
            best,
            zone,
            remedy=remedy,
        )
    return None


def _given_nowhere(node_info: NodeInfo, report: Report, part: AlignedPart) -> Refusal | None:
    """No zone may ever give all of the part: one resource none gives, or each of two other
    zones.
    """
    names = [name for name in part.amounts if registry.beyond_amounts(name)]
    for name in names:
        if not any(
            _given(report, msgspec.structs.replace(part, amounts={name: 1}), zone.id)
            for zone in report.zones
        ):
            remedy = f"use nodes whose zones have {name}"
            return Refusal(
                node_info.name,
                Reason.NEVER_ALIGNED,
                "",
                name,
                part.name,
                part.amounts[name],
                remedy=remedy,
            )
    remedy = (
        f"ask for {' and '.join(names)} in containers of their own, or use nodes where "
        "one zone gives all of it"
    )
    asked = part.amounts[names[0]]
    return Refusal(
        node_info.name,
        Reason.NEVER_ALIGNED,
        "where the rest is given",
        names[0],
        part.name,
        asked,
        remedy=remedy,
    )


def _has_one(zones: Sequence[Zone], name: str, asked: int) -> bool:
    """Nearly always the first zone does."""
    for zone in zones:
        zone_amounts = zone.resources.get(name)
        if zone_amounts is not None and zone_amounts.allocatable >= asked:
            return True
    return False


def _scarcest(free_min: ZoneAmounts, part: AlignedPart) -> tuple[str, int, int]:
    """(resource, zone, free there) of the resource whose best zone covers the smallest share of
    what is asked.
    """
    refusal = []
    for name, asked in part.amounts.items():
        best, zone = max(
            (zone_amounts.get(name, 0), -zone) for zone, zone_amounts in free_min.items()
        )
        refusal.append((max(0, best) / asked, name, -zone, best))
    _, name, zone, best = min(refusal)
    return name, zone, best


def _beside(free_min: ZoneAmounts, part: AlignedPart, name: str) -> tuple[int, int]:
    """Most of `name` in a zone that holds everything else; the first zone when none does."""
    others = {other_name: asked for other_name, asked in part.amounts.items() if other_name != name}
    refusal = [
        (zone_amounts.get(name, 0), -zone)
        for zone, zone_amounts in free_min.items()
        if fits(others, zone_amounts)
    ]
    best, zone = max(refusal, default=(0, -min(free_min)))
    return best, -zone


def _uncertain(node_info: NodeInfo, plan: Plan) -> Refusal:
    parts = ", ".join(part.name for part in plan.parts if part.name)
    certain = node_info.free_min == node_info.free_max or not possible(node_info, plan)
    reason = Reason.NO_ZONE_SET if certain else Reason.NOT_ON_EVERY_BRANCH
    remedy = "wait for a newer topology report of the node"
    return Refusal(node_info.name, reason, f"containers {parts}" if parts else "", remedy=remedy)
