"""The choice of devices under a mask of zones: all types of a pod together.

1. Candidates are in the mask (or near to every zone), and have the labels of the selector.

2. In a joint allocation the first type is chosen freely. The others come from its PCIe switches,
   one from each switch first, as far as possible; with the scope SamePCIe from the same switches
   or not at all. GPUs as a later type do not look at the switches.

Source: Koordinator a7a1b76b, plugins/deviceshare/device_allocator.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, DeviceType
from shared.owned import gpu_choice
from shared.owned.device_request import CARDS, GPU_MEMORY, GPU_RATIO
from shared.owned.device_scores import device_score
from shared.owned.devices import (
    ANY_ZONE,
    APPLY_FOR_ALL,
    DEVICE_LEVEL,
    GPU,
    PCIE_LEVEL,
    REQUESTS_AS_COUNT,
    Device,
    DeviceRequest,
    FreeDevices,
    fits,
    matches,
)


class DevicesError(Exception):
    """The reason why the devices cannot be given."""


class DeviceNeeds(msgspec.Struct, frozen=True):
    """How many devices of each type a pod gets on a node, and how much of each."""

    per_card: Mapping[DeviceType, Amounts]
    count: Mapping[DeviceType, int]


def needs_of(free: FreeDevices, request: DeviceRequest) -> DeviceNeeds:
    """Return what the pod needs on this node. Raises DevicesError if no state of it can give it."""
    if request.problem:
        raise DevicesError(request.problem)
    per_card: dict[DeviceType, Amounts] = {}
    count: dict[DeviceType, int] = {}
    for kind, amounts in request.amounts.items():
        devices = free.devices.get(kind, {}).values()
        if not devices:
            raise DevicesError(f"Insufficient {kind} devices")
        per_card[kind], count[kind] = (
            (request.gpu.per_card, request.gpu.count)
            if kind == GPU
            else _cards(kind, amounts[CARDS[kind]], request, list(devices))
        )
    for kind in per_card:
        wants_function = request.hint(kind).function_selector is not None
        if wants_function and not any(d.functions for d in free.devices[kind].values()):
            raise DevicesError(f"Insufficient {kind} VirtualFunctions")
    return DeviceNeeds(per_card, count)


def _cards(
    kind: DeviceType, percent: int, request: DeviceRequest, devices: Sequence[Device]
) -> tuple[Amounts, int]:
    """Return the amount of each card and the number of cards."""
    name, hint = CARDS[kind], request.hint(kind)
    if percent > 100:
        return {name: 100}, percent // 100
    if hint.strategy == APPLY_FOR_ALL:
        count = sum(matches(hint.selector, device.labels) for device in devices)
        if not count:
            raise DevicesError(f"Insufficient {kind} devices")
        return {name: percent}, count
    if hint.strategy == REQUESTS_AS_COUNT:
        return {name: 100 if hint.exclusive == DEVICE_LEVEL else 1}, percent
    return {name: percent}, 1


def choose_devices(
    free: FreeDevices,
    request: DeviceRequest,
    mask: int | None,
    is_scored: bool,
    needs: DeviceNeeds | None = None,
) -> tuple[DeviceHolding, ...]:
    """Return the devices under the mask (None: of all zones). Raises DevicesError.

    `is_scored` orders devices by score before their number, as the reservation does; hints do not.
    """
    needs = needs or needs_of(free, request)
    candidates = _candidates(free, request, mask)
    chosen: dict[DeviceType, list[DeviceHolding]] = {}
    joint = request.joint if len(needs.per_card) > 1 else ()
    switches: frozenset[str] = frozenset()
    for kind in joint:
        count = needs.count[kind]
        if chosen and request.same_pcie:
            count = max(count, len(switches))
        most = max(count, len(switches))
        chosen[kind] = _of_type(
            candidates, request, kind, needs.per_card[kind], (count, most), switches, is_scored
        )
        if len(chosen) == 1:
            switches = _switches(free, chosen[kind])
        elif request.same_pcie and _switches(free, chosen[kind]) != switches:
            raise DevicesError("node(s) Device Joint-Allocate rules violation")
    for kind, per_card in needs.per_card.items():
        if kind not in chosen:
            count = max(needs.count[kind], 1)
            chosen[kind] = _of_type(
                candidates, request, kind, per_card, (count, count), frozenset(), is_scored
            )
    return tuple(holding for kind in request.amounts for holding in chosen[kind])


def _candidates(free: FreeDevices, request: DeviceRequest, mask: int | None) -> FreeDevices:
    hints = request.hints.values()
    if mask is None and not any(h.selector or h.exclusive == PCIE_LEVEL for h in hints):
        return free
    amounts: dict[DeviceType, dict[int, Amounts]] = {}
    for kind in request.amounts:
        hint = request.hint(kind)
        amounts[kind] = {
            minor: size
            for minor, size in free.amounts.get(kind, {}).items()
            if _is_in(free.devices[kind][minor], mask, free.every)
            and matches(hint.selector, free.devices[kind][minor].labels)
            and (hint.exclusive != PCIE_LEVEL or _is_alone(free, kind, minor))
        }
    return msgspec.structs.replace(free, amounts=amounts)


def _is_in(device: Device, mask: int | None, every: int) -> bool:
    if mask is None or device.zone == ANY_ZONE or mask == every:
        return True
    return device.zone is not None and bool(mask >> device.zone & 1)


def _is_alone(free: FreeDevices, kind: DeviceType, minor: int) -> bool:
    """Return whether nothing is held of any device of this type on the device's switch."""
    device = free.devices[kind][minor]
    if device.zone is None:
        return False
    return all(
        free.amounts[kind][neighbour] == (other.resources if other.is_healthy else {})
        for neighbour, other in free.devices[kind].items()
        if (other.zone, other.pcie) == (device.zone, device.pcie)
    )


def _switches(free: FreeDevices, holdings: Sequence[DeviceHolding]) -> frozenset[str]:
    devices = (free.devices[holding.type][holding.minor] for holding in holdings)
    return frozenset(device.pcie for device in devices if device.zone is not None)


def _of_type(
    free: FreeDevices,
    request: DeviceRequest,
    kind: DeviceType,
    per_card: Amounts,
    counts: tuple[int, int],
    switches: frozenset[str],
    is_scored: bool,
) -> list[DeviceHolding]:
    """Return at least and at most as many devices as `counts` says."""
    if kind == GPU:
        minors = _gpus(free, request, is_scored)
        if minors is not None:
            return [DeviceHolding(GPU, minor, per_card) for minor in minors]
        switches = frozenset()
    least, most = counts
    holdings: list[DeviceHolding] = []
    for minor in _ordered(free, kind, per_card, switches, is_scored):
        function = _function(free, request, kind, minor)
        if function is not None and len(holdings) < most:
            holdings.append(DeviceHolding(kind, minor, per_card, function))
    if len(holdings) < least:
        raise DevicesError(f"Insufficient {kind} devices")
    return holdings


def _gpus(free: FreeDevices, request: DeviceRequest, is_scored: bool) -> gpu_choice.Minors | None:
    """Return the GPUs by partition or by the tree; None if the node has neither for the request."""
    keeps_partitions = request.partition is not None or free.node.keeps_partitions
    if not request.gpu.is_shared:
        minors = gpu_choice.by_partition(free, request)
        if minors is not None or keeps_partitions:
            if minors is None:
                raise DevicesError("Insufficient Partitioned GPU Devices")
            return minors
    if gpu_choice.has_tree(free, request):
        minors = gpu_choice.by_tree(free, request, is_scored)
        if minors is None:
            raise DevicesError("Insufficient GPU Devices")
        return minors
    if request.hint(GPU).scope:
        raise DevicesError("node(s) missing GPU Device Topology Tree")
    return None


def _ordered(
    free: FreeDevices,
    kind: DeviceType,
    per_card: Amounts,
    switches: frozenset[str],
    is_scored: bool,
) -> list[int]:
    """Return the devices with enough free: in turns over the switches, then the others; each time
    by score, then by number.
    """
    sizes = free.amounts.get(kind, {})
    scores = {
        minor: device_score(free, kind, minor, per_card) if is_scored else 0 for minor in sizes
    }
    order = sorted(sizes, key=lambda minor: (-scores[minor], minor))
    turns: dict[str, int] = {}
    turn_of: dict[int, int] = {}
    for minor in order:
        device = free.devices[kind][minor]
        if device.zone is not None and device.pcie in switches:
            turn_of[minor] = turns[device.pcie] = turns.get(device.pcie, -1) + 1
    fitting = [minor for minor in order if fits(per_card, sizes[minor])]
    return sorted(fitting, key=lambda minor: turn_of.get(minor, len(order)))


def _function(
    free: FreeDevices, request: DeviceRequest, kind: DeviceType, minor: int
) -> dict[str, int] | None:
    """Return the virtual function to take, {} if the pod asks none; None if all are taken."""
    selector = request.hint(kind).function_selector
    if selector is None:
        return {}
    taken = free.functions.get((kind, minor), frozenset())
    free_ids = [
        (bus_id, number)
        for group in free.devices[kind][minor].functions
        if matches(selector, group.labels)
        for bus_id, number in group.minors.items()
        if bus_id not in taken
    ]
    return dict((min(free_ids),)) if free_ids else None


def completed(device: Device, holding: DeviceHolding) -> DeviceHolding:
    """Return the holding with the card's id, and of a GPU with both memory and memory ratio, the
    one from the other.
    """
    size, resources = device.resources.get(GPU_MEMORY, 0), dict(holding.resources)
    if holding.type == GPU and GPU_RATIO not in resources:
        resources[GPU_RATIO] = resources[GPU_MEMORY] * 100 // size if size else 0
    elif holding.type == GPU and GPU_MEMORY not in resources:
        resources[GPU_MEMORY] = resources[GPU_RATIO] * size // 100
    return msgspec.structs.replace(holding, resources=resources, id=device.id)
