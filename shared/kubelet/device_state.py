"""The Device Manager's state as a value: the devices that plugins registered, and which container
holds which.

`device_manager` decides which devices a container gets. Source: kubelet 1.36 devicemanager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

HintNodes = Literal["bearing", "all"]
"""Over which NUMA nodes hints run: those with a device of the resource (kubernetes PR 138244), or
every node.
"""


class Device(msgspec.Struct, frozen=True, gc=False):
    """One device. `mask` is its NUMA nodes: None without topology information, 0 if the topology
    names no node.
    """

    mask: int | None
    healthy: bool = True


class DevicePool(dict[str, Device]):
    """The devices of one resource by id, immutable, with values that every admission needs.

    `groups` are the ids by the NUMA nodes they name, for devices that name any; `counts` their
    sizes; `bearing` the union of those nodes.
    """

    def __init__(self, devices: Mapping[str, Device]) -> None:
        super().__init__(devices)
        self.healthy = frozenset(name for name, device in devices.items() if device.healthy)
        masks = sorted({device.mask for device in devices.values() if device.mask})
        self.groups = tuple(
            (mask, frozenset(name for name in devices if devices[name].mask == mask))
            for mask in masks
        )
        self.counts = tuple((mask, len(ids)) for mask, ids in self.groups)
        self.bearing = 0
        for mask in masks:
            self.bearing |= mask


Registered = Mapping[str, Mapping[str, Device]]
"""Resource -> device id -> device."""
Holdings = Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]]
"""Pod uid -> container name -> resource -> device ids."""


class DeviceState(msgspec.Struct, frozen=True):
    """The whole state. `in_use` is the union of all holdings by resource.

    `reuse` is what init containers of pod `reuse_uid` leave to later ones. The kubelet loses it on
    restart.
    """

    nodes: tuple[int, ...]
    registered: Registered = {}
    held: Holdings = {}
    in_use: Mapping[str, frozenset[str]] = {}
    reuse_uid: str = ""
    reuse: Mapping[str, frozenset[str]] = {}
    hint_nodes: HintNodes = "bearing"

    def pool(self, resource: str) -> DevicePool:
        """Return the devices of a resource; an empty pool if no plugin registered it."""
        devices = self.registered.get(resource, {})
        return devices if isinstance(devices, DevicePool) else DevicePool(devices)

    def healthy(self, resource: str) -> frozenset[str]:
        return self.pool(resource).healthy

    def available(self, resource: str) -> frozenset[str]:
        """Return the healthy devices that no container holds."""
        healthy, used = self.pool(resource).healthy, self.in_use.get(resource)
        return healthy - used if used else healthy

    def is_known(self, resource: str) -> bool:
        """Return whether the resource belongs to a device plugin, registered now or still held by a
        container.
        """
        return resource in self.registered or resource in self.in_use

    def reusable(self, uid: str, resource: str) -> frozenset[str]:
        """Return the devices that earlier init containers of this pod leave to later ones."""
        return self.reuse.get(resource, frozenset()) if uid == self.reuse_uid else frozenset()


def register(state: DeviceState, resource: str, devices: Mapping[str, Device]) -> DeviceState:
    """Return the state after a plugin lists its devices (ListAndWatch). The new list replaces the
    old one.
    """
    return msgspec.structs.replace(
        state, registered={**state.registered, resource: DevicePool(devices)}
    )


def hold(
    state: DeviceState, uid: str, container: str, resource: str, devices: Iterable[str]
) -> DeviceState:
    got = frozenset(devices)
    pod = state.held.get(uid, {})
    holdings = {**state.held, uid: {**pod, container: {**pod.get(container, {}), resource: got}}}
    in_use = {**state.in_use, resource: state.in_use.get(resource, frozenset()) | got}
    return DeviceState(
        state.nodes,
        state.registered,
        holdings,
        in_use,
        state.reuse_uid,
        state.reuse,
        state.hint_nodes,
    )


def drop_pod(state: DeviceState, uid: str) -> DeviceState:
    """Return the state without the pod. Devices are shared only within a pod, so all of its devices
    are free.
    """
    pod = state.held.get(uid)
    if pod is None:
        return state
    in_use = dict(state.in_use)
    for container in pod.values():
        for resource, devices in container.items():
            in_use[resource] = in_use.get(resource, frozenset()) - devices
    holdings = {pod_uid: containers for pod_uid, containers in state.held.items() if pod_uid != uid}
    still = {resource: devices for resource, devices in in_use.items() if devices}
    return msgspec.structs.replace(state, held=holdings, in_use=still)
