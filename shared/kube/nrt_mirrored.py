"""The NodeResourceTopology object that mirrors a node as the ledger sees it: made, recognised,
compared.

An attribute marks it as Topolog's, because attributes are what other exporters replace whole: an
object that one of them has taken over has lost the mark. Must not know how objects travel, or when
one is written.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from shared.domain.report import Report, Zone, ZoneResource
from shared.kube import nrt
from shared.ledger.state import ZoneAmounts

MARK = "topolog.io/mirror"
EXPIRED_SINCE = "topolog.io/expired-since"
ANNOTATIONS = (EXPIRED_SINCE, nrt.FINGERPRINT_ANNOTATION, nrt.UPDATE_ANNOTATION)

Object = dict[str, Any]


def mirrored(
    report: Report, available: ZoneAmounts, node_uid: str, pessimism: str, expired_since: str = ""
) -> Object:
    """The object for a report with the amounts that are free in the ledger's view, owned by the
    Node of `node_uid`.

    `expired_since` (RFC 3339) is annotated on a node that has fallen silent."""
    made = nrt.to_nrt(
        msgspec.structs.replace(
            report, zones=tuple(_zone(zone, available) for zone in report.zones)
        )
    )
    made["attributes"] = [*made["attributes"], {"name": MARK, "value": pessimism}]
    owner = {"apiVersion": "v1", "kind": "Node", "name": report.node, "uid": node_uid}
    made["metadata"]["ownerReferences"] = [owner]
    if expired_since:
        made["metadata"]["annotations"][EXPIRED_SINCE] = expired_since
    return made


def _zone(zone: Zone, available: ZoneAmounts) -> Zone:
    amounts = available.get(zone.id, {})
    resources = {
        name: ZoneResource(r.capacity, r.allocatable, max(0, amounts.get(name, r.available)))
        for name, r in zone.resources.items()
    }
    return msgspec.structs.replace(zone, resources=resources)


def is_mirrored(found: Object) -> bool:
    """Whether the object is Topolog's own: only such are written over, deleted, and never taken in."""
    attributes = found.get("attributes")
    return isinstance(attributes, list) and any(
        isinstance(one, dict) and one.get("name") == MARK for one in attributes
    )


def content(found: Object) -> int:
    """A digest of what the mirror writes; equal digests need no write."""
    metadata = found.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    written = (
        {key: annotations[key] for key in ANNOTATIONS if key in annotations},
        [one.get("uid") for one in metadata.get("ownerReferences") or [] if isinstance(one, dict)],
        [found.get(field) for field in ("topologyPolicies", "attributes", "zones")],
    )
    return xxhash.xxh3_64_intdigest(msgspec.json.encode(written, order="sorted"))
