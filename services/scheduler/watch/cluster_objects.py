"""What of volumes, claims, CSINodes, namespaces, nominations and DeviceClasses is a fact: what the
API shows, compared with what was told.

Only what is asked for: claims that are bound, and where their volumes can be reached; classes that
name a resource. What cannot be read counts as not bound, so that the pod waits rather than goes
anywhere. Must not know watches, the log or a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.watch.pods_and_nodes import is_younger
from shared.domain.constraints import node_selector_terms
from shared.domain.demand import most, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.fields import ManifestError, RefusedError, as_mapping, mapping
from shared.domain.manifest import pod_from_manifest
from shared.events.surroundings_events import (
    ClaimObserved,
    DeviceClassObserved,
    NamespaceObserved,
    NodeVolumesLimited,
    NominationObserved,
    Surrounding,
    SurroundingEnded,
    SurroundingEvent,
    VolumeObserved,
)

Object = dict[str, Any]
ALONE = "ReadWriteOncePod"
ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


def event_of(known: ClusterObjects, kind: Surrounding, obj: Object) -> SurroundingEvent | None:
    """The fact that an object tells, or None when it was told already, or decides nothing."""
    name, version = name_of(kind, obj), _version(obj)
    held = known.of_kind(kind).get(name)
    found = _READ[kind](name, version, obj)
    if found is None:
        return None if held is None else SurroundingEnded(kind, name, "unbound", version)
    return None if held is not None and _essence(held) == _essence(found) else found


def gone(known: ClusterObjects, kind: Surrounding, obj: Object) -> SurroundingEvent | None:
    """The fact of a DELETED event."""
    name = name_of(kind, obj)
    return (
        SurroundingEnded(kind, name, "deleted", _version(obj))
        if name in known.of_kind(kind)
        else None
    )


def absent(
    known: ClusterObjects, kind: Surrounding, present: Collection[str], version: str
) -> list[SurroundingEvent]:
    """What a complete list at `version` lacks (`present` holds names) and that is not younger than
    it.
    """
    held = known.of_kind(kind)
    lacking = (
        name
        for name, each in held.items()
        if name not in present and not is_younger(each.resource_version, version)
    )
    return [SurroundingEnded(kind, name, "absent_from_list", version) for name in lacking]


def name_of(kind: Surrounding, obj: Object) -> str:
    """The name that facts have: `namespace/name` for claims, the pod's uid for nominations."""
    metadata = _part(obj, "metadata")
    if kind == "nomination":
        return str(metadata.get("uid", ""))
    name = str(metadata.get("name", ""))
    return f"{metadata.get('namespace', '')}/{name}" if kind == "claim" else name


def nomination_of(known: ClusterObjects, own: str, obj: Object) -> SurroundingEvent | None:
    """What a pod object tells of room that another scheduler than `own` makes for it."""
    spec, status, metadata = _part(obj, "spec"), _part(obj, "status"), _part(obj, "metadata")
    node, uid = str(status.get("nominatedNodeName") or ""), str(metadata.get("uid", ""))
    held = known.nominations.get(uid)
    waits = (
        status.get("phase") in (None, "", "Pending")
        and not spec.get("nodeName")
        and not metadata.get("deletionTimestamp")
    )
    if not waits or str(spec.get("schedulerName") or "default-scheduler") == own:
        node = ""
    if not node:
        return (
            None if held is None else SurroundingEnded("nomination", uid, "unbound", _version(obj))
        )
    pod = pod_from_manifest(obj)
    if isinstance(pod, ManifestError):
        return None
    named = {
        name for container in pod.containers for name in (*container.requests, *container.limits)
    }
    zonal = most(zonal_demand(pod, named))
    found = NominationObserved(
        uid, pod.key, node, _version(obj), pod.priority, effective_request(pod), zonal
    )
    return None if held is not None and _essence(held) == _essence(found) else found


def _volume(name: str, version: str, obj: Object) -> VolumeObserved | None:
    spec = _part(obj, "spec")
    if not _part(spec, "claimRef"):
        return None
    csi, affinity = _part(spec, "csi"), spec.get("nodeAffinity")
    try:
        required = (
            mapping(spec, "nodeAffinity", "spec").get("required") if affinity is not None else None
        )
        path = "spec.nodeAffinity.required"
        terms = (
            node_selector_terms(as_mapping(required, path), path) if required is not None else ()
        )
    except RefusedError:
        return None
    labels = _part(_part(obj, "metadata"), "labels")
    zones = tuple(
        (key, tuple(sorted(str(labels[key]).split("__")))) for key in ZONE_LABELS if key in labels
    )
    return VolumeObserved(
        name, version, str(csi.get("driver", "")), str(csi.get("volumeHandle", "")), terms, zones
    )


def _claim(name: str, version: str, obj: Object) -> ClaimObserved | None:
    spec, modes = _part(obj, "spec"), _part(obj, "spec").get("accessModes")
    volume = str(spec.get("volumeName") or "")
    if not volume or _part(obj, "status").get("phase") != "Bound":
        return None
    alone, leaving = (
        isinstance(modes, list) and ALONE in modes,
        bool(_part(obj, "metadata").get("deletionTimestamp")),
    )
    return ClaimObserved(name, volume, version, alone, _owner(obj), leaving)


def _owner(obj: Object) -> str:
    """The uid of the pod that controls the claim, as the ephemeral volume controller writes it."""
    owners = _part(obj, "metadata").get("ownerReferences")
    pods = (
        [o for o in owners if isinstance(o, dict) and o.get("kind") == "Pod"]
        if isinstance(owners, list)
        else []
    )
    return next((str(owner.get("uid", "")) for owner in pods if owner.get("controller")), "")


def _limits(name: str, version: str, obj: Object) -> NodeVolumesLimited | None:
    drivers = _part(obj, "spec").get("drivers")
    named = [one for one in drivers if isinstance(one, dict)] if isinstance(drivers, list) else []
    counts = {str(one.get("name", "")): _part(one, "allocatable").get("count") for one in named}
    limits = {driver: number for driver, number in sorted(counts.items()) if type(number) is int}
    return NodeVolumesLimited(name, version, limits) if limits else None


def _namespace(name: str, version: str, obj: Object) -> NamespaceObserved:
    labels = _part(_part(obj, "metadata"), "labels")
    return NamespaceObserved(
        name, version, {str(key): str(value) for key, value in sorted(labels.items())}
    )


def _device_class(name: str, version: str, obj: Object) -> DeviceClassObserved | None:
    resource = str(_part(obj, "spec").get("extendedResourceName") or "")
    return DeviceClassObserved(name, resource, version) if resource else None


_READ: dict[Surrounding, Callable[[str, str, Object], SurroundingEvent | None]] = {
    "volume": _volume,
    "claim": _claim,
    "namespace": _namespace,
    "csinode": _limits,
    "deviceclass": _device_class,
}


def _essence(event: SurroundingEvent) -> tuple[object, ...]:
    return tuple(
        getattr(event, name) for name in event.__struct_fields__ if name != "resource_version"
    )


def _version(obj: Object) -> str:
    return str(_part(obj, "metadata").get("resourceVersion", ""))


def _part(obj: Object, name: str) -> Object:
    part = obj.get(name)
    return part if isinstance(part, dict) else {}
