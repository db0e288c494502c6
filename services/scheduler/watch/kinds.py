"""The kinds of objects that the observer follows, the events of each, and their streams: pods and
nodes are compared with the ledger, cluster objects with the scheduler's own fold.

Pure. Must not know watches, the log or a clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from services.scheduler.state.cluster_objects import ends_nomination
from services.scheduler.state.state import SchedulerState
from services.scheduler.watch import cluster_objects, pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.cells import Cells
from shared.domain.fields import part
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
from shared.events.scheduling_events import BookingEnded, BookingMade
from shared.events.surroundings_events import Surrounding, SurroundingEvent, stream_of
from shared.kube.port import Kind, WatchEvent
from shared.kube.reservation_objects import ENDED, booking_of
from shared.ledger.state import Ledger

Object = dict[str, Any]
Observed = ClusterEvent | SurroundingEvent | BookingMade | BookingEnded
POD_EVENTS = (PodObserved, PodRunning, PodEnded)

CLUSTER_OBJECTS: dict[Kind, Surrounding] = {
    "namespaces": "namespace",
    "csinodes": "csinode",
    "persistentvolumes": "volume",
    "persistentvolumeclaims": "claim",
    "deviceclasses": "deviceclass",
    # Kubernetes 1.36 serves v1alpha2, and 1.37 v1alpha3.
    "podgroups": "podgroup",
    "podgroups.v1alpha3": "podgroup",
    "podgroups.x-k8s.io": "podgroup.x-k8s.io",
    "podgroups.sigs.k8s.io": "podgroup.sigs.k8s.io",
    "podgroups.volcano.sh": "podgroup.volcano.sh",
    "devices": "devices",
}
# A cluster may not serve these: Kubernetes before 1.34 has no resource.k8s.io/v1, and Device and
# Reservation are CustomResourceDefinitions of Koordinator.
OPTIONAL: frozenset[Kind] = frozenset(
    {
        "deviceclasses",
        "devices",
        "reservations",
        *(kind for kind in CLUSTER_OBJECTS if kind.startswith("podgroups")),
    }
)
# Cluster objects come first: a pod that is seen before them would be decided without their rules.
KINDS: tuple[Kind, ...] = (*CLUSTER_OBJECTS, "reservations", "nodes", "pods")


class Kinds:
    """Turns objects into events, given the fold. Nodes and pods of other `cells` have none."""

    def __init__(
        self, schedulers: Collection[str], specs: SeenSpecs, cells: Cells | None = None
    ) -> None:
        self._schedulers = schedulers
        self._specs = specs
        self._cells = cells

    def events(
        self, state: SchedulerState, scheduler_name: str, kind: Kind, seen: WatchEvent
    ) -> list[Observed]:
        """Return the events of one watch event, or of one listed object (as ADDED)."""
        event = self._event(state, scheduler_name, kind, seen)
        nomination: SurroundingEvent | None = None
        if kind == "pods" and seen.type == "DELETED":
            nomination = cluster_objects.deleted(state.cluster_objects, "nomination", seen.object)
        elif kind == "pods" and not (isinstance(event, POD_EVENTS) and ends_nomination(event)):
            # A pod that was bound and ended without being observed has no event of its own.
            nomination = cluster_objects.nomination_of(
                state.cluster_objects, scheduler_name, seen.object
            )
        end = pods_and_nodes.end_if_finished(event, seen.object)
        return [known for known in (event, end, nomination) if known is not None]

    def _event(
        self, state: SchedulerState, scheduler_name: str, kind: Kind, seen: WatchEvent
    ) -> Observed | None:
        deleted = seen.type == "DELETED"
        if kind in CLUSTER_OBJECTS:
            read = cluster_objects.deleted if deleted else cluster_objects.event_of
            return read(state, CLUSTER_OBJECTS[kind], seen.object)
        if kind == "reservations":
            return self._booking(state.ledger, scheduler_name, seen)
        if kind == "nodes":
            return self._node(state.ledger, seen.object, deleted)
        if deleted:
            return pods_and_nodes.pod_deleted(state.ledger, seen.object, state.let_go)
        return self._pod(state, seen.object)

    def _booking(
        self, ledger: Ledger, scheduler_name: str, seen: WatchEvent
    ) -> BookingMade | BookingEnded | None:
        event = _booking(ledger, scheduler_name, seen)
        if self._cells is None or not isinstance(event, BookingMade):
            return event
        template = part(part(seen.object, "spec"), "template")
        manifest = {"metadata": seen.object.get("metadata"), "spec": template.get("spec")}
        return event if self._cells.route(manifest).cell == self._cells.own else None

    def _node(self, ledger: Ledger, obj: Object, deleted: bool) -> NodeObserved | NodeEnded | None:
        if deleted:
            return pods_and_nodes.node_deleted(ledger, obj)
        if self._cells is not None:
            metadata = part(obj, "metadata")
            name, labels = str(metadata.get("name", "")), part(metadata, "labels")
            entry = ledger.nodes.get(name)
            observed = entry.observed if entry is not None else None
            if not self._cells.has_node(name, labels):
                if observed is None:
                    return None
                if observed.uid != metadata.get("uid"):
                    return NodeEnded(name, observed.uid, "deleted")
        return pods_and_nodes.node_event(ledger, obj)

    def _pod(self, state: SchedulerState, obj: Object) -> pods_and_nodes.PodEvent | None:
        """Return the event of a pod that exists. A pod that is known, or was let go, and belongs to
        another cell ends here."""
        problem, ledger = "", state.ledger
        if self._cells is not None:
            metadata, spec = part(obj, "metadata"), part(obj, "spec")
            uid, name = str(metadata.get("uid", "")), str(spec.get("nodeName") or "")
            entry, node = ledger.pods.get(uid), ledger.nodes.get(name)
            if name:
                is_here = node is not None and (node.observed is not None or node.is_deleted)
            elif entry is not None and entry.stage != "pending":
                is_here = True
            else:
                route = self._cells.route(obj)
                if route.ring and route.hops < state.let_go.get(uid, 0):
                    return None  # It leaves this cell, and the API does not show that yet.
                is_here, problem = route.cell == self._cells.own, route.problem
            if not is_here:
                version = str(metadata.get("resourceVersion", ""))
                is_known = entry is not None or uid in state.let_go
                return PodEnded(uid, "moved", resource_version=version) if is_known else None
        return self.pod_here(ledger, obj, problem)

    def pod_here(
        self, ledger: Ledger, obj: Object, problem: str = ""
    ) -> pods_and_nodes.PodEvent | None:
        """Return the event of a pod of this cell."""
        return pods_and_nodes.pod_event(ledger, self._schedulers, obj, self._specs, problem)


def _booking(
    ledger: Ledger, scheduler_name: str, seen: WatchEvent
) -> BookingMade | BookingEnded | None:
    """Return the event of a Reservation object that came, or that is over."""
    metadata, status = part(seen.object, "metadata"), part(seen.object, "status")
    uid, version = str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))
    is_over = seen.type == "DELETED" or bool(metadata.get("deletionTimestamp"))
    is_over = is_over or status.get("phase") in ENDED
    entry = ledger.pods.get(uid)
    if entry is None:
        return None if is_over else booking_of(seen.object, scheduler_name)
    is_ours = is_over and entry.booking is not None
    return BookingEnded(uid, "deleted", version) if is_ours else None


def _reservations(ledger: Ledger) -> dict[str, str]:
    """Return uid -> version of the Reservation objects that the ledger has as bookings."""
    return {
        uid: entry.resource_version
        for uid, entry in ledger.pods.items()
        if entry.booking is not None and entry.resource_version
    }


def absent(
    state: SchedulerState, kind: Kind, present: Collection[str], version: str
) -> Sequence[Observed]:
    """Return the ends of objects that a complete list at `version` lacks; `present` holds the
    identities that it has.
    """
    if kind in CLUSTER_OBJECTS:
        return cluster_objects.absent(state, CLUSTER_OBJECTS[kind], present, version)
    if kind == "reservations":
        return [
            BookingEnded(uid, "deleted", version)
            for uid, since in _reservations(state.ledger).items()
            if uid not in present and not pods_and_nodes.is_younger(since, version)
        ]
    if kind == "nodes":
        return pods_and_nodes.absent_nodes(state.ledger, present, version)
    nominations = cluster_objects.absent(state.cluster_objects, "nomination", present, version)
    let_go = [
        PodEnded(uid, "absent_from_list", resource_version=version)
        for uid in state.let_go
        if uid not in present
    ]
    return [*pods_and_nodes.absent_pods(state.ledger, present, version), *let_go, *nominations]


def identity(kind: Kind, obj: Object) -> str:
    """Return the key of an object: the uid of a pod, the name of anything else."""
    if kind in CLUSTER_OBJECTS:
        return cluster_objects.name_of(CLUSTER_OBJECTS[kind], obj)
    key = "uid" if kind in ("pods", "reservations") else "name"
    return str(obj.get("metadata", {}).get(key, ""))


def known_count(state: SchedulerState, kind: Kind) -> int:
    """Return how many objects of the kind the fold holds."""
    if kind in CLUSTER_OBJECTS:
        return len(state.of_kind(CLUSTER_OBJECTS[kind]))
    if kind == "reservations":
        return len(_reservations(state.ledger))
    if kind == "pods":
        return sum(entry.booking is None for entry in state.ledger.pods.values())
    return len(state.ledger.nodes)


def is_set_back(state: SchedulerState, kind: Kind, version: str) -> bool:
    """Return whether the fold holds a younger object than a list that was read from etcd: the
    cluster was restored from an older state."""
    if kind in CLUSTER_OBJECTS:
        objects = state.of_kind(CLUSTER_OBJECTS[kind]).values()
        versions = [obj.resource_version for obj in objects]
    elif kind == "nodes":
        observed = [node.observed for node in state.ledger.nodes.values()]
        versions = [node.resource_version for node in observed if node is not None]
    elif kind == "reservations":
        versions = list(_reservations(state.ledger).values())
    else:
        entries = state.ledger.pods.values()
        versions = [entry.resource_version for entry in entries if entry.booking is None]
    return any(pods_and_nodes.is_younger(known, version) for known in versions)


class Address(NamedTuple):
    """An event's stream, the uid of its object, and the name or uid that it is about."""

    stream: str
    uid: str
    about: str


def address(event: Observed) -> Address:
    """Return where an event is appended."""
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


def distinguished_by(event: Observed) -> str:
    """Return what distinguishes an event from others of its type about the same object."""
    if isinstance(event, NodeEnded):
        return event.cause
    return str(event.timeline) if isinstance(event, ClusterListed) else event.resource_version
