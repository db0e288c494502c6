"""What the views show, as values: the map of zones, the pods, and how many pods of a shape (the
amounts of one pod) fit. Pure, from a folded state.

Amounts are in Topolog's units. Must not know HTTP, the log or time.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.replay.words import placement_text
from services.replay.zone_amounts import is_owned, zone_amounts
from services.scheduler.state.state import SchedulerState
from services.top.model import node_row
from shared.domain.resources import Amounts
from shared.ledger.state import Ledger, LedgerNode, LedgerPod, ZoneAmounts

MOST_PODS = 1000
NO_GROUP = "(no label)"


class ZoneCell(msgspec.Struct, frozen=True, array_like=True):
    """One zone of the map: `used`, `charged` and `free` of a resource, and how many pods of
    the wanted shape surely fit (-1 without a shape)."""

    zone: int
    used: int
    charged: int
    free: int
    fits: int = -1


class NodeCell(msgspec.Struct, frozen=True):
    """One node of the map. `group` is the value of the label by which the map is grouped."""

    name: str
    zones: tuple[ZoneCell, ...]
    pods: int = 0
    flags: str = ""
    group: str = ""


class PodCell(msgspec.Struct, frozen=True):
    """One live pod. `reason` is why it waits, and `placement` says its zones in words. `predicted`
    are zones by container; `charged` are the zones in which it may be, or is if `is_confirmed`.
    """

    uid: str
    pod: str
    stage: str
    node: str = ""
    reason: str = ""
    zone_wait: str = ""
    predicted: dict[str, tuple[int, ...]] = {}
    certain: bool = False
    charged: tuple[int, ...] = ()
    is_confirmed: bool = False
    placement: str = ""


class Counts(msgspec.Struct, frozen=True):
    """Numbers of nodes and pods that need attention."""

    nodes: int
    pods: int
    waiting: int
    unconfirmed: int
    dirty: int
    expired: int
    excluded: int
    waiting_for_zone: int


def node_cell(node: LedgerNode, resource: str, shape: Amounts, label: str) -> NodeCell:
    """Return the cell of one node."""
    row, free = node_row(node, resource), _free_of(node, shape)
    labels = node.observed.labels if node.observed is not None else {}
    zones = tuple(
        ZoneCell(bar.zone, bar.used, bar.charged, bar.free, _fits(free.get(bar.zone, {}), shape))
        for bar in row.bars
    )
    group = labels.get(label, NO_GROUP) if label else ""
    return NodeCell(row.name, zones, row.pods, row.flags, group)


def _free_of(node: LedgerNode, shape: Amounts) -> ZoneAmounts:
    if not shape or not is_owned(node):
        return node.free_min
    return {
        zone: {name: size.free_min for name, size in amounts.items()}
        for zone, amounts in zone_amounts(node).items()
    }


def _fits(free: Amounts, shape: Amounts) -> int:
    """Return how many pods of the shape the guaranteed free amounts of a zone hold."""
    if not shape:
        return -1
    return max(0, min(free.get(name, 0) // wanted for name, wanted in shape.items()))


def map_of(
    ledger: Ledger,
    resource: str,
    shape: Amounts,
    label: str,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> list[NodeCell]:
    """Return the cells of the wanted nodes, by name."""
    return [
        node_cell(ledger.nodes[name], resource, shape, label)
        for name in sorted(ledger.nodes)
        if is_wanted(name)
    ]


def labels_of(ledger: Ledger) -> list[str]:
    """Return the label keys by which nodes can be grouped: those with fewer values than nodes."""
    values: dict[str, set[str]] = {}
    for node in ledger.nodes.values():
        for key, value in (node.observed.labels if node.observed else {}).items():
            values.setdefault(key, set()).add(value)
    most = max(1, len(ledger.nodes) - 1)
    return sorted(key for key, of_label in values.items() if len(of_label) <= most)


def pods_of(ledger: Ledger, stage: str, search: str, limit: int = MOST_PODS) -> list[PodCell]:
    """Return pods by name, waiting ones first. `stage` "" is all; `search` is a part of the
    name."""
    chosen = (
        (uid, entry)
        for uid, entry in ledger.pods.items()
        if (not stage or entry.stage == stage) and search in entry.pod.key
    )
    ordered = sorted(chosen, key=lambda item: (item[1].stage != "pending", item[1].pod.key))
    return [pod_cell(ledger, uid, entry) for uid, entry in ordered[:limit]]


def pod_cell(ledger: Ledger, uid: str, entry: LedgerPod) -> PodCell:
    node = ledger.nodes.get(entry.node)
    charge = node.charges.get(uid) if node is not None else None
    zones, placement = dict[int, Amounts](), ""
    if node is not None and charge is not None:
        zones = charge.confirmed_zones if charge.confirmed else charge.zones
        placement = placement_text(charge, entry.predicted, node.report)
    return PodCell(
        uid,
        entry.pod.key,
        entry.stage,
        entry.node,
        (entry.problem or entry.verdict) if entry.stage == "pending" else "",
        entry.zone_wait,
        entry.predicted,
        entry.certain,
        tuple(sorted(zones)),
        charge is not None and charge.confirmed,
        placement,
    )


def counts_of(state: SchedulerState) -> Counts:
    """Count the nodes and pods that need attention."""
    nodes, pods = state.ledger.nodes.values(), state.ledger.pods.values()
    waiting = [entry for entry in pods if entry.stage == "pending"]
    return Counts(
        len(nodes),
        len(pods),
        len(waiting),
        sum(
            bool(charge.demand) and not charge.confirmed
            for node in nodes
            for charge in node.charges.values()
        ),
        sum(bool(node.dirty) for node in nodes),
        sum(node.expired for node in nodes),
        sum(bool(shapes) for shapes in state.exclusions.nodes.values()),
        sum(bool(entry.zone_wait) for entry in waiting),
    )
