"""Device Manager vectors: hints in both scopes, the split by affinity, and the outcome of one
allocation. If the recorded devices are null, the real kubelet picked at random; then the size of
each group is still checked.
"""

from __future__ import annotations

from typing import Any

from shared.domain.pod import Container, ContainerKind, Pod
from shared.kubelet.device_manager import allocate, container_hints, pod_hints, split_by_affinity
from shared.kubelet.device_state import Device, DeviceState, hold, register
from shared.kubelet.errors import AllocationError
from shared.kubelet.masks import mask_of
from tests.vectors.registry import has_keys
from tests.vectors.shapes import differ, hint_list, hint_of

KIND = "device_manager"
RESOURCE = "example.com/dev"
_GROUPS = ("aligned", "unaligned", "no_affinity")


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "devices", "allocated_to_init_container", "allocated_to_other_pod")


def check(case: dict[str, Any]) -> list[str]:
    state, pod = _setting(case)
    app = pod.containers[-1]
    expect = case["expect"]
    hints = container_hints(state, pod, app) or {}
    differences = differ("hints present", RESOURCE in hints, expect["hints_present"])
    differences += differ("hints", hint_list(hints.get(RESOURCE)), expect["hints"])
    differences += differ(
        "pod hints", hint_list((pod_hints(state, pod) or {}).get(RESOURCE)), expect["pod_hints"]
    )
    mask = hint_of(case["affinity"]).mask
    split = dict(
        zip(
            _GROUPS,
            split_by_affinity(state, RESOURCE, state.available(RESOURCE), mask),
            strict=True,
        )
    )
    differences += differ(
        "split", {name: sorted(group) for name, group in split.items()}, expect["filter"]
    )
    return differences + _allocation(case, state, pod, split)


def _setting(case: dict[str, Any]) -> tuple[DeviceState, Pod]:
    devices = {
        device["id"]: Device(
            None if device["numa"] is None else mask_of(device["numa"]), device["healthy"]
        )
        for device in case["devices"]
    }
    state = register(DeviceState(tuple(case["numa_nodes"])), RESOURCE, devices)
    limits = {RESOURCE: case["request"]}
    containers = [Container("c", "app", limits, limits)]
    if case["allocated_to_other_pod"]:
        state = hold(state, "other", "c", RESOURCE, case["allocated_to_other_pod"])
    ours = case["allocated_to_init_container"]
    if ours:
        given = {RESOURCE: len(ours)}
        kind: ContainerKind = "sidecar" if case["init_container_restartable"] else "init"
        containers.insert(0, Container("i", kind, given, given))
        state = hold(state, "pod", "i", RESOURCE, ours)
    pod = Pod(uid="pod", namespace="default", name="pod", containers=tuple(containers))
    if ours:  # already allocated: this only tells the manager what later containers may reuse
        allocated = allocate(state, pod, containers[0], hint_of(case["affinity"]), running=True)
        assert isinstance(allocated, DeviceState)
        return allocated, pod
    return state, pod


def _allocation(
    case: dict[str, Any], state: DeviceState, pod: Pod, split: dict[str, frozenset[str]]
) -> list[str]:
    recorded = case["expect"]["allocate"]
    prefer = _prefer_lowest if case["plugin_preferred_allocation"] else None
    allocated = allocate(state, pod, pod.containers[-1], hint_of(case["affinity"]), prefer=prefer)
    if isinstance(allocated, AllocationError):
        inner = allocated.message.removeprefix("Allocate failed due to ").removesuffix(
            ", which is unexpected"
        )
        ours = {"error": inner, "message": allocated.message, "reason": allocated.reason}
        return differ("error", ours, recorded["error"])
    got = allocated.held.get("pod", {}).get("c", {}).get(RESOURCE, frozenset())
    reusable = state.reusable("pod", RESOURCE)
    counts = {name: len(got & group) for name, group in split.items()} | {
        "reusable": len(got & reusable)
    }
    differences = differ("counts", counts, recorded["counts"]) + differ(
        "error", None, recorded["error"]
    )
    if recorded["devices"] is not None:
        differences += differ("devices", sorted(got), recorded["devices"])
    return differences


def _prefer_lowest(
    resource: str, available: frozenset[str], must: frozenset[str], size: int
) -> list[str]:
    """The plugin of the recordings: what must be included, then the lowest ids."""
    return [*sorted(must), *sorted(available - must)][:size]
