"""The kubelet's `kubelet_internal_checkpoint`: which container holds which devices, and what
plugins registered.

A kubelet that finds this file corrupt starts without it. Devices are listed under each of their
NUMA nodes, `-1` for none. This module reads and writes no files. Source: kubelet 1.36
devicemanager/checkpoint.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping

import msgspec

from shared.kubelet.checkpoint import CORRUPTED, CheckpointError, Unsigned, decode
from shared.kubelet.checkpoint_text import dump_list, dump_map, fnv32a, go_json, string_order
from shared.kubelet.device_state import DeviceState
from shared.kubelet.masks import nodes_of

DEVICE_FILE = "kubelet_internal_checkpoint"
NO_NODE = -1


class DeviceEntry(msgspec.Struct, frozen=True):
    """Devices of one resource that one container holds: NUMA node id (-1 = none) -> device ids."""

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    alloc_resp: bytes | None = b""

    def ids(self) -> frozenset[str]:
        """The device ids, each once."""
        return frozenset(name for names in self.devices.values() for name in names)


class DeviceCheckpoint(msgspec.Struct, frozen=True):
    """Contents of `kubelet_internal_checkpoint`. Only newer kubelets write `boot_id`."""

    entries: tuple[DeviceEntry, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = {}
    boot_id: str = ""


class _Entry(msgspec.Struct):
    PodUID: str = ""
    ContainerName: str = ""
    ResourceName: str = ""
    DeviceIDs: dict[int, list[str] | None] | None = None
    AllocResp: str | None = None


class _Data(msgspec.Struct):
    PodDeviceEntries: list[_Entry] | None = None
    RegisteredDevices: dict[str, list[str] | None] | None = None


class _File(msgspec.Struct):
    Data: _Data = msgspec.field(default_factory=_Data)
    Checksum: Unsigned = 0
    BootID: str = ""


def read_devices(data: bytes, verify: bool = True) -> DeviceCheckpoint | CheckpointError:
    """Return `kubelet_internal_checkpoint` as a value. `verify` computes the checksum, which costs
    more than everything else.
    """
    file = decode(data, _File)
    if isinstance(file, CheckpointError):
        return file
    try:
        entries = tuple(_entry(entry) for entry in file.Data.PodDeviceEntries or ())
    except ValueError as error:
        return CheckpointError(f"json: AllocResp is no base64: {error}", str(error))
    if verify and file.Checksum != fnv32a(_dump(file.Data)):
        return CheckpointError(CORRUPTED, CORRUPTED)
    registered = {
        name: tuple(ids or ()) for name, ids in (file.Data.RegisteredDevices or {}).items()
    }
    return DeviceCheckpoint(entries, registered, file.BootID)


def _entry(entry: _Entry) -> DeviceEntry:
    devices = {node: tuple(ids or ()) for node, ids in (entry.DeviceIDs or {}).items()}
    response = None if entry.AllocResp is None else b64decode(entry.AllocResp, validate=True)
    return DeviceEntry(entry.PodUID, entry.ContainerName, entry.ResourceName, devices, response)


def write_devices(checkpoint: DeviceCheckpoint, seal: bool = True) -> bytes:
    """Return the bytes of `kubelet_internal_checkpoint` as a kubelet would write them; its list
    order is arbitrary.

    Without `seal` the checksum is 0, which only readers that do not verify it accept.
    """
    entries = [_entry_file(entry) for entry in checkpoint.entries]
    registered = {name: list(checkpoint.registered[name]) for name in sorted(checkpoint.registered)}
    data = _Data(entries or None, dict(registered))
    body = {
        "PodDeviceEntries": [_entry_json(entry) for entry in entries] or None,
        "RegisteredDevices": registered,
    }
    document: dict[str, object] = {"Data": body, "Checksum": fnv32a(_dump(data)) if seal else 0}
    return go_json({**document, "BootID": checkpoint.boot_id} if checkpoint.boot_id else document)


def _entry_file(entry: DeviceEntry) -> _Entry:
    devices: dict[int, list[str] | None] = {
        node: list(entry.devices[node]) for node in sorted(entry.devices)
    }
    response = None if entry.alloc_resp is None else b64encode(entry.alloc_resp).decode()
    return _Entry(entry.pod_uid, entry.container, entry.resource, devices, response)


def _entry_json(entry: _Entry) -> dict[str, object]:
    return {
        "PodUID": entry.PodUID,
        "ContainerName": entry.ContainerName,
        "ResourceName": entry.ResourceName,
        "DeviceIDs": string_order(entry.DeviceIDs or {}),
        "AllocResp": entry.AllocResp,
    }


def _dump(data: _Data) -> str:
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{dump_list(data.PodDeviceEntries, _entry_dump)} "
        f"RegisteredDevices:(map[string][]string){dump_map(data.RegisteredDevices, dump_list)}}}"
    )


def _entry_dump(entry: _Entry) -> str:
    response = None if entry.AllocResp is None else b64decode(entry.AllocResp, validate=True)
    return (
        f"{{PodUID:(string){entry.PodUID} ContainerName:(string){entry.ContainerName} "
        f"ResourceName:(string){entry.ResourceName} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){dump_map(entry.DeviceIDs, dump_list)} "
        f"AllocResp:([]uint8){dump_list(response)}}}"
    )


def device_checkpoint(state: DeviceState) -> DeviceCheckpoint:
    """Return the checkpoint of a kubelet in this state, in sorted order."""
    entries = [
        DeviceEntry(
            uid, container, resource, _by_node(state, resource, devices[container][resource])
        )
        for uid, devices in sorted(state.held.items())
        for container in sorted(devices)
        for resource in sorted(devices[container])
    ]
    registered = {
        resource: tuple(sorted(state.healthy(resource))) for resource in sorted(state.registered)
    }
    return DeviceCheckpoint(tuple(entries), registered)


def _by_node(state: DeviceState, resource: str, ids: frozenset[str]) -> dict[int, tuple[str, ...]]:
    by_node: dict[int, list[str]] = {}
    registered = state.registered.get(resource, {})
    for name in sorted(ids):
        mask = registered[name].mask if name in registered else None
        for node in nodes_of(mask) if mask else (NO_NODE,):
            by_node.setdefault(node, []).append(name)
    return {node: tuple(by_node[node]) for node in sorted(by_node)}
