"""Check that an answer is a list. A proxy may answer with an error page and status 200.

Objects that a list lacks are treated as ended, so a list must have its kind, items with names and
uids, and the resourceVersion at which it was true.
"""

from __future__ import annotations

from typing import Any

from shared.kube.port import Kind, Object

_KINDS: dict[Kind, str] = {
    "pods": "PodList",
    "nodes": "NodeList",
    "namespaces": "NamespaceList",
    "persistentvolumes": "PersistentVolumeList",
    "persistentvolumeclaims": "PersistentVolumeClaimList",
    "csinodes": "CSINodeList",
    "deviceclasses": "DeviceClassList",
    "podgroups": "PodGroupList",
    "podgroups.v1alpha3": "PodGroupList",
    "podgroups.x-k8s.io": "PodGroupList",
    "podgroups.sigs.k8s.io": "PodGroupList",
    "podgroups.volcano.sh": "PodGroupList",
    "devices": "DeviceList",
    "reservations": "ReservationList",
    "noderesourcetopologies": "NodeResourceTopologyList",
    "noderesourcetopologies.v1alpha1": "NodeResourceTopologyList",
    "poddisruptionbudgets": "PodDisruptionBudgetList",
}


def page_problem(kind: Kind, body: Object) -> str:
    """Return the problem of one page of a list, empty if there is none."""
    if body.get("kind") != _KINDS[kind]:
        return f"its kind is {str(body.get('kind'))[:60]!r}, not {_KINDS[kind]}"
    items, metadata = body.get("items"), body.get("metadata")
    if not isinstance(items, list):
        return "it has no items"
    if not isinstance(metadata, dict) or not _is_text(metadata.get("resourceVersion")):
        return "it has no resourceVersion"
    if not isinstance(metadata.get("continue", ""), str):
        return "its continue token is no text"
    for number, item in enumerate(items):
        if problem := item_problem(item):
            return f"items[{number}] {problem}"
    return ""


def item_problem(item: Any) -> str:
    """Return the problem of one object, empty if there is none."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return "has no name and uid"
    is_named = _is_text(metadata.get("uid")) and _is_text(metadata.get("name"))
    return "" if is_named else "has no name and uid"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
