"""Where a fact of the cluster is told, and by what it is known apart from the others of its kind.
Pure. Must not know the log.
"""

from __future__ import annotations

from typing import NamedTuple

from services.scheduler.watch.kinds import Observed
from shared.events import streams
from shared.events.cluster_events import ClusterListed, NodeEnded, NodeObserved
from shared.events.surroundings_events import SurroundingEvent, stream_of


class Address(NamedTuple):
    """A fact's stream, the uid of its object, and what its story is about."""

    stream: str
    uid: str
    about: str


def address(event: Observed) -> Address:
    """Of one fact."""
    if isinstance(event, SurroundingEvent):
        stream = stream_of(event)
        return Address(stream, stream, stream)
    if isinstance(event, NodeObserved | NodeEnded):
        return Address(streams.node(event.name), event.uid, event.name)
    if isinstance(event, ClusterListed):
        stream = streams.listing(event.kind)
        return Address(stream, stream, event.kind)
    uid = event.about.pod
    return Address(streams.pod(uid), uid, uid)


def told_apart_by(event: Observed) -> str:
    """What tells a fact from another one of its kind about the same."""
    if isinstance(event, NodeEnded):
        return event.cause
    return str(event.timeline) if isinstance(event, ClusterListed) else event.resource_version
