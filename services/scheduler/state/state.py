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

from services.scheduler.state.cluster_objects import Surroundings
from services.scheduler.state.exclusions import BEFORE, HEARD, Asides, Before, Hear, PodBefore
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


class Followed(msgspec.Struct):
    """`versions` is stream -> its version as folded; streams of pods that ended and of nodes that
    left are forgotten. `wanted` is what ranks nodes where the strategy looks at room."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    versions: dict[str, int] = {}
    asides: Asides = msgspec.field(default_factory=Asides)
    wanted: tuple[Wanted, ...] = ()
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)
    listings: Listings = msgspec.field(default_factory=Listings)


_packed = msgspec.msgpack.Decoder(Followed)
_written = msgspec.json.Decoder(Followed)


def evolve(followed: Followed, envelope: Envelope, event: Event) -> fold.Touched:
    """Fold one fact; returns the nodes that it touched."""
    ledger, (before, heard, beside, versioned) = followed.ledger, _WAYS[type(event)]
    pod = _before(followed, before(followed.asides, event)) if before is not None else None
    touched = fold.evolve(ledger, envelope, event)
    if heard is not None:
        touched += heard(followed.asides, envelope.position, event, ledger, pod)
    if beside is not None:
        beside(followed, event)
    if versioned:
        followed.versions[envelope.stream] = envelope.version
    for name in touched:
        if name not in ledger.nodes:
            followed.versions.pop(streams.node(name), None)
    return touched


def _before(followed: Followed, uid: str) -> Before | None:
    entry = followed.ledger.pods.get(uid) if uid else None
    return Before(entry.pod, entry.node) if entry is not None else None


def _weighed(followed: Followed, event: DemandWeighed) -> None:
    followed.wanted = event.wanted


def _of_pod(followed: Followed, event: PodObserved | PodBound | PodRunning) -> None:
    followed.surroundings.hear_pod(event)


def _ended(followed: Followed, event: PodEnded) -> None:
    """Nothing is decided any more about a pod that ended."""
    followed.surroundings.hear_pod(event)
    followed.versions.pop(streams.pod(event.uid), None)


def _surrounding(followed: Followed, event: SurroundingEvent) -> None:
    followed.surroundings.hear(event)


def _opened(followed: Followed, event: LogOpened) -> None:
    followed.listings.opened(event)


def _listed(followed: Followed, event: ClusterListed) -> None:
    followed.listings.listed(event)


def _reserved(followed: Followed, event: PodReserved) -> None:
    followed.listings.decided()
    followed.surroundings.hear_pod(event)


_BESIDE: dict[type[Event], Callable[[Followed, Any], None]] = {
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
    beside: Callable[[Followed, Any], None] | None
    versioned: bool


_WAYS = {
    kind: _Way(BEFORE.get(kind), HEARD.get(kind), _BESIDE.get(kind), kind not in _UNVERSIONED)
    for kind in (entry.struct for entry in CATALOG.values())
}
"""One look by the kind of a fact instead of one by each who may want to hear of it: most concern the ledger alone."""


def pass_over(followed: Followed, envelope: Envelope, moves: bool) -> None:
    """A fact that is not folded; `moves` says whether its stream goes on without it."""
    fold.pass_over(followed.ledger, envelope)
    if moves and not envelope.stream.startswith("report/"):
        followed.versions[envelope.stream] = envelope.version


def dump(followed: Followed) -> bytes:
    """The state as a snapshot keeps it: packed, which is a third less to fetch and to read, or,
    where an amount has more than 64 bits, as JSON, which begins otherwise."""
    try:
        return msgspec.msgpack.encode(followed)
    except OverflowError:
        return msgspec.json.encode(followed)


def load(data: bytes) -> Followed:
    """The inverse. Raises msgspec.MsgspecError on anything else."""
    followed = (_written if data.startswith(b"{") else _packed).decode(data)
    share(entry.pod for entry in followed.ledger.pods.values())
    return followed
