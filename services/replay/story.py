"""The story of one pod, from its events: queued, each change of outcome, reserved on which node and
why, bound, admitted, confirmed. Pure: envelopes, events and confirmations in, lines out.

A line keeps its position and time, so that everything can be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from services.replay import words
from services.replay.filters import clock
from services.replay.near_miss import near_miss
from services.replay.words import by_container
from shared.domain.predicted import is_as_predicted
from shared.domain.resources import Amounts
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Event
from shared.events.envelope import Envelope

SCHEDULER_NAME = "topolog"
Zones = dict[str, tuple[int, ...]]
NO_NAMES: Mapping[str, str] = {}
NO_NOTES: Mapping[int, Sequence[str]] = {}


class Confirmation(msgspec.Struct, frozen=True):
    """The first report on `node` that shows the whole pod: its position, time and version,
    container -> zones, and what in the report confirmed it.
    """

    position: int
    time_us: int
    node: str
    report_version: int
    zones: Zones
    by: str = ""


class Line(msgspec.Struct, frozen=True):
    """One step of the story. `detail` are further lines, indented for people."""

    position: int
    time: str
    title: str
    detail: tuple[str, ...] = ()
    event: dict[str, Any] = {}


def lines_of(
    history: Iterable[tuple[Envelope, Event]],
    uid: str,
    names: Mapping[str, str] = NO_NAMES,
    notes: Mapping[int, Sequence[str]] = NO_NOTES,
    confirmations: Iterable[Confirmation] = (),
) -> list[Line]:
    """Return the lines for the pod `uid`, in order of position.

    `names` is the key of other pods by uid, `notes` are additions to the event at a position,
    `confirmations` are the confirmations by reports.
    """
    lines: list[Line] = []
    reserved: dict[str, scheduling.PodReserved] = {}
    for envelope, event in history:
        if event.about.pod != uid:
            continue
        if isinstance(event, scheduling.PodReserved):
            reserved[event.node] = event
        detail = (*_detail(event, names), *notes.get(envelope.position, ()))
        lines.append(
            Line(
                envelope.position,
                clock(envelope.time_us),
                _title(event, names),
                detail,
                msgspec.to_builtins(event),
            )
        )
    lines += [
        _confirmed(confirmation, reserved.get(confirmation.node)) for confirmation in confirmations
    ]
    return sorted(lines, key=lambda line: line.position)


def verdict_on(
    reserved: scheduling.PodReserved | None, zones: Mapping[str, tuple[int, ...]]
) -> str:
    """Return `as predicted`, the differing prediction, or that there was none; and whether the
    prediction was certain, that is, in the pod's annotation `topolog.io/placement`.
    """
    predicted = reserved.predicted if reserved is not None else {}
    if reserved is None or not predicted:
        return "nothing was predicted"
    if is_as_predicted(predicted, zones):
        return "as predicted with certainty" if reserved.certain else "as predicted"
    differs = f"predicted was {by_container(predicted)}"
    return f"{differs}, certain when it was decided" if reserved.certain else differs


def _confirmed(confirmation: Confirmation, reserved: scheduling.PodReserved | None) -> Line:
    zones = {
        "zones": {name: list(ids) for name, ids in confirmation.zones.items()},
        "node": confirmation.node,
        "report": confirmation.report_version,
    }
    title = (
        f"confirmed on {by_container(confirmation.zones)} of {confirmation.node}, "
        f"{verdict_on(reserved, confirmation.zones)}"
    )
    detail = (
        f"by report {confirmation.report_version} of the node; the charge in other zones ends",
    )
    return Line(
        confirmation.position,
        clock(confirmation.time_us),
        title,
        detail,
        {"type": "Proof", **zones},
    )


def _title(event: Event, names: Mapping[str, str]) -> str:
    """Return the sentence of the event, with the node if the story needs it."""
    title = _TITLES.get(type(event))
    return title(event) if title is not None else words.sentence_of(event, names).text


_TITLES: dict[type[Event], Callable[[Any], str]] = {
    cluster.PodRunning: lambda event: f"admitted and running on {event.node}",
    scheduling.PodReserved: lambda event: (
        f"reserved on {event.node}" + words.zones_of_reservation(event)
    ),
    scheduling.NodeCharged: lambda event: f"charged to {event.node}",
    scheduling.ReservationWithdrawn: lambda event: (
        f"reservation on {event.node} withdrawn: {event.cause.replace('_', ' ')}"
    ),
    scheduling.PodNominated: lambda event: (
        f"nominated to {event.node}, evicting {len(event.victims)} pod(s)"
    ),
    scheduling.NodeClaimed: lambda event: f"nomination claims room on {event.node}",
    scheduling.NominationWithdrawn: lambda event: (
        f"nomination to {event.node} withdrawn: {event.cause.replace('_', ' ')}"
    ),
    binding.BindIntended: lambda event: f"binding to {event.node} intended",
    binding.PodBound: lambda event: (
        f"bound to {event.node}" + (" (found bound)" if event.found else "")
    ),
    binding.BindRefused: lambda event: (
        f"binding to {event.node} refused: {event.cause.replace('_', ' ')}"
    ),
    binding.BindUncertain: lambda event: (
        f"no clear answer to the binding to {event.node}; it is sent again"
    ),
}


def _detail(event: Event, names: Mapping[str, str]) -> list[str]:
    if isinstance(event, scheduling.PodVerdictChanged):
        return _verdict(event, names)
    if isinstance(event, scheduling.PodNominated):
        return [f"evicts {names.get(uid, uid)}" for uid in event.victims] + zones_text(event.zones)
    if isinstance(event, scheduling.PodReserved) and event.drawn_from:
        return [
            f"in the room of {names.get(event.drawn_from, event.drawn_from)}",
            *_reserved(event),
        ]
    teller = _DETAILS.get(type(event))
    return [text for text in teller(event) if text] if teller is not None else []


def zones_text(zones: dict[int, Amounts]) -> list[str]:
    return [
        f"zone {zone}: {words.amounts_text(amounts)}" for zone, amounts in sorted(zones.items())
    ]


def _verdict(event: scheduling.PodVerdictChanged, names: Mapping[str, str]) -> list[str]:
    counts = [
        f"{count} {reason}"
        for reason, count in sorted(event.counts.items(), key=lambda kv: (-kv[1], kv[0]))
    ]
    return [*counts, *(line for refusal in event.detail for line in near_miss(refusal, names))]


def _observed(event: cluster.PodObserved) -> list[str]:
    detail = [f"priority {event.pod.priority}"] if event.pod.priority else []
    scheduler_name = event.pod.scheduler_name
    if scheduler_name != SCHEDULER_NAME and event.node:
        detail.append(
            f"its schedulerName is {scheduler_name}: Topolog did not place it, and charges "
            "its node for it"
        )
        detail.append(
            "to have Topolog place it, delete it and recreate it with "
            f"spec.schedulerName: {SCHEDULER_NAME}"
        )
    return detail


def _reserved(event: scheduling.PodReserved) -> list[str]:
    return [
        (
            f"best of {event.candidates} node(s), score {event.score}, decided on position "
            f"{event.based_on}"
        ),
        f"used report version {event.report_version} of the node",
    ]


def _charged(event: scheduling.NodeCharged) -> list[str]:
    trusted = [f"held to the predicted {by_container(event.narrowed)}"] if event.narrowed else []
    return [*zones_text(event.zones), *trusted]


_DETAILS: dict[type[Event], Callable[[Any], list[str]]] = {
    cluster.PodObserved: _observed,
    scheduling.PodReserved: _reserved,
    scheduling.NodeCharged: _charged,
    binding.PodBound: lambda event: [f"after {event.attempts} call(s)"],
    binding.BindRefused: lambda event: [event.message],
    binding.BindUncertain: lambda event: [event.message],
}
