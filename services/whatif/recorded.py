"""The workload in a history: arrivals, lifetimes, delays and machines.

Reads the events between two positions, from the nearest checkpoint on. Pods that lived at the first
of them are there from the start. This module does not know rules or kubelets.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import Counter
from typing import get_args

import msgspec

from services.replay import reading
from services.replay.nearest import nearest_state
from services.scheduler.queue.shard import shard_of
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.eventlog.whole_stream import envelopes_of, in_order
from shared.events import streams
from shared.events.binding_events import BindRefused, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import (
    BookingEnded,
    BookingMade,
    PodReserved,
    ReservationWithdrawn,
)
from shared.events.surroundings_events import (
    Surrounding,
    SurroundingEnded,
    SurroundingEvent,
    stream_of,
)

# A pod of the same kind that appears within this time after a rejection replaces the rejected pod.
AGAIN_WITHIN_US = 120_000_000
# Assumed if no pod of the history ended.
FIRST_LIFETIME_S = 60.0
# Every 50th report is a full one.
REPORTS_A_PAGE = 50


# Events that are played in addition to pods and reports: those of nodes, cluster objects and
# bookings.
News = NodeObserved | NodeEnded | BookingMade | BookingEnded | SurroundingEvent


class Past(msgspec.Struct):
    """The times of one pod in Unix microseconds, 0 for a step that did not happen.
    `bound_by_others` means that it was bound without a reservation.
    """

    pod: Pod
    seen_us: int
    node: str = ""
    reserved_us: int = 0
    bound_us: int = 0
    running_us: int = 0
    ended_us: int = 0
    cause: str = ""
    bound_by_others: bool = False
    lifetime_s: float | None = None
    again: tuple[str, ...] = ()

    @property
    def rejected(self) -> bool:
        """Whether the kubelet rejected the pod."""
        return self.cause == "rejected"


class Recorded(msgspec.Struct):
    """A history's workload. `news` are the events about nodes' objects, in order; `reports` the
    machine of each node; `used` the bookings that pods used; `schedulers` the largest number of
    schedulers that shared the pods.
    """

    begin_us: int = 0
    end_us: int = 0
    pods: dict[str, Past] = {}
    replaced: dict[str, str] = {}
    news: list[tuple[int, str, News]] = []
    reports: dict[str, Report] = {}
    used: set[str] = set()
    assumed_lifetimes: int = 0
    schedulers: int = 1


async def recorded(log: EventLog, first: int, last: int) -> Recorded:
    """Read positions `first`..`last`, and what lived before them: from the nearest checkpoint, or
    from the beginning. Pods that ended before `first` are left out."""
    history, quarantined = Recorded(), QuarantinedStreams(await skips(log))
    followed = await nearest_state(log, first - 1, quarantined)
    if followed.ledger.position:
        await _as_of(history, log, followed, quarantined)
    async for envelope in reading.envelopes(log, followed.ledger.position, last):
        _read(history, envelope, quarantined, envelope.position <= first)
        if envelope.position == first:
            _begin(history, envelope.time_us)
        history.end_us = max(history.end_us, envelope.time_us)
    _link(history)
    _assume(history)
    return history


async def _as_of(
    history: Recorded, log: EventLog, followed: SchedulerState, quarantined: QuarantinedStreams
) -> None:
    """Fill in what the events up to a state say of the pods and nodes that live there."""
    position, nodes = followed.ledger.position, followed.ledger.nodes.values()
    observed = sorted((n for n in nodes if not n.is_deleted), key=lambda node: node.observed_at)
    history.news = [
        (0, streams.node(node.name), node.observed) for node in observed if node.observed
    ]
    for kind in get_args(Surrounding):
        history.news += [(0, stream_of(seen), seen) for seen in followed.of_kind(kind).values()]
    for node in nodes:
        await _report_of(history, log, node.name, node.report_version)
    pod_events = (envelopes_of(log, streams.pod(uid)) for uid in followed.ledger.pods)
    async for envelope in in_order(pod_events):
        if envelope.position <= position:
            _read(history, envelope, quarantined, True)


async def _report_of(history: Recorded, log: EventLog, node: str, version: int) -> None:
    """Find the newest full report of a node up to a version of its stream."""
    first, stream = version, streams.report(node)
    while first > 0 and node not in history.reports:
        last, first = first, max(0, first - REPORTS_A_PAGE)
        async for envelope in envelopes_of(log, stream, first, last - first):
            if envelope.type == NodeReported.__name__:
                with contextlib.suppress(UndecodableEvent):
                    _hear(history, decode(envelope), envelope.time_us, True)


def _read(
    history: Recorded, envelope: Envelope, quarantined: QuarantinedStreams, is_before: bool
) -> None:
    if envelope.type in _HEARD:
        event = quarantined.event_of(envelope)
        if event is not None:
            _hear(history, event, envelope.time_us, is_before)


def scheduler_of(history: Recorded, configured: str) -> str:
    """Return the scheduler of the placed pods: the one with this name or, if no pod used it, the
    most frequent one.
    """
    names = Counter(
        past.pod.scheduler_name for past in history.pods.values() if not past.bound_by_others
    )
    return configured if configured in names or not names else names.most_common(1)[0][0]


def _begin(history: Recorded, time_us: int) -> None:
    history.begin_us = time_us
    history.pods = {uid: past for uid, past in history.pods.items() if not past.ended_us}
    newest = {stream: (time_us_of, stream, event) for time_us_of, stream, event in history.news}
    history.news = [
        entry
        for entry in newest.values()
        if not isinstance(entry[2], NodeEnded | SurroundingEnded | BookingEnded)
        and not (
            isinstance(entry[2], BookingMade)
            and entry[2].terms.once
            and entry[2].uid in history.used
        )
    ]


def _hear(history: Recorded, event: Event, time_us: int, is_before: bool) -> None:
    if isinstance(event, SurroundingEvent):
        history.news.append((time_us, stream_of(event), event))
        return
    match event:
        case NodeObserved() | NodeEnded():
            history.news.append((time_us, f"node/{event.name}", event))
        case BookingMade(uid=uid) | BookingEnded(uid=uid):
            history.news.append((time_us, f"pod/{uid}", event))
        case NodeReported(report=report):
            if is_before or report.node not in history.reports:
                history.reports[report.node] = report
        case PodObserved():
            _seen(history, event, time_us)
        case PodReserved(uid=uid, node=node, config=config) if uid in history.pods:
            history.schedulers = max(history.schedulers, len(shard_of(config, "").members))
            past = history.pods[uid]
            past.node, past.reserved_us = node, time_us
            history.used.add(event.drawn_from)
        case ReservationWithdrawn(uid=uid) | BindRefused(uid=uid) if uid in history.pods:
            past = history.pods[uid]
            past.node, past.reserved_us = "", 0
        case PodBound(uid=uid, node=node) if uid in history.pods:
            history.pods[uid].bound_us = time_us
        case PodRunning(uid=uid) if uid in history.pods:
            history.pods[uid].running_us = history.pods[uid].running_us or time_us
        case PodEnded(uid=uid, cause=cause) if uid in history.pods:
            history.pods[uid].ended_us, history.pods[uid].cause = time_us, cause


_HEARD = {
    each.__name__
    for each in (
        NodeObserved,
        NodeEnded,
        NodeReported,
        BookingMade,
        BookingEnded,
        PodObserved,
        PodReserved,
        ReservationWithdrawn,
        BindRefused,
        PodBound,
        PodRunning,
        PodEnded,
        *get_args(SurroundingEvent),
    )
}


def _seen(history: Recorded, event: PodObserved, time_us: int) -> None:
    past = history.pods.get(event.pod.uid)
    if past is None:
        past = history.pods[event.pod.uid] = Past(event.pod, time_us)
    elif past.pod.constraints.gates and not event.pod.constraints.gates:
        past.seen_us = time_us
    if not past.node:
        past.pod = event.pod
    if event.node and not past.reserved_us and not past.node:
        past.node, past.bound_us, past.bound_by_others = event.node, time_us, True
    if event.phase == "Running" and event.node and not past.running_us:
        past.running_us = time_us


def _link(history: Recorded) -> None:
    """Link a rejected pod to its replacement: the next pod of the same kind and name stem, soon
    after the rejection.
    """
    rejected = sorted(
        ((past.ended_us, uid) for uid, past in history.pods.items() if past.rejected),
        key=lambda pair: pair[0],
    )
    coming: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for uid, past in (
        sorted(history.pods.items(), key=lambda pair: pair[1].seen_us) if rejected else ()
    ):
        coming.setdefault(_kind(past.pod), []).append((past.seen_us, uid))
    taken: set[str] = set()
    for ended_us, uid in rejected:
        for seen_us, successor in coming[_kind(history.pods[uid].pod)]:
            if 0 <= seen_us - ended_us <= AGAIN_WITHIN_US and successor not in taken:
                taken.add(successor)
                history.replaced[uid] = successor
                break


def _kind(pod: Pod) -> tuple[object, ...]:
    stem = pod.name.rpartition("-")[0] or pod.name
    parts = tuple((part.kind, tuple(sorted(part.requests.items()))) for part in pod.containers)
    return pod.namespace, stem, pod.scheduler_name, parts


def _assume(history: Recorded) -> None:
    """Assume lifetimes: the recorded one; without end for pods that still ran at the end; for pods
    that never ran, that of others of their kind.
    """
    lifetimes: dict[tuple[object, ...], list[float]] = {}
    for past in history.pods.values():
        began_us = past.running_us or (past.bound_us if not past.rejected else 0)
        if began_us and past.ended_us and not past.rejected:
            past.lifetime_s = max(0.001, (past.ended_us - began_us) / 1e6)
            lifetimes.setdefault(_kind(past.pod), []).append(past.lifetime_s)
        elif began_us and not past.ended_us:
            past.lifetime_s = float("inf")
    every = [lifetime_s for listed in lifetimes.values() for lifetime_s in listed]
    middle = statistics.median(every) if every else FIRST_LIFETIME_S
    middles = {kind: statistics.median(listed) for kind, listed in lifetimes.items()}
    for past in history.pods.values():
        if past.lifetime_s is None:
            past.lifetime_s = middles.get(_kind(past.pod), middle)
            history.assumed_lifetimes += 1
