"""What a history tells of a workload: who arrived when, ran how long, how long things took, on
which machines.

Reads the facts between two positions; who lived at the first of them is there from the start. Must
not know rules nor kubelets.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from typing import get_args

import msgspec

from services.replay import reading
from services.scheduler.queue.shard import shard_of
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.binding_events import BindRefused, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.quarantine import QuarantinedStreams
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from shared.events.surroundings_events import SurroundingEnded, SurroundingEvent, stream_of

AGAIN_WITHIN_US = 120_000_000
"""A pod of the same kind that appears so soon after a rejection takes the rejected one's place."""
FIRST_LIFETIME_S = 60.0
"""Assumed where no pod of the history ended."""


News = NodeObserved | NodeEnded | SurroundingEvent
"""What is played beside pods and reports: nodes, and what surrounds pods."""


class Past(msgspec.Struct):
    """What became of one pod: times in Unix microseconds, 0 for what did not happen.
    `bound_by_others`: no reservation came before."""

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
        """Its kubelet refused it."""
        return self.cause == "rejected"


class Recorded(msgspec.Struct):
    """A history's workload. `news` are the facts about nodes' objects, in order; `reports` the
    machine of each node; `schedulers` as many as ever shared the pods."""

    begin_us: int = 0
    end_us: int = 0
    pods: dict[str, Past] = {}
    replaced: dict[str, str] = {}
    news: list[tuple[int, str, News]] = []
    reports: dict[str, Report] = {}
    assumed_lifetimes: int = 0
    schedulers: int = 1


async def recorded(
    log: EventLog, first: int, last: int, progress: Callable[[int], None]
) -> Recorded:
    """Read positions 1..`last`; what ended before `first` is left out."""
    found, quarantined = Recorded(), QuarantinedStreams(await skips(log))
    async for envelope in reading.envelopes(log, 0, last):
        if envelope.type in _HEARD:
            event = quarantined.event_of(envelope)
            if event is not None:
                _hear(found, event, envelope.time_us, envelope.position <= first)
        if envelope.position == first:
            _begin(found, envelope.time_us)
        found.end_us = max(found.end_us, envelope.time_us)
        if envelope.position % reading.PAGE == 0:
            progress(envelope.position)
    _link(found)
    _assume(found)
    return found


def scheduler_of(found: Recorded, here: str) -> str:
    """The scheduler that the placed pods asked for: the one of this name, or, where none asked for
    it, what most of them did.
    """
    names = Counter(
        past.pod.scheduler_name for past in found.pods.values() if not past.bound_by_others
    )
    return here if here in names or not names else names.most_common(1)[0][0]


def _begin(found: Recorded, time_us: int) -> None:
    found.begin_us = time_us
    found.pods = {uid: past for uid, past in found.pods.items() if not past.ended_us}
    newest = {stream: (at, stream, event) for at, stream, event in found.news}
    found.news = [
        entry for entry in newest.values() if not isinstance(entry[2], NodeEnded | SurroundingEnded)
    ]


def _hear(found: Recorded, event: Event, time_us: int, before: bool) -> None:
    if isinstance(event, SurroundingEvent):
        found.news.append((time_us, stream_of(event), event))
        return
    match event:
        case NodeObserved() | NodeEnded():
            found.news.append((time_us, f"node/{event.name}", event))
        case NodeReported(report=report):
            if before or report.node not in found.reports:
                found.reports[report.node] = report
        case PodObserved():
            _seen(found, event, time_us)
        case PodReserved(uid=uid, node=node, config=config) if uid in found.pods:
            found.schedulers = max(found.schedulers, len(shard_of(config, "").members))
            past = found.pods[uid]
            past.node, past.reserved_us = node, time_us
        case ReservationWithdrawn(uid=uid) | BindRefused(uid=uid) if uid in found.pods:
            past = found.pods[uid]
            past.node, past.reserved_us = "", 0
        case PodBound(uid=uid, node=node) if uid in found.pods:
            found.pods[uid].bound_us = time_us
        case PodRunning(uid=uid) if uid in found.pods:
            found.pods[uid].running_us = found.pods[uid].running_us or time_us
        case PodEnded(uid=uid, cause=cause) if uid in found.pods:
            found.pods[uid].ended_us, found.pods[uid].cause = time_us, cause


_HEARD = {
    each.__name__
    for each in (
        NodeObserved, NodeEnded, NodeReported, PodObserved, PodReserved, ReservationWithdrawn, BindRefused, PodBound, PodRunning,
        PodEnded, *get_args(SurroundingEvent),
    )
}  # fmt: skip


def _seen(found: Recorded, event: PodObserved, time_us: int) -> None:
    past = found.pods.get(event.pod.uid)
    if past is None:
        past = found.pods[event.pod.uid] = Past(event.pod, time_us)
    elif past.pod.constraints.gates and not event.pod.constraints.gates:
        past.seen_us = time_us
    if not past.node:
        past.pod = event.pod
    if event.node and not past.reserved_us and not past.node:
        past.node, past.bound_us, past.bound_by_others = event.node, time_us, True
    if event.phase == "Running" and event.node and not past.running_us:
        past.running_us = time_us


def _link(found: Recorded) -> None:
    """Who took whose place: of the same kind and stem of name, soon after the rejection."""
    rejected = sorted(
        ((past.ended_us, uid) for uid, past in found.pods.items() if past.rejected),
        key=lambda pair: pair[0],
    )
    coming: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for uid, past in (
        sorted(found.pods.items(), key=lambda pair: pair[1].seen_us) if rejected else ()
    ):
        coming.setdefault(_kind(past.pod), []).append((past.seen_us, uid))
    taken: set[str] = set()
    for ended_us, uid in rejected:
        for seen_us, other in coming[_kind(found.pods[uid].pod)]:
            if 0 <= seen_us - ended_us <= AGAIN_WITHIN_US and other not in taken:
                taken.add(other)
                found.replaced[uid] = other
                break


def _kind(pod: Pod) -> tuple[object, ...]:
    stem = pod.name.rpartition("-")[0] or pod.name
    parts = tuple((part.kind, tuple(sorted(part.requests.items()))) for part in pod.containers)
    return pod.namespace, stem, pod.scheduler_name, parts


def _assume(found: Recorded) -> None:
    """Lifetimes: as recorded; who still ran at the end runs on; who never ran as long as others of
    its kind do.
    """
    known: dict[tuple[object, ...], list[float]] = {}
    for past in found.pods.values():
        began_us = past.running_us or (past.bound_us if not past.rejected else 0)
        if began_us and past.ended_us and not past.rejected:
            past.lifetime_s = max(0.001, (past.ended_us - began_us) / 1e6)
            known.setdefault(_kind(past.pod), []).append(past.lifetime_s)
        elif began_us and not past.ended_us:
            past.lifetime_s = float("inf")
    every = [each for listed in known.values() for each in listed]
    middle = statistics.median(every) if every else FIRST_LIFETIME_S
    middles = {kind: statistics.median(listed) for kind, listed in known.items()}
    for past in found.pods.values():
        if past.lifetime_s is None:
            past.lifetime_s = middles.get(_kind(past.pod), middle)
            found.assumed_lifetimes += 1
