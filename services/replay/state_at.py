"""`replay at`: the ledger at a moment, as numbers and objects. The printing code turns them into
words.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from services.replay import filters
from services.replay.deciding_state import followed_at
from services.replay.node_trouble import dirty_mark, exclusions_of
from services.replay.positions import position_of
from services.replay.suggestions import did_you_mean
from services.replay.words import confirmed_by, placement_text
from services.replay.zone_amounts import zone_amounts
from services.scheduler.score.strategies.koordinator import strategy_for
from services.scheduler.snapshot.owners import owners_of, strategies
from services.scheduler.state.holds import Holds
from shared.domain.state_hash import state_hash
from shared.eventlog.port import EventLog
from shared.events import cluster_events as cluster
from shared.ledger.state import Charge, Ledger, LedgerNode, LedgerPod

REMEDY = "topolog replay at head, or at 1"


async def state_at(log: EventLog, moment: str, node: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the ledger at a moment: what concerns no node, then each node. Amounts are in millicpu,
    bytes and counts. `charges` are the zones in which each pod may be, or is.
    """
    head = await log.head()
    position = await position_of(log, moment, remedy=REMEDY)
    followed, quarantined = await followed_at(log, position)
    ledger = followed.ledger
    if node and node not in ledger.nodes:
        hint = did_you_mean(node, ledger.nodes)
        raise filters.FilterError(
            f"no node {node!r} at position {ledger.position}{hint}", "topolog replay at head"
        )
    time_us = (await log.read(position - 1, 1))[0].time_us
    yield {
        "position": ledger.position,
        "head": head,
        "time": filters.clock(time_us),
        "hash": state_hash(ledger),
        "pods": len(ledger.pods),
        "quarantined": list(quarantined.streams.values()),
        "waiting": sorted(entry.pod.key for entry in ledger.pods.values() if _waits(entry)),
    }
    for name in [node] if node else sorted(ledger.nodes):
        yield {
            **node_state(ledger, ledger.nodes[name]),
            "exclusions": await exclusions_of(log, name, followed.exclusions, position),
            "held_for": _held_for(followed.holds, name),
            "dirty_mark": await dirty_mark(log, ledger.nodes[name], position),
        }


def _held_for(holds: Holds, node: str) -> str:
    """Return the overdue pod for which the node is held, "" for none."""
    return holds.by_node[node].key if node in holds.by_node else ""


def _waits(entry: LedgerPod) -> bool:
    """Return whether the pod waits for a node. A pod that is being deleted and held by a finalizer
    does not.
    """
    return entry.stage == "pending" and not entry.terminating


def node_state(ledger: Ledger, node: LedgerNode) -> dict[str, Any]:
    """Return one node: report, flags, zones, charges."""
    report = node.report
    owners = owners_of(report) if report else None
    is_owned = owners is not None and owners.is_owned
    if owners is not None and is_owned and node.devices is not None:
        owners = msgspec.structs.replace(owners, devices="topolog")
    return {
        "node": node.name,
        "policy": report.policy if report else "",
        "scope": report.scope if report else "",
        "report_version": node.report_version,
        "report_position": node.report_position,
        "chosen_by": owners.text if owners else "",
        "confirmed_by": confirmed_by(node),
        "dirty": node.dirty,
        "expired": node.expired,
        "ready": node.observed.ready if node.observed is not None else False,
        "locked": node.locked,
        "problems": [*lockout(node), *label_problems(node.observed, is_owned)],
        "zones": _zones(node),
        "charges": [_charge(ledger, node, charge) for charge in node.charges.values()],
    }


def lockout(node: LedgerNode) -> list[str]:
    """Return why no report of a node is believed, and the remedy."""
    return (
        [f"locked out: {node.locked}; look at the machine, then: topolog node release {node.name}"]
        if node.locked
        else []
    )


def label_problems(observed: cluster.NodeObserved | None, is_owned: bool) -> list[str]:
    """Return which of the node's labels have no effect. `is_owned`: Topolog chooses its zones."""
    labels = observed.labels if observed is not None else {}
    problem = "" if is_owned and strategies(labels) else strategy_for(labels).problem
    return [problem] if problem else []


def _zones(node: LedgerNode) -> list[dict[str, Any]]:
    return [
        {"zone": zone, "resources": {name: size._asdict() for name, size in amounts.items()}}
        for zone, amounts in zone_amounts(node).items()
    ]


def _charge(ledger: Ledger, node: LedgerNode, charge: Charge) -> dict[str, Any]:
    entry = ledger.pods.get(charge.uid)
    predicted = entry.predicted if entry is not None else {}
    return {
        "pod": charge.key,
        "uid": charge.uid,
        "state": _state(charge, node),
        "text": placement_text(charge, predicted, node.report),
        "since": charge.charged_at,
        "predicted": predicted,
        "possible": {} if charge.confirmed else charge.possible,
        "held": charge.confirmed_zones,
        "charged": charge.allocation.zones if charge.allocation else charge.zones,
    }


def _state(charge: Charge, node: LedgerNode) -> str:
    if node.report is not None and owners_of(node.report).is_owned:
        return "allocated" if charge.allocation else "may be in every zone"
    if not charge.demand:
        return "needs no zone"
    return "confirmed" if charge.confirmed else "unconfirmed"
