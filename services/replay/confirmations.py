"""The report that confirmed the placement of a pod, and the zones: the core of a pod's story.

Only the relevant streams are folded (the pod's, its node's, that node's reports), so the cost does
not grow with the log. The ledger decides what confirms; this module decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.replay import reading
from services.replay.story import Confirmation, Zones
from services.replay.words import confirmed_by
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved
from shared.ledger.state import Ledger, LedgerNode

PAGE = 500
REPORTS_READ = 20_000


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
    ledger, quarantined = Ledger(), QuarantinedStreams(skipped=await skips(log))
    reports = await _reports(log, node, since, version)
    pods = [
        envelope
        for namesake in uids
        async for envelope in envelopes_of(log, streams.pod(namesake), 0, PAGE)
    ]
    others = await _after(log, streams.node(node), reports[0].position if reports else since)
    for envelope in sorted([*reports, *pods, *others], key=lambda envelope: envelope.position):
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


async def _reports(log: EventLog, node: str, since: int, version: int) -> list[Envelope]:
    """Return the reports from the newest full one before the stay, up to a bounded number after
    it.
    """
    stream = streams.report(node)
    if version == 0:
        version = await reading.version_at(log, stream, since)
    first = version
    while first > 0:
        first = max(0, first - PAGE)
        page = envelopes_of(log, stream, first, min(PAGE, version - first))
        full = [envelope.version async for envelope in page if envelope.type == "NodeReported"]
        if full:
            first = full[-1] - 1
            break
    return await _from(log, stream, first)


async def _after(log: EventLog, stream: str, position: int) -> list[Envelope]:
    return await _from(log, stream, await reading.version_at(log, stream, position))


async def _from(log: EventLog, stream: str, version: int) -> list[Envelope]:
    return [envelope async for envelope in envelopes_of(log, stream, version, REPORTS_READ)]
