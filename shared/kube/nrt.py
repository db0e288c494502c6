"""NodeResourceTopology v1alpha2 objects and reports, in both directions.

Out: what resource-topology-exporter writes (zone names, attributes, annotations, decimal
quantities), sorted. In: objects by RTE, NFD or hand, with attributes or the deprecated
`topologyPolicies`. Any other object is an `NrtError` that names object, field and remedy. Source:
noderesourcetopology-api v1alpha2.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from shared.domain import dynamic, quantity
from shared.domain.atoi import atoi
from shared.domain.policies import BEST_EFFORT, NONE, POLICIES, RESTRICTED, SCOPES, SINGLE_NUMA_NODE
from shared.domain.report import OBJECT, UNKNOWN, Report, Zone, ZoneResource
from shared.domain.resources import CPU
from shared.kube import koordlet, numaplacement

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"
FINGERPRINT = "nodeTopologyPodsFingerprint"
FINGERPRINT_METHOD = "nodeTopologyPodsFingerprintMethod"
POLICY = "topologyManagerPolicy"
SCOPE = "topologyManagerScope"
FINGERPRINT_ANNOTATION = "topology.node.k8s.io/fingerprint"
UPDATE_ANNOTATION = "k8stopoawareschedwg/rte-update"
MAX_NUMA_NODES = "topologyManagerMaxNUMANodes"
DEFAULT_NUMA_NODES = 8
NUMA_NODES_CAP = 1024
ALL = "all"
MAX_ZONES = 64
_ZONE_NAME = re.compile(r"node-(\d{1,5})", re.ASCII)
_LEGACY = {
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, "container"),
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, "pod"),
    "SingleNUMANode": (SINGLE_NUMA_NODE, "container"),
    "RestrictedContainerLevel": (RESTRICTED, "container"),
    "RestrictedPodLevel": (RESTRICTED, "pod"),
    "Restricted": (RESTRICTED, "container"),
    "BestEffortContainerLevel": (BEST_EFFORT, "container"),
    "BestEffortPodLevel": (BEST_EFFORT, "pod"),
    "BestEffort": (BEST_EFFORT, "container"),
    "None": (NONE, "container"),
}


class NrtError(ValueError):
    """The object cannot be read as a report; names object, field, value and remedy."""


class _Named(msgspec.Struct):
    name: str
    value: str


class _Cost(msgspec.Struct):
    name: str
    value: int


class _Resource(msgspec.Struct):
    name: str
    capacity: str | int
    allocatable: str | int
    available: str | int


class _Zone(msgspec.Struct):
    name: str
    type: str
    costs: list[_Cost] = []
    resources: list[_Resource] = []
    attributes: list[_Named] | None = None


class _Meta(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, rename={"policies": "topologyPolicies"}):
    metadata: _Meta
    zones: list[_Zone]
    attributes: list[_Named] | None = None
    policies: list[str] | None = None


def to_nrt(report: Report, update: str = "periodic") -> dict[str, Any]:
    """Return the object for a report. `update` is `periodic` or `reactive`, as RTE annotates.

    Like RTE it has no `topologyPolicies`: the upstream plugin logs two lines a node and pod for an
    object with this deprecated field.
    """
    payload = _payload(report)
    metadata, vectors = payload or ("", {})
    claimable = dynamic.by_zone(report)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": report.node, "annotations": _annotations(report, update)},
        "attributes": _attributes(report, metadata),
        "zones": [
            _zone_out(zone, claimable.get(zone.id, {}), vectors.get(zone.id))
            for zone in report.zones
        ],
    }


def from_nrt(
    decoded: object,
    boot_id: str,
    boot_time_ms: int,
    koordlet_memory: koordlet.MemoryPolicy = "auto",
) -> Report:
    """Return the report of a decoded object. Only koordlet's have placements: numaplacement has the
    zones of containers, but not their names. The caller passes the freshness that the source can
    prove. Raises NrtError."""
    try:
        topology = msgspec.convert(decoded, _Object)
    except msgspec.ValidationError as error:
        raise NrtError(f"{KIND}: {error}; expected the schema of v1alpha2 or v1alpha1") from error
    name = topology.metadata.name
    zones = _zones_in(name, topology.zones)
    attributes = {
        attribute.name: attribute.value
        for attribute in topology.attributes or []
        if attribute.value
    }
    policy, scope = _policy_in(name, topology, attributes)
    fingerprint, method = _fingerprint_in(topology, attributes)
    report = Report(
        node=name,
        boot_id=boot_id,
        boot_time_ms=boot_time_ms,
        policy=policy,
        scope=scope,
        max_numa_nodes=_max_numa_nodes(attributes),
        tracked=_tracked(zones),
        zones=zones,
        placements=None,
        fingerprint=fingerprint,
        fingerprint_method=method,
        source=OBJECT,
        container_zones=_container_zones(name, topology.zones, attributes, zones),
        counts_blocks_in_full=UPDATE_ANNOTATION in (topology.metadata.annotations or {}),
    )
    annotations = topology.metadata.annotations or {}
    if fingerprint or not koordlet.is_by_koordlet(annotations):
        return report
    try:
        return koordlet.with_facts(report, annotations, koordlet_memory)
    except koordlet.AnnotationError as error:
        raise NrtError(f"{KIND} {name}: {error}") from error


def _payload(report: Report) -> tuple[str, dict[int, str]] | None:
    """Return the numaplacement payload. RTE writes it for single-numa-node with fingerprints, for
    containers with exclusive resources."""
    if not report.fingerprint or report.policy != SINGLE_NUMA_NODE or report.placements is None:
        return None
    return numaplacement.encode(report.placements, (zone.id for zone in report.zones))


def _annotations(report: Report, update: str) -> dict[str, str]:
    annotations = {UPDATE_ANNOTATION: update}
    if report.fingerprint:
        annotations[FINGERPRINT_ANNOTATION] = report.fingerprint
    return annotations


def _attributes(report: Report, payload: str) -> list[dict[str, str]]:
    """Return the attributes in RTE's order. RTE leaves the limit of zones out, and readers assume
    the kubelet's default. A higher limit is written, because the plugin's LeastNUMANodes is
    negative for more zones than the limit, and its framework refuses that."""
    pairs = [
        (FINGERPRINT, report.fingerprint),
        (FINGERPRINT_METHOD, report.fingerprint_method if report.fingerprint else ""),
        (numaplacement.METADATA_ATTRIBUTE, payload),
        (SCOPE, report.scope),
        (POLICY, report.policy if report.policy != UNKNOWN else ""),
        (
            MAX_NUMA_NODES,
            str(report.max_numa_nodes) if report.max_numa_nodes > DEFAULT_NUMA_NODES else "",
        ),
    ]
    return [{"name": name, "value": value} for name, value in pairs if value]


def _zone_out(zone: Zone, claimable: dict[str, ZoneResource], vector: str | None) -> dict[str, Any]:
    written: dict[str, Any] = {"name": f"node-{zone.id}", "type": "Node"}
    written["costs"] = [
        {"name": f"node-{target}", "value": zone.costs[target]} for target in sorted(zone.costs)
    ]
    if vector is not None:
        written["attributes"] = [{"name": numaplacement.VECTOR_ATTRIBUTE, "value": vector}]
    resources = {**zone.resources, **claimable}
    written["resources"] = [_resource_out(name, resources[name]) for name in sorted(resources)]
    return written


def _resource_out(name: str, resource: ZoneResource) -> dict[str, str]:
    return {
        "name": name,
        "capacity": _quantity_out(name, resource.capacity),
        "allocatable": _quantity_out(name, resource.allocatable),
        "available": _quantity_out(name, resource.available),
    }


def _quantity_out(name: str, amount: int) -> str:
    """Return decimal notation, as all producers write it: 3, 1700495360, 2M."""
    unit = quantity.NANO // 1000 if name == CPU else quantity.NANO
    return quantity.Quantity(amount * unit).canonical()


def _zones_in(node: str, listed: list[_Zone]) -> tuple[Zone, ...]:
    if len(listed) > MAX_ZONES:
        raise NrtError(
            f"{KIND} {node}: zones: {len(listed)} zones are above the limit of {MAX_ZONES}"
        )
    zones = [_zone_in(node, zone) for zone in listed if zone.type == "Node"]
    ids = [zone.id for zone in zones]
    repeated = sorted({zone_id for zone_id in ids if ids.count(zone_id) > 1})
    if repeated:
        raise NrtError(
            f"{KIND} {node}: zones: node-{repeated[0]} appears twice; each zone may appear once"
        )
    return tuple(sorted(zones, key=lambda zone: zone.id))


def _zone_in(node: str, zone: _Zone) -> Zone:
    where = f"{KIND} {node}: zone {zone.name}"
    resources = {resource.name: _resource_in(where, resource) for resource in zone.resources}
    costs = {_zone_id(where, cost.name): cost.value for cost in zone.costs}
    return Zone(
        _zone_id(where, zone.name), dict(sorted(resources.items())), dict(sorted(costs.items()))
    )


def _zone_id(where: str, name: str) -> int:
    match = _ZONE_NAME.fullmatch(name)
    if match is None:
        raise NrtError(f"{where}: {name!r} is no zone name; expected node-<number>")
    return int(match[1])


def _resource_in(where: str, resource: _Resource) -> ZoneResource:
    return ZoneResource(
        *(_amount_in(where, resource, field) for field in ("capacity", "allocatable", "available"))
    )


def _amount_in(where: str, resource: _Resource, field: str) -> int:
    """Read an amount. NFD writes a negative `available` if it subtracts a device of two zones twice
    from one of them."""
    text = getattr(resource, field)
    where = f"{where}: resource {resource.name}: {field} {text!r}"
    try:
        amount = quantity.amount(resource.name, text)
    except quantity.QuantityError as error:
        raise NrtError(f"{where}: {error}") from error
    if amount < 0 and field != "available":
        raise NrtError(f"{where} is negative; expected 0 or more")
    return max(0, amount)


def _policy_in(node: str, topology: _Object, attributes: dict[str, str]) -> tuple[str, str]:
    """Return policy and scope. Attributes override the first entry of the older `topologyPolicies`
    field by field, as in the plugin. Without both the policy is unknown."""
    legacy = (topology.policies or [""])[0]
    if legacy and legacy not in _LEGACY:
        raise NrtError(
            f"{KIND} {node}: topologyPolicies: {legacy!r} is unknown; "
            f"expected one of {', '.join(sorted(_LEGACY))}"
        )
    policy, scope = _LEGACY.get(legacy, (UNKNOWN, "container"))
    return (
        _checked(node, POLICY, attributes.get(POLICY) or policy, (*POLICIES, policy)),
        _checked(node, SCOPE, attributes.get(SCOPE) or scope, SCOPES),
    )


def _max_numa_nodes(attributes: dict[str, str]) -> int:
    """Return the kubelet's limit of zones. As in the plugin, any text but a number above 1 means
    the default."""
    limit = atoi(attributes.get(MAX_NUMA_NODES, "")) or 0
    return min(limit, NUMA_NODES_CAP) if limit > 1 else DEFAULT_NUMA_NODES


def _checked(node: str, field: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise NrtError(
            f"{KIND} {node}: attribute {field}: {value!r} is unknown; "
            f"expected one of {', '.join(allowed)}"
        )
    return value


def _fingerprint_in(topology: _Object, attributes: dict[str, str]) -> tuple[str, str]:
    """Return the attribute, else the annotation of older exporters, which covers all pods."""
    if attributes.get(FINGERPRINT):
        return attributes[FINGERPRINT], attributes.get(FINGERPRINT_METHOD) or ALL
    annotated = (topology.metadata.annotations or {}).get(FINGERPRINT_ANNOTATION, "")
    return annotated, ALL if annotated else ""


def _container_zones(
    node: str, listed: list[_Zone], attributes: dict[str, str], zones: tuple[Zone, ...]
) -> tuple[int, ...] | None:
    """Return the zone of each container, if the object says so."""
    metadata = attributes.get(numaplacement.METADATA_ATTRIBUTE)
    if not metadata:
        return None
    vectors = {
        _zone_id(f"{KIND} {node}: zone {zone.name}", zone.name): attribute.value
        for zone in listed
        if zone.type == "Node"
        for attribute in zone.attributes or []
        if attribute.name == numaplacement.VECTOR_ATTRIBUTE
    }
    try:
        container_zones = numaplacement.decode(metadata, vectors)
    except numaplacement.VectorError as error:
        where, name = f"{KIND} {node}", numaplacement.METADATA_ATTRIBUTE
        if error.zone is not None:
            where, name = f"{where}: zone node-{error.zone}", numaplacement.VECTOR_ATTRIBUTE
        raise NrtError(f"{where}: attribute {name}: {error}") from error
    unknown = set(container_zones or ()) - {zone.id for zone in zones}
    if unknown:
        raise NrtError(
            f"{KIND} {node}: attribute {numaplacement.METADATA_ATTRIBUTE}: containers in zone "
            f"{min(unknown)}, which the object does not have"
        )
    return container_zones


def _tracked(zones: tuple[Zone, ...]) -> tuple[str, ...]:
    """Return the resources with something allocatable: other entries are placeholders."""
    offered = {
        name
        for zone in zones
        for name, resource in zone.resources.items()
        if resource.allocatable > 0
    }
    return tuple(sorted(offered))
