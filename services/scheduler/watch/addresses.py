"""Where a fact of the cluster is told, and by what it is known apart from the others of its kind.
Pure. Must not know the log.
"""

from __future__ import annotations

from typing import NamedTuple

from services.scheduler.watch.kinds import Observed
from shared.events import streams
from shared.events.cluster_events import ClusterListed, NodeEnded, NodeObserved
from shared.events.cluster_object_events import SurroundingFact, stream_of


class Address(NamedTuple):
    """A fact's stream, the uid of its object, and what its story is about."""

    stream: str
    uid: str
    about: str


def address(fact: Observed) -> Address:
    """Of one fact."""
    if isinstance(fact, SurroundingFact):
        stream = stream_of(fact)
        return Address(stream, stream, stream)
    if isinstance(fact, NodeObserved | NodeEnded):
        return Address(streams.node(fact.name), fact.uid, fact.name)
    if isinstance(fact, ClusterListed):
        stream = streams.listing(fact.kind)
        return Address(stream, stream, fact.kind)
    uid = fact.about.pod
    return Address(streams.pod(uid), uid, uid)


def told_apart_by(fact: Observed) -> str:
    """What tells a fact from another one of its kind about the same."""
    if isinstance(fact, NodeEnded):
        return fact.cause
    return str(fact.timeline) if isinstance(fact, ClusterListed) else fact.resource_version
