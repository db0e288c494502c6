"""The devices of a node, what pods hold of them, and what a pod asks: GPUs, RDMA and FPGA cards.

Amounts are in percent of a card, bytes for GPU memory. Names and rules are Koordinator's (a7a1b76b,
apis/extension/device_share.go and plugins/deviceshare).

No service requests cards from `shared.owned.admit` yet: only tests and recorded cases run this
module, `gpu_choice` and those named `device_*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from shared.domain.resources import Amounts
from shared.owned.values import LEAST_ALLOCATED, DeviceHolding, DeviceType, Strategy

Scope = Literal["", "Device", "PCIe", "NUMANode", "Node"]

GPU: Final = "gpu"
# The zone of a device that is near to every zone.
ANY_ZONE = -1
APPLY_FOR_ALL: Final = "ApplyForAll"
REQUESTS_AS_COUNT: Final = "RequestsAsCount"
DEVICE_LEVEL: Final = "DeviceLevel"
PCIE_LEVEL: Final = "PCIeLevel"

Labels = Mapping[str, str]


class VirtualFunctions(msgspec.Struct, frozen=True):
    """Virtual functions of a card, by bus id, that have the same labels."""

    labels: Labels = {}
    bus_ids: tuple[str, ...] = ()


class Device(msgspec.Struct, frozen=True):
    """One card. `zone` is None if its place is unknown; `pcie` is its switch."""

    type: DeviceType
    minor: int
    resources: Amounts = {}
    zone: int | None = None
    pcie: str = ""
    labels: Labels = {}
    is_healthy: bool = True
    functions: tuple[VirtualFunctions, ...] = ()


class Partition(msgspec.Struct, frozen=True, gc=False):
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
    that share PCIe switches, the leading one first; with `same_pcie` they must.
    """

    amounts: Mapping[DeviceType, Amounts] = {}
    gpu: GpuNeeds = GpuNeeds()
    hints: Mapping[DeviceType, DeviceHint] = {}
    joint: tuple[DeviceType, ...] = ()
    same_pcie: bool = False
    partition: PartitionSpec | None = None

    def hint(self, kind: DeviceType) -> DeviceHint:
        return self.hints.get(kind, _NO_HINT)


_NO_HINT = DeviceHint()


class FreeDevices(msgspec.Struct, frozen=True):
    """Candidate devices by type and minor, with their free amounts. `used` are the minors of GPUs
    that pods hold or that are no candidates although pods hold them. `functions` are the taken
    virtual functions by type and minor.
    """

    node: OwnedDevices
    amounts: Mapping[DeviceType, Mapping[int, Amounts]]
    devices: Mapping[DeviceType, Mapping[int, Device]]
    used: int = 0
    functions: Mapping[tuple[DeviceType, int], frozenset[str]] = {}

    def is_usable(self, kind: DeviceType, minor: int) -> bool:
        """Return whether the device is healthy and has anything."""
        device = self.devices[kind][minor]
        return device.is_healthy and any(device.resources.values())


def free_devices_of(node: OwnedDevices, holdings: Iterable[DeviceHolding]) -> FreeDevices:
    """Return what the holdings leave free. An unhealthy device has nothing free."""
    amounts: dict[DeviceType, dict[int, Amounts]] = {}
    devices: dict[DeviceType, dict[int, Device]] = {}
    for device in node.devices:
        size = dict(device.resources) if device.is_healthy else {}
        amounts.setdefault(device.type, {})[device.minor] = size
        devices.setdefault(device.type, {})[device.minor] = device
    used, functions = 0, dict[tuple[DeviceType, int], frozenset[str]]()
    for holding in holdings:
        free = amounts.get(holding.type, {}).get(holding.minor, {})
        for name in free.keys() & holding.resources.keys():
            free[name] = max(0, free[name] - holding.resources[name])
        if holding.type == GPU:
            used |= 1 << holding.minor
        taken = functions.get((holding.type, holding.minor), frozenset())
        functions[holding.type, holding.minor] = taken | set(holding.functions)
    return FreeDevices(node, amounts, devices, used, functions)


def fits(asked: Amounts, free: Amounts) -> bool:
    """Return whether a card has enough of every resource that it has at all."""
    return any(free.values()) and all(asked.get(name, 0) <= size for name, size in free.items())


def matches(selector: Labels | None, labels: Labels) -> bool:
    return selector is None or all(labels.get(key) == value for key, value in selector.items())
