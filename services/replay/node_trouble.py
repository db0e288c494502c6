"""Why a node gets fewer pods than it could: excluded pod classes, and the dirty mark. Pure but for
reading.

The state keeps a fingerprint of a pod class; the pod that caused the exclusion is looked up so that
people see its requests. This module does not know how an exclusion is decided.
"""

from __future__ import annotations

from typing import Any

from services.replay.words import amounts_text
from services.scheduler.state.exclusions import Exclusions
from shared.domain.effective import effective_request
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import envelopes_of, readable_events_of
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.codec import UndecodableEvent, decode
from shared.events.scheduling_events import NodeMarkedDirty, NodeReadmitted, NodeSetAside
from shared.ledger.state import LedgerNode


async def exclusions_of(
    log: EventLog, node: str, exclusions: Exclusions, position: int
) -> list[dict[str, Any]]:
    """Return the pod classes that the node is excluded for: requests, cause, count and remedy."""
    excluded = exclusions.nodes.get(node, {})
    if not excluded:
        return []
    causes: dict[str, NodeSetAside] = {}
    since = min(exclusion.since for exclusion in excluded.values())
    begin = await log.version_at(streams.node(node), since - 1)
    async for envelope, event in readable_events_of(log, streams.node(node), begin):
        if envelope.position > position:
            break
        if isinstance(event, NodeSetAside):
            causes[event.shape] = event
        elif isinstance(event, NodeReadmitted):
            causes = {shape: cause for shape, cause in causes.items() if event.shape != shape}
    rows = []
    for shape, exclusion in sorted(excluded.items(), key=lambda item: item[1].since):
        uid = causes[shape].uid if shape in causes else ""
        pod, requests = await _pod(log, uid)
        rows.append(
            {
                "pod": pod,
                "requests": requests,
                "cause": exclusion.cause,
                "detail": exclusion.detail,
                "times": exclusion.strikes,
                "since": exclusion.since,
                "remedy": f"topolog node readmit {node}",
            }
        )
    return rows


async def _pod(log: EventLog, uid: str) -> tuple[str, dict[str, int]]:
    async for envelope in envelopes_of(log, streams.pod(uid), 0, 3):
        try:
            event = decode(envelope)
        except UndecodableEvent:
            continue
        if isinstance(event, PodObserved):
            return event.pod.key, effective_request(event.pod)
    return "", {}


async def dirty_mark(log: EventLog, node: LedgerNode, position: int) -> dict[str, Any]:
    """Return why the node is marked dirty, after how many refusals, and its unconfirmed pods."""
    if not node.dirty:
        return {}
    refusals, since = 0, 0
    async for envelope, event in readable_events_of(log, streams.node(node.name)):
        if envelope.position > position:
            break
        if isinstance(event, NodeMarkedDirty):
            refusals, since = event.rejections, envelope.position
    return {
        "cause": node.dirty,
        "refusals": refusals,
        "since": since,
        "unconfirmed": sorted(
            charge.key for charge in node.charges.values() if charge.demand and not charge.confirmed
        ),
    }


def exclusion_text(row: dict[str, Any]) -> str:
    """Return one line for people."""
    who = f"pods that request {amounts_text(row['requests'])}" if row["requests"] else "some pods"
    like = f" (like {row['pod']})" if row["pod"] else ""
    times = f", {row['times']} times in a row" if row["times"] > 1 else ""
    return (
        f"excluded for {who}{like} since position {row['since']}{times}: "
        f"{row['cause']}: {row['detail']}. Override: {row['remedy']}"
    )


def dirty_text(mark: dict[str, Any]) -> str:
    """Return one line for people."""
    pods = ", ".join(mark["unconfirmed"][:5]) or "none"
    more = len(mark["unconfirmed"]) - 5
    return (
        f"dirty since position {mark['since']} after {mark['refusals']} refusals in a row "
        f"({mark['cause']}); compared with the next report. Unconfirmed pods: {pods}"
        + (f" and {more} more" if more > 0 else "")
    )
