"""Events of pods and nodes: objects of the API compared with the ledger.

Only what placement depends on becomes an event; status heartbeats do not. Must not know watches,
the log or a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from sys import intern
from typing import Any

from services.scheduler.filter.pod_manifest import read_pod
from services.scheduler.snapshot import resize
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.fields import part
from shared.domain.kept import is_value
from shared.domain.quantity import QuantityError, amount
from shared.domain.report import ZonedAmount
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
from shared.kube.kai import observed_placement
from shared.ledger.container_zones import lists_by_match
from shared.ledger.state import Ledger, LedgerPod

Object = dict[str, Any]
PodEvent = PodObserved | PodRunning | PodEnded

# If a list lacks more than this share of the known objects, GETs of single objects are no
# alternative to a second list: so much seldom ends without being observed.
MASS_SHARE = 0.1

FINISHED = ("Succeeded", "Failed")
STATIC_POD_ANNOTATION = "kubernetes.io/config.mirror"


def pod_event(
    ledger: Ledger, schedulers: Collection[str], obj: Object, specs: SeenSpecs, problem: str = ""
) -> PodEvent | None:
    """Return a pod object's event, or None if the ledger has it already. `problem` is one that its
    manifest does not show."""
    metadata, spec, status = part(obj, "metadata"), part(obj, "spec"), part(obj, "status")
    uid, node = str(metadata.get("uid", "")), str(spec.get("nodeName") or "")
    # The interned text is the default itself, which events omit.
    phase = intern(str(status.get("phase") or "Pending"))
    entry = ledger.pods.get(uid)
    if phase in FINISHED:
        if entry is not None:
            return _ended(uid, node, phase, status, metadata)
        return _observed(obj, metadata, node, phase) if _is_listed(ledger, node, metadata) else None
    if not node and str(spec.get("schedulerName") or "default-scheduler") not in schedulers:
        return None
    placement = _placement(ledger, node, metadata)
    read = spec | resize.reported(status) | ({"placement": placement} if placement else {})
    if entry is None or not (_is_unmoved(entry, node, metadata) and specs.same(uid, read)):
        event = _observed(obj, metadata, node, phase, placement, problem)
        specs.note(uid, read)
        if entry is None or _differs(entry, event) or _is_placed_elsewhere(ledger, event):
            return event
    if phase == "Running" and node and entry.stage != "running":
        return PodRunning(uid, node, str(metadata.get("resourceVersion", "")), started_s(status))
    return None


def end_if_finished(event: object, obj: Object) -> PodEnded | None:
    """Return the end of a pod that had finished when it was first observed."""
    if not isinstance(event, PodObserved) or event.phase not in FINISHED:
        return None
    metadata, status = part(obj, "metadata"), part(obj, "status")
    return _ended(event.pod.uid, event.node, event.phase, status, metadata)


def _is_listed(ledger: Ledger, node: str, metadata: Object) -> bool:
    """Return whether the node's report lists resources of a pod that finished before it was seen.

    Kubelets to 1.33 list ended pods, and the report counts what they are listed with as used. The
    end of such a pod is an event after all (`end_if_finished`), which frees the resources.
    """
    entry, key = ledger.nodes.get(node), f"{metadata.get('namespace')}/{metadata.get('name')}"
    if entry is None or entry.listed is None or key in entry.ended or key in entry.name_counts:
        return False
    return any(placement.held for placement in entry.listed.get(key, ()))


def _placement(ledger: Ledger, node: str, metadata: Object) -> tuple[ZonedAmount, ...]:
    """Return where annotations say that the pod is, if the reports of its node list no pods."""
    ledger_node = ledger.nodes.get(node)
    if ledger_node is None or ledger_node.report is None:
        return ()
    if not lists_by_match(ledger_node.report) or ledger_node.report.container_zones is not None:
        return ()
    return observed_placement(part(metadata, "annotations"))


def _is_placed_elsewhere(ledger: Ledger, event: PodObserved) -> bool:
    """Return whether annotations say otherwise than before where the pod is."""
    node = ledger.nodes.get(event.node)
    charge = node.charges.get(event.pod.uid) if node is not None else None
    return charge is not None and charge.observed != event.placement


def _is_unmoved(entry: LedgerPod, node: str, metadata: Object) -> bool:
    """Return whether only a changed spec would make an event of a pod on this node."""
    terminating = bool(metadata.get("deletionTimestamp"))
    if not node or entry.node != node or entry.terminating != terminating or entry.problem:
        return False
    labels = part(metadata, "labels")
    return entry.pod.labels.keys() == labels.keys() and all(
        is_value(entry.pod.labels[key], str(labels[key])) for key in labels
    )


def _ended(uid: str, node: str, phase: str, status: Object, metadata: Object) -> PodEnded:
    reason = str(status.get("reason") or "")
    rejected = phase == "Failed" and bool(reason) and not status.get("containerStatuses")
    cause: EndCause = "succeeded" if phase == "Succeeded" else "failed"
    if rejected:
        cause = "rejected"
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


def _observed(
    obj: Object,
    metadata: Object,
    node: str,
    phase: str,
    placement: tuple[ZonedAmount, ...] = (),
    cell_problem: str = "",
) -> PodObserved:
    pod, problem = read_pod(obj)
    annotations = part(metadata, "annotations")
    return PodObserved(
        pod=pod,
        resource_version=str(metadata.get("resourceVersion", "")),
        node=node,
        phase=phase,
        static=STATIC_POD_ANNOTATION in annotations,
        terminating=bool(metadata.get("deletionTimestamp")),
        problem=problem or cell_problem,
        started_s=started_s(part(obj, "status")),
        generation=_generation(metadata),
        placement=placement,
    )


def _generation(metadata: Object) -> int:
    generation = metadata.get("generation")
    return generation if isinstance(generation, int) and 0 <= generation < 1 << 63 else 0


def _differs(entry: LedgerPod, event: PodObserved) -> bool:
    # The binding merges annotations into the pod: they make no event while its node is the same.
    if event.node and entry.node != event.node:
        return True
    if entry.terminating != event.terminating or entry.problem != event.problem:
        return True
    if event.node:
        kept = entry.pod.constraints.kept != event.pod.constraints.kept
        return kept or any(
            getattr(entry.pod, name) != getattr(event.pod, name)
            for name in ("containers", "qos", "pod_level", "labels")
        )
    return entry.pod != event.pod


def pod_deleted(ledger: Ledger, obj: Object, let_go: Collection[str] = ()) -> PodEnded | None:
    """Return the event of a DELETED watch event of a pod that is known, or was let go."""
    metadata, status = part(obj, "metadata"), part(obj, "status")
    uid = str(metadata.get("uid", ""))
    entry = ledger.pods.get(uid)
    if entry is None and uid not in let_go:
        return None
    return PodEnded(
        uid=uid,
        cause="deleted",
        node=entry.node if entry is not None else "",
        resource_version=str(metadata.get("resourceVersion", "")),
        started_s=started_s(status),
        finished_s=finished_s(status),
    )


def absent_pods(ledger: Ledger, present: Collection[str], list_version: str) -> list[PodEnded]:
    """Return the ends of live pods that a complete list lacks (`present` holds its uids) and that
    are not younger than it, so that a missed DELETE leaks nothing."""
    return [
        PodEnded(uid=uid, cause="absent_from_list", node=entry.node, resource_version=list_version)
        for uid, entry in ledger.pods.items()
        if uid not in present
        and entry.booking is None
        and not is_younger(entry.resource_version, list_version)
    ]


def unbound(ledger: Ledger, objects: Collection[Object]) -> list[PodEnded]:
    """Return the ends, on their nodes, of bound pods that these objects show without a node: in a
    restored cluster they wait again. A list from before the binding shows them so, too."""
    ends = []
    for obj in objects:
        uid = str(part(obj, "metadata").get("uid", ""))
        entry = ledger.pods.get(uid)
        if (
            entry is not None
            and entry.stage in ("bound", "running")
            and not part(obj, "spec").get("nodeName")
        ):
            ends.append(
                PodEnded(
                    uid=uid,
                    cause="absent_from_list",
                    node=entry.node,
                    resource_version=_version(obj),
                )
            )
    return ends


def _version(obj: Object) -> str:
    return str(part(obj, "metadata").get("resourceVersion", ""))


def is_mass(absent: int, total: int) -> bool:
    """Return whether so many absent of so many known objects need a second list."""
    return absent > MASS_SHARE * total


def is_older(version: str, than: str) -> bool:
    """Return whether a version is surely from before another."""
    return is_younger(than, version)


def is_younger(version: str, than: str) -> bool:
    """Return whether a version is surely from after another."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def node_event(ledger: Ledger, obj: Object) -> NodeObserved | None:
    """Return a node object's event, or None if the ledger has it already."""
    metadata, spec, status = part(obj, "metadata"), part(obj, "spec"), part(obj, "status")
    allocatable = _amounts(part(status, "allocatable"))
    event = NodeObserved(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        allocatable=allocatable,
        labels={str(k): str(v) for k, v in sorted(part(metadata, "labels").items())},
        taints=_taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        ready=_ready(status),
        kubelet_version=str(part(status, "nodeInfo").get("kubeletVersion", "")),
        unhealthy=_unhealthy(_amounts(part(status, "capacity")), allocatable),
        declared_features=_declared(status.get("declaredFeatures")),
    )
    entry = ledger.nodes.get(event.name)
    if entry is not None and entry.observed is not None and same_node(entry.observed, event):
        return None
    return event


def same_node(left: NodeObserved, right: NodeObserved) -> bool:
    """Return whether both are equal in everything that placement depends on."""
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
    # Devices that the kubelet counts and does not offer. For other resources the difference is its
    # reservation.
    lacking = {
        name: count - allocatable.get(name, 0)
        for name, count in capacity.items()
        if is_device(name)
    }
    return {name: count for name, count in lacking.items() if count > 0}


def _amounts(quantities: Object) -> Amounts:
    # An unparsable quantity counts as zero, so that the node takes no pod that requests it.
    amounts = {}
    for name in sorted(quantities):
        try:
            amounts[name] = amount(name, quantities[name])
        except (QuantityError, TypeError):
            amounts[name] = 0
    return amounts


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
    """Return the event of a DELETED watch event of a node."""
    metadata = part(obj, "metadata")
    name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
    entry = ledger.nodes.get(name)
    return None if entry is None or entry.observed is None else NodeEnded(name, uid, "deleted")


def absent_nodes(ledger: Ledger, present: Collection[str], list_version: str) -> list[NodeEnded]:
    """Return the ends of nodes that a complete list lacks (`present` holds its names) and that are
    not younger than it: another leader may have observed them since."""
    return [
        NodeEnded(name, node.observed.uid, "absent_from_list")
        for name, node in ledger.nodes.items()
        if node.observed is not None
        and name not in present
        and not is_younger(node.observed.resource_version, list_version)
    ]


STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def started_s(status: Object) -> int:
    """Return when the kubelet first reported the pod, which it does once it is admitted (kubelet
    1.36): seconds since the epoch by the node's clock, 0 for unknown.
    """
    return _seconds(status.get("startTime"))


def finished_s(status: Object) -> int:
    """Return when the last finished container finished, in seconds since the epoch by the node's
    clock. Until then the pod was active and held its resources (kubelet 1.36)."""
    return max(map(_seconds, _ends(status)), default=0)


def _ends(status: Object) -> Iterator[object]:
    for name in STATUSES:
        listed = status.get(name)
        for container in listed if isinstance(listed, list) else ():
            state = container.get("state") if isinstance(container, dict) else None
            terminated = state.get("terminated") if isinstance(state, dict) else None
            if isinstance(terminated, dict):
                yield terminated.get("finishedAt")


def _seconds(text: object) -> int:
    # The API cuts times off to whole seconds (RFC 3339).
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
        return max(0, int(time.timestamp())) if time is not None and time.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
