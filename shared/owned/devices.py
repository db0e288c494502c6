"""The devices of a node, what pods hold of them, and what a pod asks: GPUs, RDMA and FPGA cards.

Amounts are in percent of a card, bytes for GPU memory. Names and rules are Koordinator's (a7a1b76b,
apis/extension/device_share.go and plugins/deviceshare).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
import xxhash

from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, DeviceType
from shared.kubelet.cpuset import union
from shared.kubelet.masks import nodes_of
from shared.owned.values import LEAST_ALLOCATED, Strategy

Scope = Literal["", "Device", "PCIe", "NUMANode", "Node"]

GPU: Final = "gpu"
GPU_PERCENT, GPU_SHARED = "koordinator.sh/gpu", "koordinator.sh/gpu.shared"
# The zone of a device that is near to every zone.
ANY_ZONE = -1
APPLY_FOR_ALL: Final = "ApplyForAll"
REQUESTS_AS_COUNT: Final = "RequestsAsCount"
DEVICE_LEVEL: Final = "DeviceLevel"
PCIE_LEVEL: Final = "PCIeLevel"

Labels = Mapping[str, str]


class VirtualFunctions(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Virtual functions of a card that have the same labels: bus id -> minor."""

    labels: Labels = {}
    minors: dict[str, int] = {}


class Device(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One card. `zone` is None if its place is unknown; `pcie` is its switch, `id` its UUID or bus
    id.
    """

    type: DeviceType
    minor: int
    resources: Amounts = {}
    zone: int | None = None
    pcie: str = ""
    labels: Labels = {}
    is_healthy: bool = True
    functions: tuple[VirtualFunctions, ...] = ()
    id: str = ""


class Partition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """GPUs that a fabric connects. `minors` is a set of minors, `bandwidth` 0 if unknown."""

    minors: int
    score: int = 1
    bandwidth: int = 0


# Number of GPUs -> the partitions of this size.
Partitions = Mapping[int, tuple[Partition, ...]]

# The partitions of an HGX board with eight GPUs, and the models of GPUs that such boards have.
HOPPER: Partitions = {
    size: tuple(Partition((1 << size) - 1 << first) for first in range(0, 8, size))
    for size in (1, 2, 4, 8)
}
HOPPER_MODELS = ("H100", "H800", "H20")


class OwnedDevices(msgspec.Struct, frozen=True):
    """The devices of a node. `partitions` is None without a table. With `keeps_partitions`, GPUs
    are allocated by the table or not at all. `strategy` scores devices.
    """

    devices: tuple[Device, ...] = ()
    partitions: Partitions | None = None
    keeps_partitions: bool = False
    strategy: Strategy = LEAST_ALLOCATED


class DeviceHint(msgspec.Struct, frozen=True):
    """How a pod wants the devices of one type (annotation device-allocate-hint).

    `selector` and `function_selector` are labels, None if the pod states none. A function selector
    asks for a virtual function, an empty one for any.
    """

    selector: Labels | None = None
    function_selector: Labels | None = None
    strategy: str = ""
    scope: Scope = ""
    exclusive: str = ""


class PartitionSpec(msgspec.Struct, frozen=True, gc=False):
    """The partitions that a pod accepts (annotation gpu-partition-spec): of the best score only if
    restricted, and of at least this bandwidth.
    """

    is_restricted: bool = False
    bandwidth: int = 0


class GpuNeeds(msgspec.Struct, frozen=True):
    """How many GPUs a pod needs and how much of each. Several pods may share a shared one."""

    count: int = 0
    per_card: Amounts = {}
    is_shared: bool = False


class DeviceRequest(msgspec.Struct, frozen=True):
    """What a pod asks. `amounts` are by type, in percent of cards and bytes. `joint` are the types
    that share PCIe switches, the leading one first; with `same_pcie` they must. `problem` is why no
    device can be chosen, whatever is free.
    """

    amounts: Mapping[DeviceType, Amounts] = {}
    gpu: GpuNeeds = GpuNeeds()
    hints: Mapping[DeviceType, DeviceHint] = {}
    joint: tuple[DeviceType, ...] = ()
    same_pcie: bool = False
    partition: PartitionSpec | None = None
    problem: str = ""

    def hint(self, kind: DeviceType) -> DeviceHint:
        return self.hints.get(kind, _NO_HINT)


_NO_HINT = DeviceHint()


class Part(msgspec.Struct, frozen=True):
    """The GPUs (as bits) of the node, of a zone or of a switch."""

    level: int
    gpus: int
    children: tuple[Part, ...] = ()


NODE, ZONE, SWITCH = 1, 2, 3


def tree_of(devices: Iterable[Device]) -> Part | None:
    """Return the tree of zones and switches; None without GPUs, or if the place of one is not
    known.
    """
    zones: dict[int, dict[str, int]] = {}
    for device in devices:
        if device.type == GPU:
            if device.zone is None:
                return None
            switches = zones.setdefault(device.zone, {})
            switches[device.pcie] = switches.get(device.pcie, 0) | 1 << device.minor
    parts = tuple(
        Part(
            ZONE,
            sum(zones[zone].values()),
            tuple(Part(SWITCH, zones[zone][pcie]) for pcie in sorted(zones[zone])),
        )
        for zone in sorted(zones)
    )
    return Part(NODE, sum(part.gpus for part in parts), parts) if parts else None


class Layout(msgspec.Struct, frozen=True):
    """What pods do not change in the devices of a node: each by type and minor, the amounts that
    healthy ones have, the minors (as bits) by type and zone, the zones, and the tree of the GPUs.
    """

    devices: Mapping[DeviceType, Mapping[int, Device]]
    sizes: Mapping[DeviceType, Mapping[int, Amounts]]
    by_zone: Mapping[DeviceType, Mapping[int | None, int]]
    zones: tuple[int, ...]
    tree: Part | None


def layout_of(devices: Collection[Device]) -> Layout:
    by_type: dict[DeviceType, dict[int, Device]] = {}
    sizes: dict[DeviceType, dict[int, Amounts]] = {}
    by_zone: dict[DeviceType, dict[int | None, int]] = {}
    for device in devices:
        kind, minor, bits = device.type, device.minor, by_zone.setdefault(device.type, {})
        by_type.setdefault(kind, {})[minor] = device
        sizes.setdefault(kind, {})[minor] = device.resources if device.is_healthy else {}
        bits[device.zone] = bits.get(device.zone, 0) | 1 << minor
    zones = {zone for bits in by_zone.values() for zone in bits if zone is not None} - {ANY_ZONE}
    return Layout(by_type, sizes, by_zone, tuple(sorted(zones)), tree_of(devices))


class FreeDevices(msgspec.Struct, frozen=True):
    """The devices of a node and their free amounts, by type and minor. `used` are the minors of
    GPUs that pods hold, `functions` the taken virtual functions by type and minor. `every` is the
    mask of all zones of the node: under it a device of unknown place counts, because it is in some
    zone. `booked` is what is left of the pod's booking: other devices of its types come later, or
    with `is_restricted` not at all. `answers` are those that were computed from this value.
    """

    node: OwnedDevices
    layout: Layout
    amounts: Mapping[DeviceType, Mapping[int, Amounts]]
    used: int = 0
    functions: Mapping[tuple[DeviceType, int], frozenset[str]] = {}
    every: int = 0
    booked: tuple[DeviceHolding, ...] = ()
    is_restricted: bool = False
    answers: dict[object, Any] = {}

    @property
    def devices(self) -> Mapping[DeviceType, Mapping[int, Device]]:
        return self.layout.devices

    def minors_in(self, kind: DeviceType, mask: int | None) -> int:
        """Return the devices of a type in the zones of the mask (None: in all)."""
        by_zone = self.layout.by_zone.get(kind, {})
        if mask is None or mask == self.every:
            return union(by_zone.values())
        zones = (ANY_ZONE, *nodes_of(mask))
        return union([by_zone[zone] for zone in zones if zone in by_zone])

    def preferred(self, kind: DeviceType) -> int:
        """Return the devices of a type of which the booking has some left."""
        return union(
            1 << c.minor for c in self.booked if c.type == kind and any(c.resources.values())
        )

    def usable(self, kind: DeviceType) -> Mapping[int, Amounts]:
        """Return the free amounts of a type that the pod may take."""
        amounts = self.amounts[kind]
        booked = {card.minor: card.resources for card in self.booked if card.type == kind}
        if not (booked and self.is_restricted):
            return amounts
        return {
            minor: {
                name: min(amount, booked.get(minor, {}).get(name, 0))
                for name, amount in free.items()
            }
            for minor, free in amounts.items()
        }

    def less(self, holdings: Iterable[DeviceHolding]) -> FreeDevices:
        """Return what remains after more holdings."""
        amounts = {kind: dict(by_minor) for kind, by_minor in self.amounts.items()}
        used, functions = self.used, dict(self.functions)
        for holding in holdings:
            kind, minor = holding.type, holding.minor
            if minor in amounts.get(kind, {}):
                free = amounts[kind][minor]
                amounts[kind][minor] = {
                    name: max(0, size - holding.resources.get(name, 0))
                    for name, size in free.items()
                }
            if kind == GPU and any(holding.resources.values()):
                used |= 1 << minor
            if holding.functions:
                taken = functions.get((kind, minor), frozenset())
                functions[kind, minor] = taken.union(holding.functions)
        return FreeDevices(self.node, self.layout, amounts, used, functions, self.every)


def free_devices_of(
    node: OwnedDevices,
    holdings: Iterable[DeviceHolding],
    every: int = 0,
    layout: Layout | None = None,
) -> FreeDevices:
    """Return what the holdings leave free. An unhealthy device has nothing free. `layout` is that
    of the node's devices, if it is known.
    """
    layout = layout or layout_of(node.devices)
    return FreeDevices(node, layout, layout.sizes, every=every).less(holdings)


# Most states of devices whose answers are shared.
MOST_STATES = 8192
_answers: dict[object, dict[object, Any]] = {}


def likeness(devices: Iterable[Device]) -> bytes:
    """Return equal bytes for devices that differ in ids only."""
    listed = [msgspec.structs.replace(device, id="") for device in devices]
    return xxhash.xxh3_128_digest(msgspec.msgpack.encode(listed))


def with_shared_answers(free: FreeDevices, likeness: bytes) -> FreeDevices:
    """Return the value with the answers of all nodes whose devices differ in ids only and are free
    in the same way.
    """
    node, functions = free.node, sorted((key, sorted(ids)) for key, ids in free.functions.items())
    state = node.partitions, node.keeps_partitions, node.strategy, free.amounts, functions
    booked = free.booked, free.is_restricted
    key = likeness, free.every, free.used, msgspec.msgpack.encode((state, booked))
    if len(_answers) >= MOST_STATES:
        _answers.clear()
    return msgspec.structs.replace(free, answers=_answers.setdefault(key, {}))


def totals_of(devices: Iterable[Device]) -> Amounts:
    """Return what healthy devices offer together, by the names that pods request."""
    totals: dict[str, int] = {}
    for device in devices:
        if device.is_healthy:
            for name, size in device.resources.items():
                totals[name] = totals.get(name, 0) + size
            if device.type == GPU:
                for name in (GPU_PERCENT, GPU_SHARED):
                    totals[name] = totals.get(name, 0) + 100
    return totals


def fits(asked: Amounts, free: Amounts) -> bool:
    """Return whether a card has enough of every resource."""
    for name, size in asked.items():
        if size > free.get(name, 0):
            return False
    return any(free.values())


def matches(selector: Labels | None, labels: Labels) -> bool:
    """Return whether the labels have all of the selector's."""
    return selector is None or all(labels.get(key) == value for key, value in selector.items())
