"""What the picture shows, as values: a row a node with a bar a zone, the queue with reasons,
counts. Pure; from the ledger.

A zone's bar has three parts: used (the report says so), charged but unproven (pods on their way,
where they could land), free. Must not know terminals, keys or the log.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.domain.report import Zone
from shared.domain.resources import CPU, MEMORY
from shared.ledger.state import Ledger, LedgerNode

STAGES = ("pending", "reserved", "intended", "bound", "running")


class ZoneBar(msgspec.Struct, frozen=True):
    """One resource of one zone, in Topolog's units; the parts add up to `total`."""

    zone: int
    used: int
    charged: int
    free: int

    @property
    def total(self) -> int:
        """What pods may have of it."""
        return self.used + self.charged + self.free


class NodeRow(msgspec.Struct, frozen=True):
    """One node. `taken` is the share of its fullest zone that is used or charged, 0 to 1; `flags`
    what is wrong with it.
    """

    name: str
    bars: tuple[ZoneBar, ...]
    pods: int
    taken: float
    flags: str = ""

    @property
    def rank(self) -> tuple[bool, float, str]:
        """Worst first: what is wrong, then what is full."""
        return (not self.flags, -self.taken, self.name)


class Totals(msgspec.Struct, frozen=True):
    """What goes over all nodes and pods: counted now and then, not for each drawing."""

    resources: list[str]
    queue: list[Waiting]
    stages: dict[str, int]


class Waiting(msgspec.Struct, frozen=True):
    """One pod of the queue."""

    uid: str
    pod: str
    reason: str


def node_row(node: LedgerNode, resource: str) -> NodeRow:
    """The node's row for one resource."""
    bars = (
        tuple(_bar(node, zone, resource) for zone in node.report.zones)
        if node.report is not None
        else ()
    )
    shares = [(bar.used + bar.charged) / bar.total for bar in bars if bar.total]
    return NodeRow(node.name, bars, len(node.charges), max(shares, default=0.0), flags_of(node))


def _bar(node: LedgerNode, zone: Zone, resource: str) -> ZoneBar:
    held = zone.resources.get(resource)
    total = held.allocatable if held is not None else 0
    best = min(total, max(0, node.free_max.get(zone.id, {}).get(resource, 0)))
    sure = min(best, max(0, node.free_min.get(zone.id, {}).get(resource, 0)))
    return ZoneBar(zone.id, total - best, best - sure, sure)


def flags_of(node: LedgerNode) -> str:
    """What keeps pods away from the node, in words; "" for nothing."""
    seen = node.observed
    flags = [
        (seen is None, "no node object"),
        (seen is not None and not seen.ready, "not ready"),
        (seen is not None and seen.unschedulable, "cordoned"),
        (node.report is None, "no report yet"),
        (bool(node.locked), "locked out"),
        (node.expired, "silent"),
        (bool(node.dirty), "dirty"),
    ]
    return ", ".join(word for holds, word in flags if holds)


def resources_of(nodes: Iterable[LedgerNode]) -> list[str]:
    """Every resource that some zone has: cpu, memory, devices, hugepages."""
    found = {
        name
        for node in nodes
        if node.report is not None
        for zone in node.report.zones
        for name in zone.resources
    }
    return sorted(
        found, key=lambda name: (name != CPU, name != MEMORY, name.startswith("hugepages-"), name)
    )


def queue_of(ledger: Ledger) -> list[Waiting]:
    """Pods that wait, those with a reason first."""
    found = [
        Waiting(uid, entry.pod.key, entry.problem or entry.verdict or "not decided yet")
        for uid, entry in ledger.pods.items()
        if entry.stage == "pending"
    ]
    return sorted(found, key=lambda one: (one.reason == "not decided yet", one.pod))


def stages_of(ledger: Ledger) -> dict[str, int]:
    """Live pods by stage."""
    counts = dict.fromkeys(STAGES, 0)
    for entry in ledger.pods.values():
        counts[entry.stage] += 1
    return counts


def totals_of(ledger: Ledger) -> Totals:
    """Everything that goes over all nodes and pods."""
    return Totals(resources_of(ledger.nodes.values()), queue_of(ledger), stages_of(ledger))
