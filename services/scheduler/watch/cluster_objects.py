"""Events of volumes, claims, CSINodes, namespaces, nominations, DeviceClasses, PodGroups and
Devices: objects of the API compared with the fold.

Only what constraints need becomes an event: claims that are bound, from where their volumes can be
reached, classes that name a resource. An unreadable object counts as not bound, so that the pod
waits instead of going anywhere. Must not know watches, the log or a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol

from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.watch.pods_and_nodes import is_younger
from shared.domain.constraints import node_selector_terms
from shared.domain.demand import most, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.fields import ManifestError, RefusedError, as_mapping, mapping, part
from shared.domain.gang import APIS, KUBERNETES, WAITING_TIME, GangRules, PodGroupApi, rules_of
from shared.domain.manifest import pod_from_manifest
from shared.events.surroundings_events import (
    ClaimObserved,
    DeviceClassObserved,
    NamespaceObserved,
    NodeVolumesLimited,
    NominationObserved,
    PodGroupObserved,
    Surrounding,
    SurroundingEnded,
    SurroundingEvent,
    VolumeObserved,
)
from shared.kube.device_objects import devices_of

Object = dict[str, Any]
ALONE = "ReadWriteOncePod"
ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class KnownObjects(Protocol):
    """Cluster objects that the fold holds."""

    def of_kind(self, kind: Surrounding) -> Mapping[str, Any]: ...


def event_of(
    known_objects: KnownObjects, kind: Surrounding, obj: Object
) -> SurroundingEvent | None:
    """Return an object's event, or None if the fold has it already or nothing depends on it."""
    name, version = name_of(kind, obj), _version(obj)
    last = known_objects.of_kind(kind).get(name)
    event = _READ[kind](name, version, obj)
    if event is None:
        return None if last is None else SurroundingEnded(kind, name, "unbound", version)
    return None if last is not None and _essence(last) == _essence(event) else event


def deleted(known_objects: KnownObjects, kind: Surrounding, obj: Object) -> SurroundingEvent | None:
    """Return the event of a DELETED watch event."""
    name = name_of(kind, obj)
    return (
        SurroundingEnded(kind, name, "deleted", _version(obj))
        if name in known_objects.of_kind(kind)
        else None
    )


def absent(
    known_objects: KnownObjects, kind: Surrounding, present: Collection[str], version: str
) -> list[SurroundingEvent]:
    """Return the ends of objects that a complete list at `version` lacks (`present` holds names)
    and that are not younger than it.
    """
    lacking = (
        name
        for name, event in known_objects.of_kind(kind).items()
        if name not in present and not is_younger(event.resource_version, version)
    )
    return [SurroundingEnded(kind, name, "absent_from_list", version) for name in lacking]


def name_of(kind: Surrounding, obj: Object) -> str:
    """Return an object's name in events: `namespace/name` for claims and PodGroups, the pod's uid
    for nominations."""
    metadata = part(obj, "metadata")
    if kind == "nomination":
        return str(metadata.get("uid", ""))
    name = str(metadata.get("name", ""))
    has_namespace = kind == "claim" or kind in APIS
    return f"{metadata.get('namespace', '')}/{name}" if has_namespace else name


def nomination_of(
    known: ClusterObjects, scheduler_name: str, obj: Object
) -> SurroundingEvent | None:
    """Return the event of a pod that another scheduler than ours has nominated for a node."""
    spec, status, metadata = part(obj, "spec"), part(obj, "status"), part(obj, "metadata")
    node, uid = str(status.get("nominatedNodeName") or ""), str(metadata.get("uid", ""))
    last = known.nominations.get(uid)
    waits = (
        status.get("phase") in (None, "", "Pending")
        and not spec.get("nodeName")
        and not metadata.get("deletionTimestamp")
    )
    if not waits or str(spec.get("schedulerName") or "default-scheduler") == scheduler_name:
        node = ""
    if not node:
        return (
            None if last is None else SurroundingEnded("nomination", uid, "unbound", _version(obj))
        )
    pod = pod_from_manifest(obj)
    if isinstance(pod, ManifestError):
        return None
    named = {
        name for container in pod.containers for name in (*container.requests, *container.limits)
    }
    zonal = most(zonal_demand(pod, named))
    event = NominationObserved(
        uid, pod.key, node, _version(obj), pod.priority, effective_request(pod), zonal
    )
    return None if last is not None and _essence(last) == _essence(event) else event


def _volume(name: str, version: str, obj: Object) -> VolumeObserved | None:
    spec = part(obj, "spec")
    if not part(spec, "claimRef"):
        return None
    csi, affinity = part(spec, "csi"), spec.get("nodeAffinity")
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
    labels = part(part(obj, "metadata"), "labels")
    zones = tuple(
        (key, tuple(sorted(str(labels[key]).split("__")))) for key in ZONE_LABELS if key in labels
    )
    return VolumeObserved(
        name, version, str(csi.get("driver", "")), str(csi.get("volumeHandle", "")), terms, zones
    )


def _claim(name: str, version: str, obj: Object) -> ClaimObserved | None:
    spec, modes = part(obj, "spec"), part(obj, "spec").get("accessModes")
    volume = str(spec.get("volumeName") or "")
    if not volume or part(obj, "status").get("phase") != "Bound":
        return None
    alone = isinstance(modes, list) and ALONE in modes
    leaving = bool(part(obj, "metadata").get("deletionTimestamp"))
    return ClaimObserved(name, volume, version, alone, _owner(obj), leaving)


def _owner(obj: Object) -> str:
    # The pod that controls the claim, as the ephemeral volume controller writes it.
    owners = part(obj, "metadata").get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("kind") == "Pod" and owner.get("controller"):
            return str(owner.get("uid", ""))
    return ""


def _limits(name: str, version: str, obj: Object) -> NodeVolumesLimited | None:
    drivers = part(obj, "spec").get("drivers")
    if not isinstance(drivers, list):
        return None
    counts = {
        str(driver.get("name", "")): part(driver, "allocatable").get("count")
        for driver in drivers
        if isinstance(driver, dict)
    }
    limits = {driver: number for driver, number in sorted(counts.items()) if type(number) is int}
    return NodeVolumesLimited(name, version, limits) if limits else None


def _namespace(name: str, version: str, obj: Object) -> NamespaceObserved:
    labels = part(part(obj, "metadata"), "labels")
    return NamespaceObserved(
        name, version, {str(key): str(value) for key, value in sorted(labels.items())}
    )


def _device_class(name: str, version: str, obj: Object) -> DeviceClassObserved | None:
    resource = str(part(obj, "spec").get("extendedResourceName") or "")
    return DeviceClassObserved(name, resource, version) if resource else None


# Fields that ask for more than a minimum of pods.
_MORE_THAN_MINIMUM = (
    "parentCompositePodGroupName",
    "resourceClaims",
    "minTaskMember",
    "networkTopology",
    "subGroupPolicy",
)


def _pod_group(api: PodGroupApi, name: str, version: str, obj: Object) -> PodGroupObserved:
    spec = part(obj, "spec")
    policy = part(spec, "schedulingPolicy")
    problem = next((f"spec.{key}" for key in _MORE_THAN_MINIMUM if spec.get(key)), "")
    if api == KUBERNETES and not policy.keys() & {"basic", "gang"}:
        problem = "spec.schedulingPolicy"
    wanted = part(policy, "gang").get("minCount") if api == KUBERNETES else spec.get("minMember")
    minimum = wanted if isinstance(wanted, int) and 0 <= wanted < 1 << 31 else 0
    annotations = part(part(obj, "metadata"), "annotations")
    timeout_s = spec.get("scheduleTimeoutSeconds")
    if isinstance(timeout_s, int) and timeout_s > 0:
        annotations = {WAITING_TIME: f"{timeout_s}s", **annotations}
    rules = rules_of(annotations)
    if spec.get("schedulingConstraints"):
        rules = _constraints(part(spec, "schedulingConstraints"))
    return PodGroupObserved(api, name, minimum, version, problem or rules.problem, rules)


def _constraints(constraints: Mapping[str, Any]) -> GangRules:
    """Return the topology, of which Kubernetes allows one entry with a label key."""
    topology = constraints.get("topology")
    entry = topology[0] if isinstance(topology, list) and len(topology) == 1 else None
    key = entry.get("key") if isinstance(entry, dict) and entry.keys() == {"key"} else None
    if constraints.keys() != {"topology"} or not isinstance(key, str) or not key:
        return GangRules(problem="spec.schedulingConstraints")
    return GangRules(required=(key,))


_READ: dict[Surrounding, Callable[[str, str, Object], SurroundingEvent | None]] = {
    "volume": _volume,
    "claim": _claim,
    "namespace": _namespace,
    "csinode": _limits,
    "deviceclass": _device_class,
    **{api: partial(_pod_group, api) for api in APIS},
    "devices": devices_of,
}


def _essence(event: SurroundingEvent) -> tuple[object, ...]:
    return tuple(
        getattr(event, name) for name in event.__struct_fields__ if name != "resource_version"
    )


def _version(obj: Object) -> str:
    return str(part(obj, "metadata").get("resourceVersion", ""))
