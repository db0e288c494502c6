"""Vectors of the static CPU policy's construction: option conflicts, machine limits, and the
reserved set.
"""

from __future__ import annotations

from typing import Any

from shared.kubelet.cpuset import format_cpus
from shared.kubelet.options import ConfigError
from tests.vectors.kinds.cpu_manager_static import configured, topology_of

KIND = "cpu_manager_config"


def recognises(doc: dict[str, Any]) -> bool:
    return {"machine_name", "topology_manager_policy", "reserved_count"} <= set(
        next(iter(doc["cases"]), {})
    )


def check(case: dict[str, Any]) -> list[str]:
    made = configured(case, topology_of(case["machine"]), case["topology_manager_policy"])
    if isinstance(made, ConfigError):
        got: dict[str, Any] = {"ok": False, "error": made.message}
    else:
        got = {"ok": True, "reserved": format_cpus(made.reserved)}
    return [] if got == case["expect"] else [f"expected {case['expect']}, got {got}"]
