"""Koordinator's annotations of a placed pod: complete `resource-spec`, and read back what the pod
holds from `resource-status` and `device-allocated`, which `shared.domain.zone_allocation` writes.

Source: Koordinator a7a1b76b, plugins/nodenumaresource (preBindObject, appendResourceSpecIfMissed)
and apis/extension/numa_aware.go.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.quantity import QuantityError, amount
from shared.domain.zone_allocation import (
    DEVICE_ALLOCATED,
    RESOURCE_STATUS,
    AllocatedDevice,
    DeviceHolding,
    DeviceType,
    Status,
)
from shared.kubelet.cpuset import parse_cpus
from shared.owned.request import PodSpecError, ResourceSpec, exclusive_policy, resource_spec
from shared.owned.values import Allocation, Holding, ZoneAmounts


def completed_spec(allocation: Allocation, annotations: Mapping[str, str]) -> str:
    """Return `resource-spec` with the bind policy that was applied; "" if the pod's own value is
    complete or the pod has no CPU set. Raises PodSpecError for a broken value.
    """
    if not allocation.bind:
        return ""
    spec = resource_spec(annotations)
    completed = _completed(spec, allocation)
    return "" if completed == spec else msgspec.json.encode(completed).decode()


def _completed(spec: ResourceSpec, allocation: Allocation) -> ResourceSpec:
    """Return the spec with the bind policy that was applied where it states none."""
    bind, required, preferred = allocation.bind, spec.required, spec.preferred
    if allocation.bind_is_required and required in ("", "Default"):
        required = bind
    if preferred == "Default" or not (required or preferred):
        preferred = bind
    return msgspec.structs.replace(spec, required=required, preferred=preferred)


def holding_of(annotations: Mapping[str, str]) -> Holding | None:
    """Return what a pod holds by its annotations, None without `resource-status`. Raises
    PodSpecError if it cannot be read.
    """
    text = annotations.get(RESOURCE_STATUS, "")
    if not text:
        return None
    try:
        status = msgspec.json.decode(text, type=Status)
        zones = {
            record.node: {name: amount(name, number) for name, number in record.resources.items()}
            for record in status.zones
        }
        cpus = parse_cpus(status.cpuset)
    except (msgspec.MsgspecError, QuantityError, RecursionError, ValueError) as error:
        raise PodSpecError(f"{RESOURCE_STATUS}: {error}") from error
    if any(size < 0 for amounts in zones.values() for size in amounts.values()):
        raise PodSpecError(f"{RESOURCE_STATUS}: a negative amount")
    exclusive = exclusive_policy(resource_spec(annotations)) if cpus else ""
    listed = tuple(ZoneAmounts(zone, zones[zone]) for zone in sorted(zones))
    return Holding(cpus, exclusive, listed)


def devices_of(annotations: Mapping[str, str]) -> tuple[DeviceHolding, ...]:
    """Return the devices that a pod holds by `device-allocated`. Raises PodSpecError if it cannot
    be read.
    """
    text = annotations.get(DEVICE_ALLOCATED, "")
    if not text:
        return ()
    try:
        return tuple(
            _device_holding(kind, entry)
            for kind, entries in _allocated.decode(text).items()
            for entry in entries
        )
    except (msgspec.MsgspecError, QuantityError, RecursionError, TypeError) as error:
        raise PodSpecError(f"{DEVICE_ALLOCATED}: {error}") from error


_allocated = msgspec.json.Decoder(dict[DeviceType, list[AllocatedDevice]])


def _device_holding(kind: DeviceType, entry: AllocatedDevice) -> DeviceHolding:
    resources = {name: amount(name, number) for name, number in entry.resources.items()}
    if any(size < 0 for size in resources.values()):
        raise PodSpecError(f"{DEVICE_ALLOCATED}: a negative amount")
    vfs = entry.extension.vfs if entry.extension is not None else ()
    functions = {function.bus_id: function.minor for function in vfs}
    return DeviceHolding(kind, entry.minor, resources, functions, entry.id)
