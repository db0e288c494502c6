"""Vectors of the static CPU policy: reserved set, hints, what a request takes, and what an
allocation leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.domain.pod import Container, Pod
from shared.kubelet.cpu_manager import CpuManager, CpuState, allocate, configure, hints, take
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.kubelet.errors import AllocationError
from shared.kubelet.hint import Hint
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import Cpu, CpuTopology, cpu_topology

KIND = "cpu_manager_static"


def recognises(doc: dict[str, Any]) -> bool:
    return {"machine", "options", "reserved_count", "kind"} <= set(
        next(iter(doc["cases"]), {})
    ) and "machines" in doc


def cases(doc: dict[str, Any]) -> Iterator[dict[str, Any]]:
    topologies = {name: topology_of(machine) for name, machine in doc["machines"].items()}
    for case in doc["cases"]:
        yield {**case, "topology": topologies[case["machine"]]}


def topology_of(machine: dict[str, Any]) -> CpuTopology:
    return cpu_topology(Cpu(*row) for row in machine["cpus"])


def check(case: dict[str, Any]) -> list[str]:
    manager = configured(case, case["topology"], case.get("topology_policy", "none"))
    if isinstance(manager, ConfigError):
        got: dict[str, Any] = {"construct_error": manager.message}
    else:
        got = _observed(manager, case)
    wanted = case["expect"]
    return [
        f"{name}: expected {want}, got {got.get(name)}"
        for name, want in wanted.items()
        if got.get(name) != want
    ]


def configured(
    case: dict[str, Any], topology: CpuTopology, policy: str
) -> CpuManager | ConfigError:
    reserved = parse_cpus(case["reserved_cpus"])
    return configure(
        topology, "static", case["options"], case["reserved_count"], reserved, policy, alpha=True
    )


def _observed(manager: CpuManager, case: dict[str, Any]) -> dict[str, Any]:
    shared, reuse, count = (
        parse_cpus(case["default_cpuset"]),
        parse_cpus(case["reusable"]),
        case["request"],
    )
    available = shared & ~manager.reserved
    offered = hints(manager, available, reuse, count)
    return {
        "reserved": format_cpus(manager.reserved),
        "hints": [
            {"mask": list(nodes_of(hint.mask or 0)), "preferred": hint.preferred}
            for hint in offered
        ],
        "take": _taken(take(manager, available | reuse, count)),
        "allocate": _allocated(manager, case, shared, reuse),
    }


def _taken(taken: int | str) -> dict[str, Any]:
    if isinstance(taken, str):
        return {"cpus": None, "error": taken}
    return {"cpus": format_cpus(taken), "error": None}


def _allocated(
    manager: CpuManager, case: dict[str, Any], shared: int, reuse: int
) -> dict[str, Any]:
    container = Container("c", requests={"cpu": case["request"] * 1000})
    pod = Pod("uid", "default", "p", "Guaranteed", (container,))
    affinity = case["affinity"]
    hint = Hint(
        None if affinity["mask"] is None else mask_of(affinity["mask"]), affinity["preferred"]
    )
    allocated = allocate(manager, CpuState(shared, {}, "uid", reuse), pod, container, hint)
    if isinstance(allocated, AllocationError):
        inner = allocated.message.removeprefix("Allocate failed due to ").removesuffix(
            ", which is unexpected"
        )
        return {
            "cpus": None,
            "error": {"error": inner, "message": allocated.message, "reason": allocated.reason},
        }
    return {
        "cpus": format_cpus(allocated.of("uid", "c")),
        "default_cpuset_after": format_cpus(allocated.shared),
        "error": None,
    }
