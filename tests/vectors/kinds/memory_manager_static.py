"""Memory Manager vectors: a history builds a machine, then one pod asks for hints and allocates
container by container.
"""

from __future__ import annotations

from typing import Any

from shared.kubelet.errors import AllocationError
from shared.kubelet.memory_manager import allocate, container_hints, initial, pod_hints, remove_pod
from shared.kubelet.memory_state import MemoryConfig, MemoryState
from tests.vectors.registry import has_keys
from tests.vectors.shapes import (
    block_list,
    differ,
    hint_map,
    hint_of,
    machine_json,
    memory_nodes,
    pod_of,
)

KIND = "memory_manager_static"


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "numa_nodes", "history", "machine_state_before", "pod")


def check(case: dict[str, Any]) -> list[str]:
    state = initial(MemoryConfig("Static", memory_nodes(case["numa_nodes"])))
    differences: list[str] = []
    for op in case["history"]:
        state = _past(state, op, differences)
    differences += differ(
        "machine state before", machine_json(state.nodes), case["machine_state_before"]
    )
    expect = case["expect"]
    pod = pod_of(case["pod"], case["qos"])
    differences += differ("pod hints", hint_map(pod_hints(state, pod)), expect["pod_hints"])
    for step in expect["steps"]:
        state = _step(state, pod, step, differences)
    differences += differ(
        "machine state after", machine_json(state.nodes), expect["machine_state_after"]
    )
    gone = remove_pod(state, pod.uid)
    return differences + differ(
        "after removal", machine_json(gone.nodes), expect["machine_state_after_removal"]
    )


def _past(state: MemoryState, op: dict[str, Any], differences: list[str]) -> MemoryState:
    if op["op"] == "remove":
        return remove_pod(state, op["uid"])
    pod = pod_of({"uid": op["uid"], "containers": [op["container"]]}, "Guaranteed")
    allocated = allocate(state, pod, pod.containers[0], hint_of(op["affinity"]))
    if isinstance(allocated, AllocationError):
        differences += differ("history error", _error(allocated), op["error"])
        return state
    blocks = allocated.entries[pod.uid][pod.containers[0].name]
    differences += differ("history blocks", (block_list(blocks), None), (op["blocks"], op["error"]))
    return allocated


def _step(
    state: MemoryState, pod: Any, step: dict[str, Any], differences: list[str]
) -> MemoryState:
    container = next(
        container for container in pod.containers if container.name == step["container"]
    )
    differences += differ(
        f"hints of {container.name}",
        hint_map(container_hints(state, pod, container)),
        step["hints"],
    )
    allocated = allocate(state, pod, container, hint_of(step["affinity"]))
    if isinstance(allocated, AllocationError):
        differences += differ(f"error of {container.name}", _error(allocated), step["error"])
        return state
    block_lists = {
        name: block_list(blocks) for name, blocks in allocated.entries.get(pod.uid, {}).items()
    }
    differences += differ(
        f"after {container.name}", (block_lists, None), (step["blocks_after"], step["error"])
    )
    return allocated


def _error(error: AllocationError) -> dict[str, str]:
    inner = error.message.removeprefix("Allocate failed due to ").removesuffix(
        ", which is unexpected"
    )
    return {"error": inner, "message": error.message, "reason": error.reason}
