"""What the scheduler keeps of the log, and all that a snapshot keeps: the ledger, the versions of
streams that it writes to, what is set aside, what surrounds pods, what is in demand, and whether
the cluster was listed since the log was restored.

Its imports are the key of snapshots, so that nothing else may change this state. Must not know
deciding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import msgspec

from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import BEFORE, HEARD, Before, Exclusions, Hear, PodBefore
from shared.events import streams
from shared.events.binding_events import PodBound
from shared.events.catalog import CATALOG, Event
from shared.events.cluster_events import ClusterListed, PodEnded, PodObserved, PodRunning
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.events.report_events import ReportEvent
from shared.events.scheduling_events import DemandWeighed, PodReserved, Wanted
from shared.events.surroundings_events import SurroundingEvent
from shared.ledger import fold
from shared.ledger.alike import share
from shared.ledger.listings import Listings
from shared.ledger.state import Ledger


class SchedulerState(msgspec.Struct):
    """`versions` is stream -> its version as folded; streams of pods that ended and of nodes that
    left are forgotten. `wanted` is what ranks nodes where the strategy looks at room."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    versions: dict[str, int] = {}
    exclusions: Exclusions = msgspec.field(default_factory=Exclusions)
    wanted: tuple[Wanted, ...] = ()
    cluster_objects: ClusterObjects = msgspec.field(default_factory=ClusterObjects)
    listings: Listings = msgspec.field(default_factory=Listings)


_packed = msgspec.msgpack.Decoder(SchedulerState)
_written = msgspec.json.Decoder(SchedulerState)


def evolve(folded: SchedulerState, envelope: Envelope, event: Event) -> fold.Touched:
    """Fold one fact; returns the nodes that it touched."""
    ledger, (before, heard, beside, versioned) = folded.ledger, _WAYS[type(event)]
    pod = _before(folded, before(folded.exclusions, event)) if before is not None else None
    touched = fold.evolve(ledger, envelope, event)
    if heard is not None:
        touched += heard(folded.exclusions, envelope.position, event, ledger, pod)
    if beside is not None:
        beside(folded, event)
    if versioned:
        folded.versions[envelope.stream] = envelope.version
    for name in touched:
        if name not in ledger.nodes:
            folded.versions.pop(streams.node(name), None)
    return touched


def _before(folded: SchedulerState, uid: str) -> Before | None:
    entry = folded.ledger.pods.get(uid) if uid else None
    return Before(entry.pod, entry.node) if entry is not None else None


def _weighed(folded: SchedulerState, event: DemandWeighed) -> None:
    folded.wanted = event.wanted


def _of_pod(folded: SchedulerState, event: PodObserved | PodBound | PodRunning) -> None:
    folded.cluster_objects.hear_pod(event)


def _ended(folded: SchedulerState, event: PodEnded) -> None:
    """Nothing is decided any more about a pod that ended."""
    folded.cluster_objects.hear_pod(event)
    folded.versions.pop(streams.pod(event.uid), None)


def _surrounding(folded: SchedulerState, event: SurroundingEvent) -> None:
    folded.cluster_objects.hear(event)


def _opened(folded: SchedulerState, event: LogOpened) -> None:
    folded.listings.opened(event)


def _listed(folded: SchedulerState, event: ClusterListed) -> None:
    folded.listings.listed(event)


def _reserved(folded: SchedulerState, event: PodReserved) -> None:
    folded.listings.decided()
    folded.cluster_objects.hear_pod(event)


_BESIDE: dict[type[Event], Callable[[SchedulerState, Any], None]] = {
    DemandWeighed: _weighed,
    PodObserved: _of_pod,
    PodBound: _of_pod,
    PodRunning: _of_pod,
    PodEnded: _ended,
    PodReserved: _reserved,
    LogOpened: _opened,
    ClusterListed: _listed,
    **dict.fromkeys(get_args(SurroundingEvent), _surrounding),
}
"""What facts say beside the ledger."""

_UNVERSIONED = {PodEnded, ClusterListed, *get_args(ReportEvent), *get_args(SurroundingEvent)}
"""The scheduler appends nothing to their streams, at least not any more."""


class _Way(NamedTuple):
    """What is made of one kind of fact, in this order, the ledger's fold after `before`; None for
    nothing.
    """

    before: PodBefore | None
    heard: Hear | None
    beside: Callable[[SchedulerState, Any], None] | None
    versioned: bool


_WAYS = {
    kind: _Way(BEFORE.get(kind), HEARD.get(kind), _BESIDE.get(kind), kind not in _UNVERSIONED)
    for kind in (entry.struct for entry in CATALOG.values())
}
"""One look by the kind of a fact instead of one by each who may want to hear of it: most concern the ledger alone."""


def pass_over(folded: SchedulerState, envelope: Envelope, moves: bool) -> None:
    """A fact that is not folded; `moves` says whether its stream goes on without it."""
    fold.pass_over(folded.ledger, envelope)
    if moves and not envelope.stream.startswith("report/"):
        folded.versions[envelope.stream] = envelope.version


def dump(folded: SchedulerState) -> bytes:
    """The state as a snapshot keeps it: packed, which is a third less to fetch and to read, or,
    where an amount has more than 64 bits, as JSON, which begins otherwise."""
    try:
        return msgspec.msgpack.encode(folded)
    except OverflowError:
        return msgspec.json.encode(folded)


def load(data: bytes) -> SchedulerState:
    """The inverse. Raises msgspec.MsgspecError on anything else."""
    folded = (_written if data.startswith(b"{") else _packed).decode(data)
    share(entry.pod for entry in folded.ledger.pods.values())
    return folded
