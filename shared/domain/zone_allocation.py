"""What a pod holds on a node whose zones Topolog chooses, as events and annotations carry it.

The annotations are Koordinator's, so that koordlet enforces what Topolog chose. Source: Koordinator
a7a1b76b, apis/extension/resource.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from shared.domain.quantity import NANO, Format, Quantity
from shared.domain.resources import CPU, Amounts

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
MEMORY_POLICY = "node.koordinator.sh/numa-memory-policy"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"

DeviceType = Literal["gpu", "rdma", "fpga"]

_NONE: Mapping[tuple[int, str], Format] = MappingProxyType({})


class DeviceHolding(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one pod holds of one card, in percent and bytes. `functions` are its virtual functions:
    bus id -> minor. `id` is the card's UUID or bus id.
    """

    type: DeviceType
    minor: int
    resources: Amounts
    functions: dict[str, int] = {}
    id: str = ""


class ZoneAllocation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Amounts by zone, the pod's own CPUs, and its cards (`devices`).

    `cpus` is a Linux list; empty for a pod that shares the CPUs of its zones. The CPUs are counted
    in `zones`, too. `cpu_exclusive` keeps other sets with the same policy away from their cores or
    zones. `resource_spec` is the value of Koordinator's annotation resource-spec for the pod, if it
    left open how its CPUs are bound. `memory_policy` is `bind` if its memory may come from `zones`
    only.
    """

    zones: dict[int, Amounts] = {}
    cpus: str = ""
    cpu_exclusive: str = ""
    resource_spec: str = ""
    memory_policy: str = ""
    devices: tuple[DeviceHolding, ...] = ()


class StatusZone(msgspec.Struct, frozen=True):
    """An entry of the annotation resource-status."""

    node: int
    resources: dict[str, Any] = {}


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation resource-status, fields in Koordinator's order."""

    cpuset: str = ""
    zones: tuple[StatusZone, ...] = msgspec.field(default=(), name="numaNodeResources")


def status_text(
    cpus: str, zones: Mapping[int, Amounts], notations: Mapping[tuple[int, str], Format] = _NONE
) -> str:
    """Return the annotation resource-status. Koordinator writes an amount in the notation of the
    request, which events do not keep: without `notations`, by zone and resource, it is the shorter
    of the binary and the decimal one.
    """
    listed = tuple(
        StatusZone(
            zone,
            {
                name: _amount_text(name, size, notations.get((zone, name)))
                for name, size in sorted(amounts.items())
            },
        )
        for zone, amounts in sorted(zones.items())
    )
    return msgspec.json.encode(Status(cpus, listed)).decode()


def _amount_text(resource: str, size: int, notation: Format | None) -> str:
    nano = size * (NANO // 1000 if resource == CPU else NANO)
    notations: tuple[Format, ...] = ("BinarySI", "DecimalSI") if notation is None else (notation,)
    return min((Quantity(nano, form).canonical() for form in notations), key=len)


class AllocatedFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A virtual function in the annotation device-allocated."""

    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class AllocatedExtension(msgspec.Struct, frozen=True, omit_defaults=True):
    vfs: tuple[AllocatedFunction, ...] = ()


class AllocatedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the annotation device-allocated, fields in Koordinator's order."""

    minor: int
    resources: dict[str, Any]
    id: str = ""
    extension: AllocatedExtension | None = None


def devices_text(devices: Iterable[DeviceHolding]) -> str:
    """Return the annotation device-allocated; cards of a type stay in the order of the choice."""
    by_type: dict[str, list[AllocatedDevice]] = {}
    for card in devices:
        vfs = tuple(AllocatedFunction(minor, bus_id) for bus_id, minor in card.functions.items())
        resources = {
            name: _amount_text(name, a, None) for name, a in sorted(card.resources.items())
        }
        extension = AllocatedExtension(vfs) if vfs else None
        entry = AllocatedDevice(card.minor, resources, card.id, extension)
        by_type.setdefault(card.type, []).append(entry)
    return msgspec.json.encode(dict(sorted(by_type.items()))).decode()


def annotations_of(allocation: ZoneAllocation) -> dict[str, str]:
    """Return the pod's annotations for this allocation."""
    made: dict[str, str] = {}
    if allocation.cpus or allocation.zones:
        made[RESOURCE_STATUS] = status_text(allocation.cpus, allocation.zones)
    if allocation.devices:
        made[DEVICE_ALLOCATED] = devices_text(allocation.devices)
    if allocation.resource_spec:
        made[RESOURCE_SPEC] = allocation.resource_spec
    if allocation.memory_policy:
        made[MEMORY_POLICY] = allocation.memory_policy
    return made
