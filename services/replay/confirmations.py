"""The report that confirmed the placement of a pod, and the zones: the core of a pod's story.

Only the relevant streams are folded (the pod's, its node's, that node's reports), from the nearest
snapshot on, so the cost does not grow with the log. A fingerprint is of all pods of the node; for
it the log itself is folded from there. The ledger decides what confirms; this module decides
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.replay import reading
from services.replay.nearest import nearest_state
from services.replay.story import Confirmation, Zones
from services.replay.words import confirmed_by
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.eventlog.whole_stream import envelopes_of, in_order
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodReserved
from shared.ledger.container_zones import lists_by_match
from shared.ledger.state import Ledger, LedgerNode

PAGE = 500
REPORTS_READ = 20_000
# Events after the reservation in which a fingerprint is looked for.
EVENTS_READ = 200_000
# Events of a node that are read at once: the confirmation is most often among the first.
AHEAD = 100


async def confirmations_of(
    log: EventLog,
    uid: str,
    history: Sequence[tuple[Envelope, Event]],
    namesakes: Sequence[str] = (),
) -> list[Confirmation]:
    """Return a confirmation for each node that the pod was charged to, in order of position."""
    confirmations = []
    for node, since, report_version in _stays(history):
        confirmation = await _confirmation(log, uid, node, since, report_version, [uid, *namesakes])
        if confirmation is not None:
            confirmations.append(confirmation)
    return sorted(confirmations, key=lambda confirmation: confirmation.position)


def actual_zones(node: LedgerNode, key: str) -> Zones:
    """Return container -> zones that the report lists for it."""
    listed = (node.listed or {}).get(key, ())
    return {
        p.container: tuple(sorted({zone for item in p.held for zone in item.zones}))
        for p in listed
        if p.held
    }


def _stays(history: Sequence[tuple[Envelope, Event]]) -> list[tuple[str, int, int]]:
    """Return (node, position, version of the report used) of each reservation or sighting, each
    node once.
    """
    stays: dict[str, tuple[str, int, int]] = {}
    for envelope, event in history:
        if isinstance(event, PodReserved):
            stays[event.node] = (event.node, envelope.position, event.report_version)
        elif isinstance(event, PodObserved) and event.node:
            stays.setdefault(event.node, (event.node, envelope.position, 0))
    return list(stays.values())


async def _confirmation(
    log: EventLog, uid: str, node: str, since: int, version: int, uids: Sequence[str]
) -> Confirmation | None:
    quarantined, report = QuarantinedStreams(skipped=await skips(log)), streams.report(node)
    ledger = (await nearest_state(log, since - 1, quarantined)).ledger
    report_there = ledger.nodes[node].report if node in ledger.nodes else None
    version_there = await log.version_at(report, ledger.position) if report_there is not None else 0
    first_report = await _full_report(log, report, since, version, version_there)
    first = (
        await log.read_stream(report, first_report, 1) if first_report or not report_there else []
    )
    is_of_all_pods = (
        _is_of_all_pods(quarantined.event_of(first[0]))
        if first
        else report_there is not None and lists_by_match(report_there)
    )
    if is_of_all_pods:
        folded, end = ledger.position, min(await log.head(), since + EVENTS_READ)
        events = reading.envelopes(log, folded, end)
    else:
        if report_there is not None:
            begin = folded = ledger.position
            first_report = version_there
        else:
            ledger, folded = Ledger(), 0
            begin = first[0].position if first else since
        others = await log.version_at(streams.node(node), begin)
        sources = [
            *(envelopes_of(log, streams.pod(uid), 0, PAGE) for uid in dict.fromkeys(uids)),
            envelopes_of(log, report, first_report, REPORTS_READ, AHEAD),
            envelopes_of(log, streams.node(node), others, REPORTS_READ, AHEAD),
        ]
        events = in_order(sources)
    async for envelope in events:
        if envelope.position <= folded:
            continue
        ledger.position = envelope.position - 1
        reading.fold_one(ledger, envelope, quarantined)
        ledger_node = ledger.nodes.get(node)
        charge = ledger_node.charges.get(uid) if ledger_node is not None else None
        if (
            ledger_node is not None
            and charge is not None
            and charge.confirmed
            and charge.demand
            and envelope.position > since
        ):
            return Confirmation(
                envelope.position,
                envelope.time_us,
                node,
                ledger_node.report_version,
                actual_zones(ledger_node, charge.key),
                confirmed_by(ledger_node),
            )
    return None


def _is_of_all_pods(event: Event | None) -> bool:
    """Return whether such reports confirm pods by a fingerprint of all pods of the node."""
    return isinstance(event, NodeReported) and lists_by_match(event.report)


async def _full_report(log: EventLog, stream: str, since: int, version: int, least: int) -> int:
    """Return the version before the newest full report that the stay began with, 0 if none is after
    version `least`."""
    if version == 0:
        version = await log.version_at(stream, since)
    first = version
    while first > least:
        first, last = max(least, first - PAGE), first
        page = envelopes_of(log, stream, first, last - first)
        full = [envelope.version async for envelope in page if envelope.type == "NodeReported"]
        if full:
            return full[-1] - 1
    return 0
