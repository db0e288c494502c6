"""The choice of devices under a mask of zones: all types of a pod together.

1. Candidates are in the mask (or near to every zone), and have the labels of the selector.

2. In a joint allocation the first type is chosen freely. The others come from its PCIe switches,
   one from each switch first, as far as possible; with the scope SamePCIe from the same switches
   or not at all. GPUs as a later type do not look at the switches.

Source: Koordinator a7a1b76b, plugins/deviceshare/device_allocator.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, DeviceType
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned import gpu_choice
from shared.owned.device_request import CARDS, GPU_MEMORY, GPU_RATIO
from shared.owned.device_scores import device_score
from shared.owned.devices import (
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
    """How many devices of each type a pod gets on a node, and how much of each. `candidates` are
    the devices (minors as bits) that its hint allows, `fitting` those of them with enough free.
    """

    per_card: Mapping[DeviceType, Amounts]
    count: Mapping[DeviceType, int]
    candidates: Mapping[DeviceType, int]
    fitting: Mapping[DeviceType, int]


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
    candidates: dict[DeviceType, int] = {}
    fitting: dict[DeviceType, int] = {}
    for kind, asked in per_card.items():
        hint, cards, sizes = request.hint(kind), free.devices[kind], free.usable(kind)
        if hint.function_selector is not None and not any(d.functions for d in cards.values()):
            raise DevicesError(f"Insufficient {kind} VirtualFunctions")
        allowed = [
            minor
            for minor, card in cards.items()
            if matches(hint.selector, card.labels)
            and (hint.exclusive != PCIE_LEVEL or _is_alone(free, kind, minor))
        ]
        candidates[kind] = mask_of(allowed)
        fitting[kind] = mask_of([minor for minor in allowed if fits(asked, sizes[minor])])
    return DeviceNeeds(per_card, count, candidates, fitting)


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
    search = _Choice(free, request, needs, mask, is_scored)
    chosen: dict[DeviceType, list[DeviceHolding]] = {}
    joint = request.joint if len(needs.per_card) > 1 else ()
    switches: frozenset[str] = frozenset()
    for kind in joint:
        count = needs.count[kind]
        if chosen and request.same_pcie:
            count = max(count, len(switches))
        chosen[kind] = search.of_type(kind, count, max(count, len(switches)), switches)
        if len(chosen) == 1:
            switches = _switches(free, chosen[kind])
        elif request.same_pcie and _switches(free, chosen[kind]) != switches:
            raise DevicesError("node(s) Device Joint-Allocate rules violation")
    for kind in needs.per_card:
        if kind not in chosen:
            count = max(needs.count[kind], 1)
            chosen[kind] = search.of_type(kind, count, count, frozenset())
    return tuple([holding for kind in request.amounts for holding in chosen[kind]])


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


class _Choice(NamedTuple):
    """A choice under one mask of zones."""

    free: FreeDevices
    request: DeviceRequest
    needs: DeviceNeeds
    mask: int | None
    is_scored: bool

    def of_type(
        self, kind: DeviceType, least: int, most: int, switches: frozenset[str]
    ) -> list[DeviceHolding]:
        """Return at least and at most so many devices."""
        per_card = self.needs.per_card[kind]
        if kind == GPU:
            minors = self._gpus()
            if minors is not None:
                return [DeviceHolding(GPU, minor, per_card) for minor in minors]
            switches = frozenset()
        holdings: list[DeviceHolding] = []
        for minor in self._ordered(kind, switches):
            function = _function(self.free, self.request, kind, minor)
            if function is not None:
                holdings.append(DeviceHolding(kind, minor, per_card, function))
                if len(holdings) == most:
                    break
        if len(holdings) < least:
            raise DevicesError(f"Insufficient {kind} devices")
        return holdings

    def _gpus(self) -> gpu_choice.Minors | None:
        """Return the GPUs by partition or by the tree; None if the node has neither for the
        request.
        """
        free, request = self.free, self.request
        fitting = self.needs.fitting[GPU] & free.minors_in(GPU, self.mask)
        if not request.gpu.is_shared:
            minors = gpu_choice.by_partition(free, request, fitting)
            if minors is not None:
                return minors
            if keeps_partitions(free, request):
                raise DevicesError("Insufficient Partitioned GPU Devices")
        if gpu_choice.has_tree(free, request):
            minors = gpu_choice.by_tree(free, request, fitting, self.is_scored)
            if minors is None:
                raise DevicesError("Insufficient GPU Devices")
            return minors
        if request.hint(GPU).scope:
            raise DevicesError("node(s) missing GPU Device Topology Tree")
        return None

    def _ordered(self, kind: DeviceType, switches: frozenset[str]) -> list[int]:
        """Return the devices with enough free: in turns over the switches, then the others; each
        time by score, then by number.
        """
        free, in_mask = self.free, self.free.minors_in(kind, self.mask)
        fitting = self.needs.fitting[kind] & in_mask
        order = list(nodes_of(self.needs.candidates[kind] & in_mask if switches else fitting))
        if self.is_scored:
            per_card = self.needs.per_card[kind]
            order.sort(key=lambda minor: -device_score(free, kind, minor, per_card))
        if preferred := free.preferred(kind):
            order.sort(key=lambda minor: not preferred >> minor & 1)
        if not switches:
            return order
        turns: dict[str, int] = {}
        turn_of: dict[int, int] = {}
        for minor in order:
            device = free.devices[kind][minor]
            if device.zone is not None and device.pcie in switches:
                turn_of[minor] = turns[device.pcie] = turns.get(device.pcie, -1) + 1
        fitting_ones = [minor for minor in order if fitting >> minor & 1]
        return sorted(fitting_ones, key=lambda minor: turn_of.get(minor, len(order)))


def keeps_partitions(free: FreeDevices, request: DeviceRequest) -> bool:
    """Return whether whole GPUs are given by the table of partitions or not at all."""
    return request.partition is not None or free.node.keeps_partitions


def is_by_count(free: FreeDevices, request: DeviceRequest) -> bool:
    """Return whether any devices with enough free serve the request, if they are enough."""
    if len(request.joint) > 1 or request.hint(GPU).scope:
        return False
    if GPU in request.amounts and not request.gpu.is_shared and keeps_partitions(free, request):
        return False
    return all(hint.function_selector is None for hint in request.hints.values())


def _function(
    free: FreeDevices, request: DeviceRequest, kind: DeviceType, minor: int
) -> dict[str, int] | None:
    """Return the virtual function to take, {} if the pod asks none; None if all are taken."""
    selector = request.hint(kind).function_selector
    if selector is None:
        return {}
    taken = free.functions.get((kind, minor), frozenset())
    booked = [card.functions for card in free.booked if (card.type, card.minor) == (kind, minor)]
    free_ids = [
        (bus_id, number)
        for group in free.devices[kind][minor].functions
        if matches(selector, group.labels)
        for bus_id, number in group.minors.items()
        if bus_id not in taken
    ]
    if booked and booked[0]:
        booked_ids = [pair for pair in free_ids if pair[0] in booked[0]]
        free_ids = booked_ids if booked_ids or free.is_restricted else free_ids
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
