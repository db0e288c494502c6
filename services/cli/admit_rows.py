"""A kubelet's admission as table rows and as JSON. Must not know files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.domain.pod import Pod
from shared.domain.quantity import format_amount
from shared.kubelet.assignment import Admission, ContainerAssignment
from shared.kubelet.masks import nodes_of
from shared.kubelet.memory_state import Block


def as_object(
    pod: Pod, admission: Admission, aligned: bool = True, not_offered: list[str] | None = None
) -> dict[str, Any]:
    """Return one pod's admission as JSON. CPUs are Linux lists ("" is the shared pool), memory is
    in bytes, zones are ids. `aligned` is False under policy none; `not_offered` names extended
    resources that no device plugin of the machine offers."""
    result: dict[str, Any] = {
        "pod": pod.key,
        "qos": pod.qos,
        "admitted": admission.admitted,
        "aligned": aligned,
    }
    if not_offered:
        result["not_offered"] = not_offered
    if not admission.admitted:
        return {**result, "reason": admission.reason, "message": admission.message}
    return {**result, "containers": [_container(container) for container in admission.containers]}


def _container(assignment: ContainerAssignment) -> dict[str, Any]:
    mask = assignment.hint.mask
    zones = None if mask is None else list(nodes_of(mask))
    return {
        "name": assignment.name,
        "hint": {"zones": zones, "preferred": assignment.hint.preferred},
        "cpus": assignment.cpu_list,
        "memory": [_block(block) for block in assignment.memory],
        "devices": {resource: list(ids) for resource, ids in assignment.devices.items()},
    }


def _block(block: Block) -> dict[str, Any]:
    return {"resource": block.resource, "bytes": block.size, "zones": list(nodes_of(block.mask))}


def as_rows(pod: Pod, admission: Admission, aligned: bool = True) -> Iterator[tuple[str, ...]]:
    """Yield a row per container, or one row for a rejected pod."""
    if not admission.admitted:
        yield pod.key, "rejected", "", "", "", "", ""
        return
    first_cells = (pod.key, "admitted")
    for assignment in admission.containers:
        yield (
            *first_cells,
            assignment.name,
            _zones(assignment) if aligned else "not aligned",
            assignment.cpu_list or "shared",
            ", ".join(map(_block_text, assignment.memory)),
            ", ".join(f"{name}: {' '.join(ids)}" for name, ids in assignment.devices.items()),
        )
        first_cells = ("", "")


def _zones(assignment: ContainerAssignment) -> str:
    if assignment.hint.mask is None:
        return "any"
    text = ",".join(map(str, nodes_of(assignment.hint.mask)))
    return text if assignment.hint.preferred else f"{text} (not preferred)"


def _block_text(block: Block) -> str:
    zones = ",".join(map(str, nodes_of(block.mask)))
    return f"{format_amount(block.resource, block.size)} {block.resource} on {zones}"
