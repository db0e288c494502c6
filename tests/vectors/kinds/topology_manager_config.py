"""Vectors of the Topology Manager's construction: policy, scope and options against the machine, or
the error text.
"""

from __future__ import annotations

from typing import Any

from shared.kubelet.options import ConfigError
from shared.kubelet.topology_manager import configure

KIND = "topology_manager_config"


def recognises(doc: dict[str, Any]) -> bool:
    return {"distances_known", "numa_node_count", "policy", "scope"} <= set(
        next(iter(doc["cases"]), {})
    )


def check(case: dict[str, Any]) -> list[str]:
    count = case["numa_node_count"]
    distances = {node: [10] * count for node in range(count)} if case["distances_known"] else None
    made = configure(case["policy"], case["scope"], case["options"], range(count), distances)
    if isinstance(made, ConfigError):
        got: dict[str, Any] = {"ok": False, "error": made.message}
    else:
        got = {"ok": True, "policy_name": made.policy, "scope_name": made.scope}
    return [] if got == case["expect"] else [f"expected {case['expect']}, got {got}"]
