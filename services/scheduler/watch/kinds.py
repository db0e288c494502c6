"""The kinds of objects that the observer follows, and what of each is a fact: pods and nodes by the
ledger, what surrounds them by the scheduler's own fold. Pure. Must not know watches, the log or a
clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from services.scheduler.state.cluster_objects import ends_nomination
from services.scheduler.state.state import SchedulerState
from services.scheduler.watch import cluster_objects, pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.events import streams
from shared.events.cluster_events import (
    ClusterEvent,
    ClusterListed,
    NodeEnded,
    NodeObserved,
    PodEnded,
    PodObserved,
    PodRunning,
)
from shared.events.surroundings_events import Surrounding, SurroundingEvent, stream_of
from shared.kube.port import Kind, WatchEvent

Object = dict[str, Any]
Observed = ClusterEvent | SurroundingEvent
POD_FACTS = (PodObserved, PodRunning, PodEnded)

SURROUNDINGS: dict[Kind, Surrounding] = {
    "namespaces": "namespace",
    "csinodes": "csinode",
    "persistentvolumes": "volume",
    "persistentvolumeclaims": "claim",
    "deviceclasses": "deviceclass",
}
OPTIONAL: frozenset[Kind] = frozenset({"deviceclasses"})
"""What a cluster may not serve: Kubernetes before 1.34 has no resource.k8s.io/v1."""
KINDS: tuple[Kind, ...] = (*SURROUNDINGS, "nodes", "pods")
"""What surrounds pods comes first: who is seen before the rules that concern it would be decided without them."""


class Kinds:
    """What of an object is a fact, as the fold stands."""

    def __init__(self, schedulers: Collection[str], sightings: SeenSpecs) -> None:
        self._schedulers = schedulers
        self._sightings = sightings

    def events(
        self, known: SchedulerState, own: str, kind: Kind, seen: WatchEvent
    ) -> list[Observed]:
        """Of one event, or of one object of a list, as ADDED. `own` is the name of this scheduler."""
        found = [self._event(known, kind, seen)]
        if kind == "pods" and seen.type == "DELETED":
            found.append(cluster_objects.gone(known.cluster_objects, "nomination", seen.object))
        elif kind == "pods" and not (isinstance(found[0], POD_FACTS) and ends_nomination(found[0])):
            # Of a pod that was bound and has ended unseen no fact of its own tells.
            found.append(cluster_objects.nomination_of(known.cluster_objects, own, seen.object))
        return [event for event in found if event is not None]

    def _event(self, known: SchedulerState, kind: Kind, seen: WatchEvent) -> Observed | None:
        if kind in SURROUNDINGS:
            tell = cluster_objects.gone if seen.type == "DELETED" else cluster_objects.event_of
            return tell(known.cluster_objects, SURROUNDINGS[kind], seen.object)
        if kind == "nodes":
            deleted = seen.type == "DELETED"
            return (
                pods_and_nodes.node_deleted(known.ledger, seen.object)
                if deleted
                else pods_and_nodes.node_event(known.ledger, seen.object)
            )
        if seen.type == "DELETED":
            return pods_and_nodes.pod_deleted(known.ledger, seen.object)
        return pods_and_nodes.pod_event(
            known.ledger, self._schedulers, seen.object, self._sightings
        )


def absent(
    known: SchedulerState, kind: Kind, present: Collection[str], version: str
) -> Sequence[Observed]:
    """What a complete list at `version` lacks; `present` holds the identities of what it has."""
    if kind in SURROUNDINGS:
        return cluster_objects.absent(known.cluster_objects, SURROUNDINGS[kind], present, version)
    if kind == "nodes":
        return pods_and_nodes.absent_nodes(known.ledger, present, version)
    nominations = cluster_objects.absent(known.cluster_objects, "nomination", present, version)
    return [*pods_and_nodes.absent_pods(known.ledger, present, version), *nominations]


def identity(kind: Kind, obj: Object) -> str:
    """By what objects of the kind are known: pods by uid, the others by name."""
    if kind in SURROUNDINGS:
        return cluster_objects.name_of(SURROUNDINGS[kind], obj)
    return str(obj.get("metadata", {}).get("uid" if kind == "pods" else "name", ""))


def known_count(known: SchedulerState, kind: Kind) -> int:
    """How many the fold knows."""
    if kind in SURROUNDINGS:
        return len(known.cluster_objects.of_kind(SURROUNDINGS[kind]))
    return len(known.ledger.pods if kind == "pods" else known.ledger.nodes)


def is_set_back(known: SchedulerState, kind: Kind, version: str) -> bool:
    """Whether the fold holds something younger than a list: by a list that is read where writes
    are, the cluster's state is older than it was."""
    if kind in SURROUNDINGS:
        versions = [
            each.resource_version
            for each in known.cluster_objects.of_kind(SURROUNDINGS[kind]).values()
        ]
    elif kind == "nodes":
        versions = [
            node.observed.resource_version
            for node in known.ledger.nodes.values()
            if node.observed is not None
        ]
    else:
        versions = [entry.resource_version for entry in known.ledger.pods.values()]
    return any(pods_and_nodes.is_younger(each, version) for each in versions)


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
