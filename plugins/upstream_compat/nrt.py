"""A NodeResourceTopology object (topology.node.k8s.io/v1alpha2) as a value, read from JSON or made
from a report.

Keeps the object's content as it is, duplicates and invalid zones included; `zones` and
`topology_manager` interpret it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plugins.upstream_compat import reading
from plugins.upstream_compat.amounts import from_amount
from plugins.upstream_compat.topology_manager import TopologyManager, topology_manager
from shared.domain.quantity import Quantity
from shared.domain.report import Report
from shared.domain.report import Zone as ReportZone

FINGERPRINT_ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"
FINGERPRINT_ANNOTATION = "topology.node.k8s.io/fingerprint"


class ZoneResource(msgspec.Struct, frozen=True):
    """One entry of a zone's resource list."""

    name: str
    capacity: Quantity
    allocatable: Quantity
    available: Quantity


class Zone(msgspec.Struct, frozen=True):
    """A zone as written; `costs` are (zone name, distance)."""

    name: str
    type: str
    resources: tuple[ZoneResource, ...] = ()
    costs: tuple[tuple[str, int], ...] = ()


class Nrt(msgspec.Struct, frozen=True):
    """One object. `name` is the node's name, `attributes` are (name, value) in order with
    duplicates.
    """

    name: str
    policies: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    zones: tuple[Zone, ...] = ()
    annotations: dict[str, str] = {}

    @property
    def manager(self) -> TopologyManager:
        """The effective settings of the Topology Manager."""
        return topology_manager(self.policies, self.attributes)

    @property
    def resource_names(self) -> frozenset[str]:
        """Every resource that a zone of any type names."""
        return frozenset(resource.name for zone in self.zones for resource in zone.resources)

    def attribute(self, name: str) -> str | None:
        """Return the value of the first attribute with that name."""
        return next((value for found, value in self.attributes if found == name), None)


def parse_nrt(raw: Mapping[str, Any]) -> Nrt:
    """Return the object that JSON describes. Raises `InvalidObjectError`, which names the first
    unusable field.
    """
    document = reading.as_mapping(raw, "")
    metadata = reading.mapping(document, "metadata", "")
    annotations = reading.mapping(metadata, "annotations", "metadata.")
    return Nrt(
        name=reading.text(metadata, "name", "metadata."),
        policies=reading.texts(document, "topologyPolicies", ""),
        attributes=tuple(
            (reading.text(each, "name", f"{path}."), reading.text(each, "value", f"{path}."))
            for path, each in reading.objects(document, "attributes", "")
        ),
        zones=tuple(_zone(path, each) for path, each in reading.objects(document, "zones", "")),
        annotations={
            key: reading.text(annotations, key, "metadata.annotations.") for key in annotations
        },
    )


def from_report(report: Report) -> Nrt:
    """Return the object that an exporter would have published for this report."""
    attributes = [
        ("topologyManagerPolicy", report.policy),
        ("topologyManagerScope", report.scope),
        ("topologyManagerMaxNUMANodes", str(report.max_numa_nodes)),
    ]
    if report.fingerprint:
        attributes += [
            (FINGERPRINT_ATTRIBUTE, report.fingerprint),
            (METHOD_ATTRIBUTE, report.fingerprint_method or "all"),
        ]
    return Nrt(report.node, (), tuple(attributes), tuple(_reported(zone) for zone in report.zones))


def _zone(path: str, raw: Mapping[str, Any]) -> Zone:
    return Zone(
        name=reading.text(raw, "name", f"{path}."),
        type=reading.text(raw, "type", f"{path}."),
        resources=tuple(
            ZoneResource(
                reading.text(each, "name", f"{where}."),
                *(
                    reading.quantity(each, key, f"{where}.")
                    for key in ("capacity", "allocatable", "available")
                ),
            )
            for where, each in reading.objects(raw, "resources", f"{path}.")
        ),
        costs=tuple(
            (reading.text(each, "name", f"{where}."), reading.whole(each, "value", f"{where}."))
            for where, each in reading.objects(raw, "costs", f"{path}.")
        ),
    )


def _reported(zone: ReportZone) -> Zone:
    resources = tuple(
        ZoneResource(
            name,
            *(
                from_amount(name, each)
                for each in (held.capacity, held.allocatable, held.available)
            ),
        )
        for name, held in sorted(zone.resources.items())
    )
    return Zone(
        f"node-{zone.id}",
        "Node",
        resources,
        tuple((f"node-{to}", cost) for to, cost in sorted(zone.costs.items())),
    )
