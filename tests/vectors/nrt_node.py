"""The node entries that the filter and score vectors share: a node, its NRT, and what the
OverReserve cache holds of it.
"""

from __future__ import annotations

from typing import Any

from plugins.upstream_compat.cache import View
from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.nrt import Nrt, parse_nrt
from plugins.upstream_compat.overreserve import OverReserve
from plugins.upstream_compat.pod import Pod, parse_pod


def entry_nrt(entry: dict[str, Any]) -> Nrt | None:
    """Return the entry's object, if it has one."""
    return parse_nrt(entry["nrt"]) if entry["nrt"] else None


def cached_view(entry: dict[str, Any]) -> View:
    """Return the cache's answer, given the entry's reservations and foreign pods."""
    nrt, name = entry_nrt(entry), entry["node"]["metadata"]["name"]
    cache = OverReserve([nrt] if nrt else [], Profiles())
    for pod in entry.get("cache", {}).get("reserved_pods", []):
        cache.reserve(name, parse_pod(pod))
    if entry.get("cache", {}).get("foreign_pods_seen"):
        cache.pod_event(Pod("ns", "foreign", node_name=name))
    return cache.view(name, lambda _: None)
