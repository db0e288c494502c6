"""Is this answer a list at all? A proxy's error page with status 200 is none, and neither is a list
without a version.

What is absent from a list ends, so that a list must be one: its kind, items with names and uids,
and the resourceVersion at which it was true. Must not know transport.
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
    "noderesourcetopologies": "NodeResourceTopologyList",
    "noderesourcetopologies.v1alpha1": "NodeResourceTopologyList",
    "poddisruptionbudgets": "PodDisruptionBudgetList",
}


def page_problem(kind: Kind, body: Object) -> str:
    """What is wrong with one page of a list, empty when it is one."""
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
    """What is wrong with one object, empty when it is one."""
    named = item.get("metadata") if isinstance(item, dict) else None
    known = isinstance(named, dict) and _is_text(named.get("uid")) and _is_text(named.get("name"))
    return "" if known else "has no name and uid"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
