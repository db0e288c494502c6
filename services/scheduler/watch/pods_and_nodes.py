"""What of a Kubernetes object is a fact: pure comparison of what the API shows with what the ledger
holds.

Only what placement depends on is a fact; status heartbeats are not. This module must not know
watches, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from services.scheduler.filter.pod_manifest import read_pod
from services.scheduler.snapshot import resize
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.kept import is_value
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import Amounts, is_device
from shared.events.cluster_events import (
    EndCause,
    NodeEnded,
    NodeObserved,
    PodEnded,
    PodObserved,
    PodRunning,
    Taint,
)
from shared.ledger.state import Ledger, LedgerPod

Object = dict[str, Any]
PodEvent = PodObserved | PodRunning | PodEnded

MASS_SHARE = 0.1
"""When a list lacks more than this share of the pods or nodes that the log holds, a second list must agree: so much seldom ends
unseen, and what runs must not lose its charge by one wrong answer."""

STATIC_POD_ANNOTATION = "kubernetes.io/config.mirror"


def pod_event(
    ledger: Ledger, schedulers: Collection[str], obj: Object, sightings: SeenSpecs
) -> PodEvent | None:
    """The fact that a pod object tells, or None when the ledger says the same already."""
    metadata, spec, status = _part(obj, "metadata"), _part(obj, "spec"), _part(obj, "status")
    uid, node, phase = (
        str(metadata.get("uid", "")),
        str(spec.get("nodeName") or ""),
        str(status.get("phase") or "Pending"),
    )
    known = ledger.pods.get(uid)
    if phase in ("Succeeded", "Failed"):
        return None if known is None else _ended(uid, node, phase, status, metadata)
    if not node and str(spec.get("schedulerName") or "default-scheduler") not in schedulers:
        return None
    read = spec | resize.reported(status)
    if known is None or not (_stands(known, node, metadata) and sightings.same(uid, read)):
        event = _observed(obj, metadata, node, phase)
        sightings.note(uid, read)
        if known is None or _differs(known, event):
            return event
    if phase == "Running" and node and known.stage != "running":
        return PodRunning(uid, node, str(metadata.get("resourceVersion", "")), started_s(status))
    return None


def _stands(known: LedgerPod, node: str, metadata: Object) -> bool:
    """The pod stands where the ledger has it: then only a changed spec would be news."""
    terminating = bool(metadata.get("deletionTimestamp"))
    stands = (
        bool(node) and known.node == node and known.terminating == terminating and not known.problem
    )
    labels = _part(metadata, "labels")
    return (
        stands
        and known.pod.labels.keys() == labels.keys()
        and all(is_value(known.pod.labels[key], str(labels[key])) for key in labels)
    )


def _part(obj: Object, name: str) -> Object:
    part = obj.get(name)
    return part if isinstance(part, dict) else {}


def _ended(uid: str, node: str, phase: str, status: Object, metadata: Object) -> PodEnded:
    reason = str(status.get("reason") or "")
    rejected = phase == "Failed" and bool(reason) and not status.get("containerStatuses")
    cause: EndCause = (
        "rejected" if rejected else ("succeeded" if phase == "Succeeded" else "failed")
    )
    return PodEnded(
        uid=uid,
        cause=cause,
        node=node,
        reason=reason,
        message=str(status.get("message") or ""),
        resource_version=str(metadata.get("resourceVersion", "")),
        started_s=started_s(status),
        finished_s=finished_s(status),
    )


def _observed(obj: Object, metadata: Object, node: str, phase: str) -> PodObserved:
    pod, problem = read_pod(obj)
    annotations = _part(metadata, "annotations")
    return PodObserved(
        pod=pod,
        resource_version=str(metadata.get("resourceVersion", "")),
        node=node,
        phase=phase,
        static=STATIC_POD_ANNOTATION in annotations,
        terminating=bool(metadata.get("deletionTimestamp")),
        problem=problem,
        started_s=started_s(_part(obj, "status")),
        generation=_generation(metadata),
    )


def _generation(metadata: Object) -> int:
    told = metadata.get("generation")
    return told if isinstance(told, int) and 0 <= told < 1 << 63 else 0


def _differs(known: LedgerPod, event: PodObserved) -> bool:
    """Annotations, which the binding itself merged in, are not news while the pod stands where it
    was put.
    """
    if event.node and known.node != event.node:
        return True
    if known.terminating != event.terminating or known.problem != event.problem:
        return True
    if event.node:
        kept = known.pod.constraints.kept != event.pod.constraints.kept
        return kept or any(
            getattr(known.pod, name) != getattr(event.pod, name)
            for name in ("containers", "qos", "pod_level", "labels")
        )
    return known.pod != event.pod


def pod_deleted(ledger: Ledger, obj: Object) -> PodEnded | None:
    """The fact of a DELETED event."""
    metadata, status = _part(obj, "metadata"), _part(obj, "status")
    uid = str(metadata.get("uid", ""))
    if uid not in ledger.pods:
        return None
    return PodEnded(
        uid=uid,
        cause="deleted",
        node=ledger.pods[uid].node,
        resource_version=str(metadata.get("resourceVersion", "")),
        started_s=started_s(status),
        finished_s=finished_s(status),
    )


def absent_pods(ledger: Ledger, present: Collection[str], list_version: str) -> list[PodEnded]:
    """Live pods that a complete list (`present` holds its uids) lacks and that are not younger than
    it: a DELETE that nobody saw leaks nothing."""
    return [
        PodEnded(uid=uid, cause="absent_from_list", node=entry.node, resource_version=list_version)
        for uid, entry in ledger.pods.items()
        if uid not in present and not is_younger(entry.resource_version, list_version)
    ]


def adrift(ledger: Ledger, objects: Collection[Object]) -> list[PodEnded]:
    """The ends, where they stood, of pods that are bound and are shown waiting: they wait anew
    where that is true. A list that was read before the binding shows them so too."""
    found = []
    for obj in objects:
        uid = str(_part(obj, "metadata").get("uid", ""))
        known = ledger.pods.get(uid)
        if (
            known is not None
            and known.stage in ("bound", "running")
            and not _part(obj, "spec").get("nodeName")
        ):
            found.append(
                PodEnded(
                    uid=uid,
                    cause="absent_from_list",
                    node=known.node,
                    resource_version=_version(obj),
                )
            )
    return found


def _version(obj: Object) -> str:
    return str(_part(obj, "metadata").get("resourceVersion", ""))


def is_mass(absent: int, known: int) -> bool:
    """Whether so many absentees of so many known need a second list."""
    return absent > MASS_SHARE * known


def is_older(version: str, than: str) -> bool:
    """Whether a list is surely from before another."""
    return is_younger(than, version)


def is_younger(version: str, than: str) -> bool:
    """Whether an object, or a list, is surely from after a version."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def node_event(ledger: Ledger, obj: Object) -> NodeObserved | None:
    """The fact that a node object tells, or None when the ledger says the same already."""
    metadata, spec, status = _part(obj, "metadata"), _part(obj, "spec"), _part(obj, "status")
    allocatable = _amounts(_part(status, "allocatable"))
    event = NodeObserved(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        allocatable=allocatable,
        labels={str(k): str(v) for k, v in sorted(_part(metadata, "labels").items())},
        taints=_taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        ready=_ready(status),
        kubelet_version=str(_part(status, "nodeInfo").get("kubeletVersion", "")),
        unhealthy=_unhealthy(_amounts(_part(status, "capacity")), allocatable),
        declared_features=_declared(status.get("declaredFeatures")),
    )
    known = ledger.nodes.get(event.name)
    return (
        None
        if known is not None and known.observed is not None and same_node(known.observed, event)
        else event
    )


def same_node(left: NodeObserved, right: NodeObserved) -> bool:
    """Equal in everything that placement depends on."""
    return _essence(left) == _essence(right)


def _essence(event: NodeObserved) -> tuple[object, ...]:
    return (
        event.uid,
        event.allocatable,
        event.labels,
        event.taints,
        event.unschedulable,
        event.ready,
        event.kubelet_version,
        event.unhealthy,
        event.declared_features,
    )


def _unhealthy(capacity: Amounts, allocatable: Amounts) -> Amounts:
    """Devices that the kubelet counts and does not offer. Of other resources the difference is what
    it reserves.
    """
    lacking = {
        name: count - allocatable.get(name, 0)
        for name, count in capacity.items()
        if is_device(name)
    }
    return {name: count for name, count in lacking.items() if count > 0}


def _amounts(quantities: Object) -> Amounts:
    """An unparsable quantity counts as zero: the node takes nothing of that resource rather than
    anything.
    """
    found = {}
    for name in sorted(quantities):
        try:
            found[name] = amount(name, quantities[name])
        except (QuantityError, TypeError):
            found[name] = 0
    return found


def _taints(taints: object) -> tuple[Taint, ...]:
    entries = taints if isinstance(taints, list) else []
    return tuple(
        Taint(str(t.get("key", "")), str(t.get("value") or ""), str(t.get("effect", "")))
        for t in entries
        if isinstance(t, dict)
    )


def _declared(features: object) -> tuple[str, ...]:
    return tuple(sorted(str(name) for name in features)) if isinstance(features, list) else ()


def _ready(status: Object) -> bool:
    conditions = status.get("conditions")
    ready = [c for c in conditions or [] if isinstance(c, dict) and c.get("type") == "Ready"]
    return not ready or ready[0].get("status") == "True"


def node_deleted(ledger: Ledger, obj: Object) -> NodeEnded | None:
    """The fact of a DELETED event of a node."""
    metadata = _part(obj, "metadata")
    name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
    known = ledger.nodes.get(name)
    return None if known is None or known.observed is None else NodeEnded(name, uid, "deleted")


def absent_nodes(ledger: Ledger, present: Collection[str], list_version: str) -> list[NodeEnded]:
    """Nodes that a complete list (`present` holds its names) lacks and that are not younger than
    it: another leader may have seen them since."""
    return [
        NodeEnded(name, node.observed.uid, "absent_from_list")
        for name, node in ledger.nodes.items()
        if node.observed is not None
        and name not in present
        and not is_younger(node.observed.resource_version, list_version)
    ]


STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def started_s(status: Object) -> int:
    """When the kubelet first told of the pod, which it does once it is admitted (kubelet 1.36), in
    seconds since the epoch.
    """
    return _seconds(status.get("startTime"))


def finished_s(status: Object) -> int:
    """When the last of those containers finished that are known to have, in seconds since the
    epoch. Until then the pod was active, and held what it had (kubelet 1.36)."""
    return max(map(_seconds, _ends(status)), default=0)


def _ends(status: Object) -> Iterator[object]:
    for name in STATUSES:
        listed = status.get(name)
        for each in listed if isinstance(listed, list) else ():
            state = each.get("state") if isinstance(each, dict) else None
            ended = state.get("terminated") if isinstance(state, dict) else None
            if isinstance(ended, dict):
                yield ended.get("finishedAt")


def _seconds(told: object) -> int:
    try:
        at = datetime.fromisoformat(told) if isinstance(told, str) else None
        return max(0, int(at.timestamp())) if at is not None and at.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
