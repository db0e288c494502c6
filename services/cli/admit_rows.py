"""An admission's verdict as table rows and as JSON. Must not know where pods and machines come
from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.domain.pod import Pod
from shared.domain.quantity import format_amount
from shared.kubelet.assignment import Admission, ContainerAssignment
from shared.kubelet.masks import nodes_of
from shared.kubelet.memory_state import Block


def as_verdict(
    pod: Pod, verdict: Admission, aligned: bool = True, not_offered: list[str] | None = None
) -> dict[str, Any]:
    """One pod's verdict; CPUs as Linux lists ("" is the shared pool), memory in bytes, zones as
    ids. `aligned` is false under policy none; `not_offered` names extended resources that no device
    plugin of the machine offers."""
    shown: dict[str, Any] = {
        "pod": pod.key,
        "qos": pod.qos,
        "admitted": verdict.admitted,
        "aligned": aligned,
    }
    if not_offered:
        shown["not_offered"] = not_offered
    if not verdict.admitted:
        return {**shown, "reason": verdict.reason, "message": verdict.message}
    return {**shown, "containers": [_container(each) for each in verdict.containers]}


def _container(got: ContainerAssignment) -> dict[str, Any]:
    zones = None if got.hint.mask is None else list(nodes_of(got.hint.mask))
    return {
        "name": got.name,
        "hint": {"zones": zones, "preferred": got.hint.preferred},
        "cpus": got.cpu_list,
        "memory": [_block(block) for block in got.memory],
        "devices": {resource: list(ids) for resource, ids in got.devices.items()},
    }


def _block(block: Block) -> dict[str, Any]:
    return {"resource": block.resource, "bytes": block.size, "zones": list(nodes_of(block.mask))}


def as_rows(pod: Pod, verdict: Admission, aligned: bool = True) -> Iterator[tuple[str, ...]]:
    """A row for each container, or one row for a refusal."""
    if not verdict.admitted:
        yield pod.key, "rejected", "", "", "", "", ""
        return
    first = (pod.key, "admitted")
    for got in verdict.containers:
        yield (
            *first,
            got.name,
            _zones(got) if aligned else "not aligned",
            got.cpu_list or "shared",
            _memory(got),
            _devices(got),
        )
        first = ("", "")


def _zones(got: ContainerAssignment) -> str:
    if got.hint.mask is None:
        return "any"
    text = ",".join(map(str, nodes_of(got.hint.mask)))
    return text if got.hint.preferred else f"{text} (not preferred)"


def _memory(got: ContainerAssignment) -> str:
    return ", ".join(
        f"{format_amount(block.resource, block.size)} {block.resource} on {','.join(map(str, nodes_of(block.mask)))}"
        for block in got.memory
    )


def _devices(got: ContainerAssignment) -> str:
    return ", ".join(f"{resource}: {' '.join(ids)}" for resource, ids in got.devices.items())
