"""Vectors of the NodeResourceTopologyMatch Filter: one pod against one node.

For a case in which the original panics the answer must be this project's stated one: the zone with
id 64 does not count.
"""

from __future__ import annotations

from typing import Any

from plugins.upstream_compat.filter import Verdict, filter_node
from plugins.upstream_compat.node import named_resources
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import parse_pod, qos_class
from tests.vectors.nrt_node import cached_view, entry_nrt
from tests.vectors.registry import has_keys

KIND = "nrt_filter"


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "pod", "node", "nrt", "derived", "expect")


def check(case: dict[str, Any]) -> list[str]:
    pod, nrt = parse_pod(case["pod"]), entry_nrt(case)
    verdict = filter_node(pod, named_resources(case["node"]), cached_view(case))
    if "panic" in case["expect"]:
        return _check_stated(case, verdict)
    got = {
        "qos": qos_class(pod),
        "code": int(verdict.code),
        "message": verdict.message,
        "reasons": list(verdict.reasons),
        "node_marked_maybe_overreserved": verdict.marks,
        **_manager(nrt),
    }
    want = {**case["derived"], **case["expect"]}
    return [
        f"{name}: expected {want.get(name)!r}, got {each!r}"
        for name, each in got.items()
        if each != _or_none(want, name)
    ]


def _or_none(want: dict[str, Any], name: str) -> Any:
    return [] if name == "reasons" and want.get(name) is None else want.get(name)


def _manager(nrt: Nrt | None) -> dict[str, Any]:
    if nrt is None:
        return {}
    manager = nrt.manager
    settings = {
        "max_numa_nodes": manager.max_numa_nodes,
        "policy": manager.policy,
        "scope": manager.scope,
    }
    return {"topology_manager": settings}


def _check_stated(case: dict[str, Any], verdict: Verdict) -> list[str]:
    zones = [zone for zone in case["nrt"]["zones"] if zone["name"] != "node-64"]
    without = filter_node(
        parse_pod(case["pod"]),
        named_resources(case["node"]),
        cached_view({**case, "nrt": {**case["nrt"], "zones": zones}}),
    )
    return (
        [] if verdict == without else [f"zone 64 must not count: expected {without}, got {verdict}"]
    )
