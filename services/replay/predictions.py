"""Predicted and actual zones of every reservation: the hit rate, and what was different in the misses.

The prediction is in `PodReserved`; the actual zones are those of the first report that proves the pod. Pure but for reading.
"""

from __future__ import annotations

import msgspec

from services.replay import reading
from shared.eventlog.port import EventLog
from shared.events.scheduling_facts import PodReserved
from shared.ledger.fold import evolve
from shared.ledger.state import Ledger, LedgerNode

Zones = dict[str, tuple[int, ...]]


class Pending(msgspec.Struct):
    """A reservation whose pod no report has proven yet."""

    fact: PodReserved
    position: int
    unproven_beside: int


class Miss(msgspec.Struct, frozen=True):
    """One wrong prediction. `difference` says what the model could not know."""

    position: int
    pod: str
    node: str
    predicted: Zones
    actual: Zones
    difference: str


class Group(msgspec.Struct):
    """Counts of one policy or one node."""

    name: str
    predicted: int = 0
    hit: int = 0

    def row(self) -> list[str]:
        """Cells for a table."""
        rate = f"{100 * self.hit / self.predicted:.1f} %" if self.predicted else "-"
        return [self.name, str(self.predicted), str(self.hit), rate]


class Predictions(msgspec.Struct):
    """The whole comparison. `unproven` reservations never got a proof to compare with."""

    groups: list[Group]
    misses: list[Miss]
    unproven: int = 0


async def predictions(log: EventLog, by: str, miss_limit: int) -> Predictions:
    """Fold the log and compare each reservation's prediction with its first proof."""
    ledger, groups, misses = Ledger(), dict[str, Group](), list[Miss]()
    pending: dict[str, dict[str, Pending]] = {}
    async for envelope, fact in reading.facts(log):
        touched = evolve(ledger, envelope, fact)
        if isinstance(fact, PodReserved) and fact.predicted:
            node = ledger.nodes.get(fact.node)
            beside = sum(not charge.proven for charge in node.charges.values()) if node else 0
            pending.setdefault(fact.node, {})[fact.uid] = Pending(fact, envelope.position, beside)
        for name in touched:
            if name in pending and name in ledger.nodes:
                _compare(ledger, ledger.nodes[name], pending[name], groups, misses, by)
    left = sum(len(waiting) for waiting in pending.values())
    return Predictions(sorted(groups.values(), key=lambda group: group.name), misses[:miss_limit], left)


def _compare(
    ledger: Ledger, node: LedgerNode, pending: dict[str, Pending], groups: dict[str, Group], misses: list[Miss], by: str
) -> None:
    for uid in list(pending):
        charge = node.charges.get(uid)
        if uid not in ledger.pods:
            del pending[uid]
        if charge is None or not charge.proven or not charge.demand:
            continue
        waiting = pending.pop(uid)
        actual = actual_zones(node, charge.key)
        predicted = {name: tuple(zones) for name, zones in waiting.fact.predicted.items()}
        policy = node.report.policy if node.report is not None else "unknown"
        group = groups.setdefault(node.name if by == "node" else policy, Group(node.name if by == "node" else policy))
        group.predicted += 1
        if all(actual.get(name, zones) == zones for name, zones in predicted.items()):
            group.hit += 1
        else:
            misses.append(Miss(waiting.position, charge.key, node.name, predicted, actual, _difference(waiting)))


def actual_zones(node: LedgerNode, key: str) -> Zones:
    """Container -> zones that the report lists for it."""
    listed = (node.listed or {}).get(key, ())
    return {p.container: tuple(sorted({zone for item in p.held for zone in item.zones})) for p in listed if p.held}


def _difference(waiting: Pending) -> str:
    if waiting.unproven_beside:
        return f"{waiting.unproven_beside} unproven pod(s) were on the node when it was predicted"
    return "the kubelet's state differed from the report that the prediction used (a pod ended or started in between)"
