"""Which resource a PCI device is of, and in which zone it lies: by the SR-IOV device plugin's own
configuration and /sys.

Pure but for the tree. The plugin tells a container its devices by `PCIDEVICE_<RESOURCE>`; others
show as device nodes, which /sys leads back to a PCI address (`dev/char/MAJOR:MINOR`, VFIO by its
IOMMU group). Source: sriov-network-device-plugin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from services.exporter.answers import DeviceGroup
from services.exporter.cri.info import Known

PCI = "bus/pci/devices"
DEFAULT_PREFIX = "intel.com"
SELECTORS = ("vendors", "devices", "drivers", "pciAddresses")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VFIO = re.compile(r"/dev/vfio/(\d{1,9})")


class DeviceFileError(ValueError):
    """The file of resources cannot be used; names file, resource and remedy."""


class LinkedTree(Protocol):
    """A /sys tree whose links can be followed (`services.exporter.sysfs.Tree`)."""

    def text(self, path: str) -> str | None:
        """The file's text."""

    def names(self, path: str) -> list[str]:
        """A folder's entries."""

    def target(self, path: str) -> str:
        """The name at the end of a link; the path's own last name where it is none."""


class Resource(msgspec.Struct, frozen=True):
    """Devices that match any one of `selectors` are of the resource `name`."""

    name: str
    selectors: tuple[dict[str, tuple[str, ...]], ...]


class Device(msgspec.Struct, frozen=True):
    """A PCI function; `zones` is empty where the machine tells none."""

    resource: str
    zones: tuple[int, ...]


class _Entry(msgspec.Struct, rename="camel"):
    resource_name: str
    resource_prefix: str = DEFAULT_PREFIX
    selectors: Any = None


class _File(msgspec.Struct, rename="camel"):
    resource_list: list[_Entry]


def parse(text: bytes, where: str) -> tuple[Resource, ...]:
    """The resources of a file as the SR-IOV device plugin's config.json, the first that matches
    first. Raises DeviceFileError.
    """
    try:
        found = msgspec.json.decode(text, type=_File)
        return tuple(
            Resource(f"{each.resource_prefix}/{each.resource_name}", _selectors(each, where))
            for each in found.resource_list
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DeviceFileError(
            f"{where}: {error}; expected the SR-IOV device plugin's config.json"
        ) from None


def inventory(tree: LinkedTree, resources: Iterable[Resource]) -> dict[str, Device]:
    """Address -> device, of all functions that are of a resource; those that were split into
    virtual ones are of none.
    """
    listed = tuple(resources)
    found = {}
    for address in tree.names(PCI) if listed else ():
        base = f"{PCI}/{address}"
        if (
            not _ADDRESS.fullmatch(address)
            or (tree.text(f"{base}/sriov_numvfs") or "0").strip() != "0"
        ):
            continue
        events = {
            "vendors": (tree.text(f"{base}/vendor") or "").strip().removeprefix("0x"),
            "devices": (tree.text(f"{base}/device") or "").strip().removeprefix("0x"),
            "drivers": tree.target(f"{base}/driver"),
            "pciAddresses": address,
        }
        resource = next(
            (each.name for each in listed if any(_matches(one, events) for one in each.selectors)),
            "",
        )
        if resource:
            found[address] = Device(resource, _zones(tree.text(f"{base}/numa_node")))
    return found


def groups(devices: Mapping[str, Device], addresses: Iterable[str]) -> tuple[DeviceGroup, ...]:
    """These devices as podresources would list them."""
    sets: dict[Device, set[str]] = {}
    for address in addresses:
        sets.setdefault(devices[address], set()).add(address)
    return tuple(
        DeviceGroup(each.resource, tuple(sorted(sets[each])), each.zones)
        for each in sorted(sets, key=lambda each: (each.resource, each.zones))
    )


def held(known: Known, tree: LinkedTree, devices: Mapping[str, Device]) -> set[str]:
    """The addresses that a container holds, of those that are of a resource; a variable set for
    another resource is not heard.
    """
    told = {
        address
        for variable, value in known.pci.items()
        for address in value.lower().split(",")
        if address in devices and variable == _variable(devices[address].resource)
    }
    return told | {
        address for node in known.nodes for address in _behind(node, tree) if address in devices
    }


def _variable(resource: str) -> str:
    return f"PCIDEVICE_{re.sub('[^A-Z0-9]', '_', resource.upper())}"


def _behind(node: tuple[str, int, int], tree: LinkedTree) -> list[str]:
    path, major, minor = node
    vfio = _VFIO.fullmatch(path)
    if vfio:
        return tree.names(f"kernel/iommu_groups/{vfio[1]}/devices")
    return [tree.target(f"dev/char/{major}:{minor}/device")]


def _matches(selector: Mapping[str, tuple[str, ...]], events: Mapping[str, str]) -> bool:
    return all(events[what] in values for what, values in selector.items())


def _selectors(entry: _Entry, where: str) -> tuple[dict[str, tuple[str, ...]], ...]:
    """Raises DeviceFileError for what is not known here: a selector left out would take devices
    that are not meant.
    """
    listed = entry.selectors if isinstance(entry.selectors, list) else [entry.selectors]
    found = []
    for one in listed:
        values = msgspec.convert(one or {}, dict[str, Any])
        if not values or set(values) - set(SELECTORS):
            names = ", ".join(sorted(set(values) - set(SELECTORS))) or "nothing"
            raise DeviceFileError(
                f"{where}: {entry.resource_name[:80]} is selected by {names[:200]}; known are {', '.join(SELECTORS)}"
            )
        found.append(
            {what: tuple(msgspec.convert(value, list[str])) for what, value in values.items()}
        )
    return tuple(found)


def _zones(text: str | None) -> tuple[int, ...]:
    """-1 is the kernel's word for a device that is near no node."""
    value = (text or "").strip()
    return (int(value),) if value.isascii() and value.isdigit() and len(value) < 6 else ()
