"""Vectors of the NodeResourceTopologyMatch Filter: one pod against one node.

For a case in which the original panics the answer must be this project's stated one: the zone with id 64 does not count.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.compat.cache import View
from services.scheduler.compat.filter import Verdict, filter_node
from services.scheduler.compat.foreign import Profiles
from services.scheduler.compat.node import named_resources
from services.scheduler.compat.nrt import Nrt, parse_nrt
from services.scheduler.compat.overreserve import OverReserve
from services.scheduler.compat.pod import parse_pod, qos_class

KIND = "nrt_filter"


def recognises(doc: dict[str, Any]) -> bool:
    return {"pod", "node", "nrt", "derived", "expect"} <= set(next(iter(doc["cases"]), {}))


def check(case: dict[str, Any]) -> list[str]:
    pod, nrt = parse_pod(case["pod"]), parse_nrt(case["nrt"]) if case["nrt"] else None
    verdict = filter_node(pod, named_resources(case["node"]), _view(case, nrt))
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
    return [f"{name}: expected {want.get(name)!r}, got {each!r}" for name, each in got.items() if each != _or_none(want, name)]


def _or_none(want: dict[str, Any], name: str) -> Any:
    return [] if name == "reasons" and want.get(name) is None else want.get(name)


def _view(case: dict[str, Any], nrt: Nrt | None) -> View:
    name = case["node"]["metadata"]["name"]
    cache = OverReserve([nrt] if nrt else [], Profiles())
    for each in case.get("cache", {}).get("reserved_pods", []):
        cache.reserve(name, parse_pod(each))
    if case.get("cache", {}).get("foreign_pods_seen"):
        cache.foreign[name] += 1
    return cache.view(name, lambda _: None)


def _manager(nrt: Nrt | None) -> dict[str, Any]:
    if nrt is None:
        return {}
    manager = nrt.manager
    settings = {"max_numa_nodes": manager.max_numa_nodes, "policy": manager.policy, "scope": manager.scope}
    return {"topology_manager": settings}


def _check_stated(case: dict[str, Any], verdict: Verdict) -> list[str]:
    zones = [zone for zone in case["nrt"]["zones"] if zone["name"] != "node-64"]
    without = filter_node(
        parse_pod(case["pod"]),
        named_resources(case["node"]),
        _view(case, parse_nrt({**case["nrt"], "zones": zones})),
    )
    return [] if verdict == without else [f"zone 64 must not count: expected {without}, got {verdict}"]
