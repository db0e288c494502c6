"""A pod's request for devices, checked and in the units of cards.

1. `nvidia.com/gpu: 2` and the like are 2 whole cards: 200 % of gpu-core and of gpu-memory-ratio.
   `koordinator.sh/gpu: 50` is half a card. Above 100 a percentage must be a multiple of 100.

2. `gpu.shared: k` spreads the other amounts over k cards. Otherwise the number of cards is that of
   the memory ratio, and 1 for bytes.

Source: Koordinator a7a1b76b, plugins/deviceshare (utils.go, devicehandler_gpu.go). No service
requests cards yet (see `devices`).
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.domain.resources import Amounts
from shared.owned.devices import GPU, GpuNeeds
from shared.owned.values import DeviceType

PREFIX = "koordinator.sh/"
GPU_PERCENT, GPU_SHARED = f"{PREFIX}gpu", f"{PREFIX}gpu.shared"
GPU_CORE, GPU_RATIO, GPU_MEMORY = (
    f"{PREFIX}gpu-core",
    f"{PREFIX}gpu-memory-ratio",
    f"{PREFIX}gpu-memory",
)
WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
CARDS: Mapping[DeviceType, str] = {"rdma": f"{PREFIX}rdma", "fpga": f"{PREFIX}fpga"}

_GPU_NAMES = (*WHOLE_GPUS, GPU_PERCENT, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_RATIO)
# The valid combinations of GPU resources; a single name is valid, too.
_COMBINATIONS = (
    {GPU_MEMORY},
    {GPU_RATIO},
    {GPU_CORE, GPU_MEMORY},
    {GPU_CORE, GPU_RATIO},
)


class DeviceRequestError(ValueError):
    """A request for devices that is invalid."""


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
