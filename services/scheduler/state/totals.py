"""Totals of a ledger, for stats. Must not know deciding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

from shared.domain.quantity import format_amount
from shared.domain.resources import Amounts
from shared.events.scheduling_events import Wanted
from shared.ledger.state import Ledger, LedgerNode, Stage


def of(ledger: Ledger) -> dict[str, int]:
    """Return counts: pods by stage, nodes, nodes that report, reporting names without a Node
    object, zones, and zones in use."""
    stages = Counter(entry.stage for entry in ledger.pods.values() if entry.booking is None)
    nodes = [node for node in ledger.nodes.values() if node.observed is not None or node.charges]
    return {
        "position": ledger.position,
        **{f"pods_{stage}": stages.get(stage, 0) for stage in get_args(Stage)},
        "nodes": len(nodes),
        "nodes_reporting": sum(node.report is not None and not node.expired for node in nodes),
        "nodes_unnamed": sum(map(is_unnamed, ledger.nodes.values())),
        "nodes_in_use": sum(bool(node.charges) for node in nodes),
        "zones": sum(len(node.free_max) for node in nodes),
        "zones_in_use": sum(map(zones_in_use, nodes)),
        "unproven": sum(
            not (charge.confirmed or charge.booked)
            for node in nodes
            for charge in node.charges.values()
        ),
    }


def is_unnamed(node: LedgerNode) -> bool:
    """Return whether an exporter reports this name and no Node object has it."""
    return (
        node.observed is None and not node.charges and node.report is not None and not node.expired
    )


def zones_in_use(node: LedgerNode) -> int:
    """Return the number of zones in which something is held or charged."""
    if node.report is None:
        return 0
    given = {
        zone
        for charge in node.charges.values()
        if charge.allocation is not None
        for zone in charge.allocation.zones
    }
    return sum(
        zone.id in given
        or any(
            resource.allocatable > node.free_min.get(zone.id, {}).get(name, 0)
            for name, resource in zone.resources.items()
        )
        for zone in node.report.zones
    )


# The most requests and namespaces that are named; pods with others are counted together.
MOST_CLASSES = 20
MOST_NAMESPACES = 50
OTHERS = "other"

Items = tuple[tuple[str, int], ...]


def places(
    wanted: Sequence[Wanted], count: Callable[[Sequence[Items], bool], Sequence[int]]
) -> dict[tuple[str, ...], int]:
    """Return how many more of each wanted demand class the nodes hold, by request and bound: in
    `zones`, and `at_best`, as if all zones of a node were one. `count` counts them.
    """
    classes = [tuple(sorted(demand.amounts.items())) for demand in wanted]
    in_zones, at_best = count(classes, False), count(classes, True)
    counted = dict[tuple[str, ...], int]()
    for demand, fits, best in zip(wanted, in_zones, at_best, strict=True):
        if fits >= 0:
            request = request_text(demand.amounts)
            counted[request, "zones"], counted[request, "at_best"] = fits, max(fits, best)
    return counted


def request_text(request: Amounts) -> str:
    """Return amounts in words, in order of name."""
    return ", ".join(
        f"{name} {format_amount(name, amount)}"
        for name, amount in sorted(request.items())
        if amount
    )


def unschedulable(ledger: Ledger) -> dict[tuple[str, ...], int]:
    """Return how many pods no node takes now, by namespace and by what they wait for: a `zone`,
    although some node as a whole has room, or a `node`.
    """
    waiting = [
        entry for entry in ledger.pods.values() if entry.verdict and entry.stage == "pending"
    ]
    by_namespace = Counter(entry.pod.namespace for entry in waiting)
    named = dict(by_namespace.most_common(MOST_NAMESPACES))
    counts = Counter[tuple[str, ...]]()
    for entry in waiting:
        namespace = entry.pod.namespace if entry.pod.namespace in named else OTHERS
        counts[namespace, "zone" if entry.zone_wait else "node"] += 1
    return dict(counts)


def zone_fill(ledger: Ledger) -> dict[str, float]:
    """Return the share of all zones' allocatable amounts that is not guaranteed free, by
    resource.
    """
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for node in ledger.nodes.values():
        if node.report is None or node.expired:
            continue
        for zone in node.report.zones:
            free_min = node.free_min.get(zone.id, {})
            for resource, amounts in zone.resources.items():
                total[resource] += amounts.allocatable
                free[resource] += min(free_min.get(resource, 0), amounts.allocatable)
    return {
        resource: 1 - free[resource] / allocatable
        for resource, allocatable in total.items()
        if allocatable
    }
