"""A pod's request for devices, checked and in the units of cards.

1. `nvidia.com/gpu: 2` and the like are 2 whole cards: 200 % of gpu-core and of gpu-memory-ratio.
   `koordinator.sh/gpu: 50` is half a card. Above 100 a percentage must be a multiple of 100.

2. `gpu.shared: k` spreads the other amounts over k cards. Otherwise the number of cards is that of
   the memory ratio, and 1 for bytes.

3. Three annotations say which cards the pod gets. A value that cannot be kept raises PodSpecError.

Source: Koordinator a7a1b76b, plugins/deviceshare (utils.go, devicehandler_gpu.go) and
apis/extension/device_share.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import msgspec

from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceType
from shared.owned.devices import (
    APPLY_FOR_ALL,
    GPU,
    GPU_PERCENT,
    GPU_SHARED,
    DeviceHint,
    DeviceRequest,
    GpuNeeds,
    Labels,
    PartitionSpec,
    Scope,
)
from shared.owned.request import PodSpecError, decoded

PREFIX = "koordinator.sh/"
GPU_CORE, GPU_RATIO, GPU_MEMORY = (
    f"{PREFIX}gpu-core",
    f"{PREFIX}gpu-memory-ratio",
    f"{PREFIX}gpu-memory",
)
WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
CARDS: Mapping[DeviceType, str] = {"rdma": f"{PREFIX}rdma", "fpga": f"{PREFIX}fpga"}
# Amounts in percent of a card.
PERCENTAGES = frozenset((GPU_CORE, GPU_RATIO, *CARDS.values()))

ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"

_GPU_NAMES = (*WHOLE_GPUS, GPU_PERCENT, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_RATIO)
# The valid combinations of GPU resources; a single name is valid, too.
_COMBINATIONS = (
    {GPU_MEMORY},
    {GPU_RATIO},
    {GPU_CORE, GPU_MEMORY},
    {GPU_CORE, GPU_RATIO},
)


# Resource -> the type of the devices that give it.
TYPES: Mapping[str, DeviceType] = {
    **dict.fromkeys(_GPU_NAMES, GPU),
    **{name: kind for kind, name in CARDS.items()},
}


class DeviceRequestError(PodSpecError):
    """A request for devices that is invalid."""


class _Selector(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A label selector; expressions are not supported."""

    match_labels: dict[str, str] | None = None


class _Hint(msgspec.Struct, rename="camel"):
    selector: _Selector | None = None
    vf_selector: _Selector | None = None
    allocate_strategy: Literal["", "ApplyForAll", "RequestsAsCount"] = ""
    required_topology_scope: Scope = ""
    exclusive_policy: Literal["", "DeviceLevel", "PCIeLevel"] = ""


class _Hints(msgspec.Struct):
    gpu: _Hint | None = None
    rdma: _Hint | None = None
    fpga: _Hint | None = None


class _Joint(msgspec.Struct, rename="camel"):
    device_types: list[str] | None = None
    required_scope: Literal["", "SamePCIe"] = ""


class _Partition(msgspec.Struct, rename="camel"):
    allocate_policy: Literal["", "Restricted", "BestEffort"] = ""
    ring_bus_bandwidth: str | int | None = None


def device_request(requests: Amounts, annotations: Mapping[str, str]) -> DeviceRequest | None:
    """Return the request of a pod, None if it asks for no device. Raises PodSpecError."""
    amounts = device_amounts(requests)
    if not amounts:
        return None
    read = decoded(annotations, ALLOCATE_HINT, _Hints)
    hints: dict[DeviceType, DeviceHint] = {
        kind: _hint_of(hint)
        for kind in get_args(DeviceType)
        if (hint := getattr(read, kind)) is not None
    }
    joint = decoded(annotations, JOINT_ALLOCATE, _Joint)
    spec = decoded(annotations, PARTITION_SPEC, _Partition)
    return DeviceRequest(
        amounts,
        gpu_needs(amounts.get(GPU, {})),
        hints,
        tuple(
            kind
            for name in joint.device_types or ()
            for kind in amounts
            if kind == name and not (kind in hints and hints[kind].strategy == APPLY_FOR_ALL)
        ),
        joint.required_scope == "SamePCIe",
        _partition_of(spec) if annotations.get(PARTITION_SPEC) else None,
    )


def of_types(request: DeviceRequest | None, types: Collection[str]) -> DeviceRequest | None:
    """Return the part of a request that is of these types of devices, None for nothing."""
    if request is None or request.amounts.keys() <= set(types):
        return request
    amounts = {kind: part for kind, part in request.amounts.items() if kind in types}
    if not amounts:
        return None
    joint = tuple(kind for kind in request.joint if kind in types)
    gpu = request.gpu if GPU in amounts else GpuNeeds()
    return msgspec.structs.replace(request, amounts=amounts, gpu=gpu, joint=joint)


def held_somewhere(request: Amounts, types: Collection[str]) -> dict[DeviceType, Amounts]:
    """Return what a pod takes of each card that it may have, by type; of invalid requests all."""
    kinds = {TYPES[name] for name in request.keys() & TYPES.keys() if request[name] > 0}
    try:
        amounts = device_amounts(request)
    except DeviceRequestError:
        return {kind: {} for kind in kinds}
    parts = {}
    for kind in kinds & set(types):
        parts[kind] = gpu_needs(amounts[kind]).per_card if kind == GPU else amounts[kind]
    return parts


def _hint_of(hint: _Hint) -> DeviceHint:
    return DeviceHint(
        _labels(hint.selector),
        _labels(hint.vf_selector),
        hint.allocate_strategy,
        hint.required_topology_scope,
        hint.exclusive_policy,
    )


def _labels(selector: _Selector | None) -> Labels | None:
    return None if selector is None else selector.match_labels or {}


def _partition_of(spec: _Partition) -> PartitionSpec:
    return PartitionSpec(spec.allocate_policy == "Restricted", bandwidth(spec.ring_bus_bandwidth))


def bandwidth(value: Any) -> int:
    """Return a bandwidth in bytes, 0 for none. Raises PodSpecError."""
    try:
        return amount("ringBusBandwidth", value) if value else 0
    except QuantityError as error:
        raise PodSpecError(f"ringBusBandwidth: {error}") from error


def device_amounts(requests: Amounts) -> dict[DeviceType, Amounts]:
    """Return the requests for devices by type. Raises DeviceRequestError."""
    amounts: dict[DeviceType, Amounts] = {}
    gpu = {name: requests[name] for name in _GPU_NAMES if requests.get(name)}
    if gpu:
        amounts[GPU] = _gpu_amounts(gpu)
    for kind, name in CARDS.items():
        if requests.get(name):
            _check_percentage(name, requests[name])
            amounts[kind] = {name: requests[name]}
    return amounts


def _gpu_amounts(gpu: Amounts) -> Amounts:
    names = set(gpu)
    if len(names) == 1 and names <= {*WHOLE_GPUS, GPU_PERCENT}:
        (name, number), *_ = gpu.items()
        percent = number if name == GPU_PERCENT else 100 * number
        _check_percentage(name, percent)
        return {GPU_CORE: percent, GPU_RATIO: percent}
    shared = gpu.get(GPU_SHARED, 0)
    if names - {GPU_SHARED} not in _COMBINATIONS:
        raise DeviceRequestError(f"invalid resource device requests: {sorted(names)}")
    for name in (GPU_CORE, GPU_RATIO):
        number = gpu.get(name, 0)
        if not shared:
            _check_percentage(name, number)
        elif number % shared or number // shared > 100:
            raise DeviceRequestError(f"invalid resource device requests: {sorted(names)}")
    return gpu


def _check_percentage(name: str, number: int) -> None:
    if number > 100 and number % 100:
        raise DeviceRequestError(f"invalid resource unit {name}: {number}")


def gpu_needs(amounts: Amounts) -> GpuNeeds:
    """Return the number of GPUs and the amounts of each."""
    if not amounts:
        return GpuNeeds()
    ratio = amounts.get(GPU_RATIO, 0)
    count = amounts.get(GPU_SHARED, 0) or (ratio // 100 if ratio > 100 else 1)
    counted = (GPU_CORE, GPU_RATIO if ratio else GPU_MEMORY)
    per_card = {name: amounts[name] // count for name in counted if name in amounts}
    is_shared = per_card[GPU_RATIO] < 100 if ratio else True
    return GpuNeeds(count, per_card, is_shared)
