"""Vectors of the NodeResourceTopologyMatch Score: one pod and one strategy on one to four nodes. If
the original panics or leaves 0..100, any score within 0..100 is accepted; `tests/scheduler` checks
the exact one.
"""

from __future__ import annotations

from typing import Any

from plugins.upstream_compat.pod import parse_pod, qos_class
from plugins.upstream_compat.score import score_node
from tests.vectors.nrt_node import cached_view
from tests.vectors.registry import has_keys

KIND = "nrt_score"


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "pod", "nodes", "strategy", "resource_weights")


def check(case: dict[str, Any]) -> list[str]:
    pod = parse_pod(case["pod"])
    weights = {each["name"]: each["weight"] for each in case["resource_weights"] or []}
    problems = (
        []
        if qos_class(pod) == case["derived"]["qos"]
        else [f"qos: expected {case['derived']['qos']}"]
    )
    for entry in case["nodes"]:
        view = cached_view(entry)
        name = entry["node"]["metadata"]["name"]
        problems += _compare(
            name, case["expect"][name], score_node(pod, view, case["strategy"], weights)
        )
    return problems


def _compare(name: str, expected: dict[str, Any], got: int) -> list[str]:
    if not 0 <= got <= 100:
        return [f"{name}: {got} is no score"]
    if "panic" in expected or not 0 <= expected["score"] <= 100:
        return []
    return [] if got == expected["score"] else [f"{name}: expected {expected['score']}, got {got}"]
