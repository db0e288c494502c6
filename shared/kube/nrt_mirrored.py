"""The NodeResourceTopology object that mirrors a node as the ledger sees it.

An attribute marks the object as Topolog's, because other exporters replace all attributes: an
object that another exporter has taken over has lost the mark.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from shared.domain.quantity import format_amount
from shared.domain.report import Report, Zone, ZoneResource
from shared.domain.resources import CPU, is_device
from shared.kube import nrt
from shared.ledger.state import ZoneAmounts

MARK = "topolog.io/mirror"
EXPIRED_SINCE = "topolog.io/expired-since"
# Shown by the printer columns in k8s/components/noderesourcetopology/crd.yaml.
ZONES, FREE_CPUS = "topolog.io/zones", "topolog.io/free-cpus"
FREE_DEVICES = "topolog.io/free-devices"
ANNOTATIONS = (EXPIRED_SINCE, nrt.FINGERPRINT_ANNOTATION, nrt.UPDATE_ANNOTATION)

Object = dict[str, Any]


def mirrored(
    report: Report, available: ZoneAmounts, node_uid: str, pessimism: str, expired_since: str = ""
) -> Object:
    """Return the object for a report with the amounts that are free in the ledger, owned by the
    Node of `node_uid`. `expired_since` (RFC 3339) is annotated if the node's report has expired."""
    topology = nrt.to_nrt(
        msgspec.structs.replace(
            report, zones=tuple(_zone(zone, available) for zone in report.zones)
        )
    )
    shown = {name: value for name, value in summary(report, available).items() if value}
    topology["attributes"] = [
        *topology["attributes"],
        *({"name": name, "value": value} for name, value in shown.items()),
        {"name": MARK, "value": pessimism},
    ]
    owner = {"apiVersion": "v1", "kind": "Node", "name": report.node, "uid": node_uid}
    topology["metadata"]["ownerReferences"] = [owner]
    if expired_since:
        topology["metadata"]["annotations"][EXPIRED_SINCE] = expired_since
    return topology


def summary(report: Report, available: ZoneAmounts) -> dict[str, str]:
    """Return the attributes that `kubectl get noderesourcetopologies` shows in columns: the number
    of zones, and the free amounts by zone, as in `0:8 1:4` and `nvidia.com/gpu 0:2 1:1`."""
    free = {zone.id: _zone(zone, available).resources for zone in report.zones}
    devices = sorted({name for zone in free.values() for name in zone if is_device(name)})
    return {
        ZONES: str(len(report.zones)),
        FREE_CPUS: _by_zone(free, CPU),
        FREE_DEVICES: ", ".join(f"{name} {_by_zone(free, name)}" for name in devices),
    }


def _by_zone(free: dict[int, dict[str, ZoneResource]], name: str) -> str:
    return " ".join(
        f"{zone}:{format_amount(name, resources[name].available)}"
        for zone, resources in sorted(free.items())
        if name in resources
    )


def _zone(zone: Zone, available: ZoneAmounts) -> Zone:
    amounts = available.get(zone.id, {})
    resources = {
        name: ZoneResource(r.capacity, r.allocatable, max(0, amounts.get(name, r.available)))
        for name, r in zone.resources.items()
    }
    return msgspec.structs.replace(zone, resources=resources)


def is_mirrored(topology: Object) -> bool:
    """Return whether the object is Topolog's own. Only such objects are changed or deleted, and
    they are never read as reports."""
    attributes = topology.get("attributes")
    return isinstance(attributes, list) and any(
        isinstance(item, dict) and item.get("name") == MARK for item in attributes
    )


def content(topology: Object) -> int:
    """Return a digest of the fields that the mirror writes. Equal digests need no write."""
    metadata = topology.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    written = (
        {key: annotations[key] for key in ANNOTATIONS if key in annotations},
        [
            owner.get("uid")
            for owner in metadata.get("ownerReferences") or []
            if isinstance(owner, dict)
        ],
        # Objects of before carry topologyPolicies: they are written once without it.
        [topology.get(field) for field in ("topologyPolicies", "attributes", "zones")],
    )
    return xxhash.xxh3_64_intdigest(msgspec.json.encode(written, order="sorted"))
