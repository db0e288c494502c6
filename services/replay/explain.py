"""`replay explain`: the story of each pod of a name, its current state, and the report that
confirmed it. Reads; decides nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.replay import story
from services.replay.confirmations import confirmations_of
from services.replay.filters import clock
from services.replay.judging import outcome_now, rejected_elsewhere
from services.replay.names import Names, require_pod
from services.replay.nearest import nearest_state
from services.replay.recomputing import Deciding, Recorded, recomputed
from services.replay.rejected import explained, said
from services.replay.state_at import label_problems
from services.replay.story import Confirmation
from services.replay.words import by_container, mentioned, zones_list
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.eventlog.whole_stream import envelopes_of
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events import streams
from shared.events.catalog import Event
from shared.events.codec import decode
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams

History = list[tuple[Envelope, Event]]


class Story(msgspec.Struct, frozen=True):
    """One pod's story. `current` is one sentence on the current state. `zones` has the predicted,
    charged and confirmed zones. `quarantined` says why the story ends early, if an event cannot be
    read.
    """

    uid: str
    key: str
    lines: list[story.Line]
    current: str = ""
    zones: dict[str, Any] = {}
    quarantined: str = ""


async def explain(log: EventLog, pod: str, deciding: Deciding | None = None) -> list[Story]:
    """Return the story of each pod of that name.

    With `deciding`, decisions are recomputed. Raises UnknownPod with near matches.
    """
    uids = await require_pod(log, pod)
    names = Names(log)
    return [await _story(log, uid, names, uids, deciding) for uid in uids]


async def _story(
    log: EventLog, uid: str, names: Names, namesakes: list[str], deciding: Deciding | None
) -> Story:
    quarantined = QuarantinedStreams(skipped=await skips(log))
    history = await _history(log, uid, quarantined)
    for _, event in history:
        names.learn(event)
        await names.find([*mentioned(event), *_holders(event)])
    confirmations = await confirmations_of(log, uid, history, namesakes)
    notes = await _notes(log, history)
    made = [(envelope, event) for envelope, event in history if isinstance(event, Recorded)]
    for position, text in (
        await recomputed(log, made, deciding) if deciding is not None else {}
    ).items():
        notes[position] = [*notes.get(position, ()), text]
    state_now = _now(history, confirmations)
    if deciding is not None and not deciding.instead:
        notes |= await _rejected(log, history, deciding)
        for position, texts in (await rejected_elsewhere(log, history, deciding, names)).items():
            notes[position] = [*notes.get(position, ()), *texts]
        if state_now.startswith("waits"):
            state_now += await outcome_now(log, uid, deciding)
    lines = story.lines_of(history, uid, names.known, notes, confirmations)
    quarantine = quarantined.streams.get(streams.pod(uid), "")
    return Story(
        uid,
        names.known.get(uid, uid),
        lines,
        state_now,
        _zones(history, confirmations),
        quarantine,
    )


async def _history(log: EventLog, uid: str, quarantined: QuarantinedStreams) -> History:
    """Return the pod's own events, its charges, which are on the streams of nodes, and the nodes
    that were held for it.
    """
    pod_events = [
        (envelope, quarantined.event_of(envelope))
        for stream in (streams.pod(uid), streams.hold(uid))
        async for envelope in envelopes_of(log, stream)
    ]
    history: History = [(envelope, event) for envelope, event in pod_events if event is not None]
    charges: History = []
    for envelope, event in history:
        if isinstance(event, scheduling.PodReserved | scheduling.PodNominated):
            commit = await log.read(envelope.position, 8)
            charges += [
                (neighbour, charged)
                for neighbour in commit
                if neighbour.commit_id == envelope.commit_id
                and not neighbour.stream.startswith("pod/")
                and isinstance(
                    charged := quarantined.event_of(neighbour),
                    scheduling.NodeCharged | scheduling.NodeClaimed,
                )
                and charged.uid == uid
            ]
    return sorted([*history, *charges], key=lambda entry: entry[0].position)


async def _rejected(log: EventLog, history: History, deciding: Deciding) -> dict[int, list[str]]:
    """Return the rejections that a pod's end between decision and admission explains.

    If the pod would not be sent there again, the note of the decision says so.
    """
    explanations, made = dict[int, list[str]](), None
    for envelope, event in history:
        if isinstance(event, scheduling.PodReserved):
            made = envelope, event
        elif (
            isinstance(event, cluster.PodEnded)
            and event.cause == "rejected"
            and made is not None
            and made[1].node == event.node
        ):
            explanation = await explained(log, made, envelope, deciding)
            if explanation is not None and (explanation.ended or not explanation.judged):
                explanations[envelope.position] = [said(explanation)]
    return explanations


def _holders(event: Event) -> list[str]:
    """Return the pods that a near miss names."""
    if not isinstance(event, scheduling.PodVerdictChanged):
        return []
    zones = [
        zone
        for refusal in event.detail
        for zone in _list(refusal.get("zones"))
        if isinstance(zone, dict)
    ]
    return [str(uid) for zone in zones for uid in _list(zone.get("holders"))]


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


async def _notes(log: EventLog, history: History) -> dict[int, list[str]]:
    """Return which labels of a chosen node had no effect on the choice."""
    notes: dict[int, list[str]] = {}
    for envelope, event in history:
        if isinstance(event, scheduling.PodReserved):
            seen = await _node_seen(log, event.node, envelope.position)
            if problems := label_problems(seen, event.allocation is not None):
                notes[envelope.position] = problems
    return notes


async def _node_seen(log: EventLog, node: str, until: int) -> cluster.NodeObserved | None:
    """Return the node's object at a position: of the nearest snapshot, or by a later event."""
    followed, stream = await nearest_state(log, until, QuarantinedStreams()), streams.node(node)
    ledger_node = followed.ledger.nodes.get(node)
    observed = ledger_node.observed if ledger_node is not None else None
    begin = await log.version_at(stream, followed.ledger.position)
    async for envelope in envelopes_of(log, stream, begin):
        if envelope.position > until:
            break
        if envelope.type == "NodeObserved":
            event = decode(envelope)
            observed = event if isinstance(event, cluster.NodeObserved) else observed
    return observed


def _now(history: History, confirmations: list[Confirmation]) -> str:
    """Return the pod's current state: its stage, node and zones, since when and by which report."""
    stage = "is not known"
    for envelope, event in history:
        stage = _stage(event) or stage
        if _stage(event):
            since = clock(envelope.time_us)
    if stage == "is not known":
        return stage
    text = f"{stage} since {since}"
    reserved = [event for _, event in history if isinstance(event, scheduling.PodReserved)]
    if stage.startswith(("ended", "waits", "is being deleted")):
        return text
    node = _node_now(history)
    for confirmation in confirmations[::-1]:
        if confirmation.node == node:
            decision = reserved[-1] if reserved and reserved[-1].node == node else None
            zones = by_container(confirmation.zones)
            prediction = story.verdict_on(decision, confirmation.zones)
            return (
                f"{text}; on {zones}, {prediction}: confirmed by report "
                f"{confirmation.report_version} at {clock(confirmation.time_us)} "
                f"({confirmation.by})"
            )
    charged = [
        event
        for _, event in history
        if isinstance(event, scheduling.NodeCharged) and event.node == node
    ]
    if charged and charged[-1].zones:
        hope = (
            f", predicted on {by_container(reserved[-1].predicted)}"
            if reserved and reserved[-1].predicted
            else ""
        )
        return (
            f"{text}; its zone is not confirmed yet: charged in "
            f"{zones_list(charged[-1].zones)}{hope}"
        )
    return f"{text}; needs no zone"


def _node_now(history: History) -> str:
    node = ""
    for _, event in history:
        if isinstance(
            event,
            cluster.PodObserved | scheduling.PodReserved | binding.PodBound | cluster.PodRunning,
        ):
            node = event.node or node
    return node


def _stage(event: Event) -> str:
    """Return the stage after the event, "" if it does not change."""
    match event:
        case cluster.PodObserved(node="", terminating=False):
            return "waits"
        case cluster.PodObserved(node="") | binding.BindRefused(cause="terminating"):
            return "is being deleted"
        case cluster.PodObserved(node=node):
            return f"bound to {node}"
        case scheduling.PodReserved(node=node):
            return f"reserved on {node}"
        case binding.PodBound(node=node):
            return f"bound to {node}"
        case cluster.PodRunning(node=node):
            return f"running on {node}"
        case cluster.PodEnded(cause=cause):
            return f"ended ({cause.replace('_', ' ')})"
        case scheduling.ReservationWithdrawn() | binding.BindRefused():
            return "waits"
    return ""


def _zones(history: History, confirmations: list[Confirmation]) -> dict[str, Any]:
    """Return the zones as values: container -> ids as predicted and confirmed, ids as charged."""
    zones: dict[str, Any] = {}
    for _, event in history:
        if isinstance(event, scheduling.PodReserved):
            zones = {"node": event.node, "predicted": event.predicted, "certain": event.certain}
        elif isinstance(event, scheduling.NodeCharged):
            zones["charged"] = sorted(event.zones)
    for confirmation in confirmations:
        zones |= {
            "node": confirmation.node,
            "confirmed": confirmation.zones,
            "report": confirmation.report_version,
            "at": confirmation.position,
        }
    return zones
