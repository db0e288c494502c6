"""ResourceSlices of one node as groups of devices: driver, pool, zone, whole or shared.

The zone of a device comes from the first of these that exists. If attributes disagree, the device
has no zone:

1. the standard attribute `resource.kubernetes.io/numaNode` (of a list the first, the device's own),
2. a driver's own attribute of that name,
3. the numa_node of its PCI address in /sys.

Pure over the tree. Must not know how slices are read. Source: resource.k8s.io v1, v1beta2, v1beta1;
KEP-6072.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from shared.domain.idlist import format_ids
from shared.domain.report import DynamicGroup

STANDARD = "resource.kubernetes.io/"
NUMA_NODE = STANDARD + "numaNode"
PCI_ADDRESS = STANDARD + "pciBusID"
# Attribute names of drivers from before the standard (dra.cpu, dra.net, gpu.amd.com), each in the
# domain of its driver.
DRIVER_ATTRIBUTES = ("numaNode", "numaNodeID")
# The most characters of all device names, and the most groups by driver, pool and zone: any driver
# can write slices, and more would make the report too large.
MAX_NAMES = 64 << 10
MAX_GROUPS = 512
MAX_ZONES = 64
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_POOL = re.compile(r"[a-z0-9]([-a-z0-9./]{0,251}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SliceError(ValueError):
    """The document is not a list of ResourceSlices."""


class Tree(Protocol):
    """A /sys tree."""

    def text(self, path: str) -> str | None:
        """Return the file's text; None if it is absent."""


class Device(NamedTuple):
    """One device; `zone` is None if no attribute names it."""

    driver: str
    pool: str
    name: str
    address: str
    zone: int | None
    whole: bool
    withheld: bool


class _Attribute(msgspec.Struct):
    int: Any = None
    ints: Any = None
    string: str | None = None


class _Taint(msgspec.Struct):
    effect: str = ""


class _Device(msgspec.Struct, rename="camel"):
    name: str
    attributes: dict[str, _Attribute] | None = None
    taints: list[_Taint] | None = None
    consumes_counters: list[Any] | None = None
    allow_multiple_allocations: bool | None = None


class _Pool(msgspec.Struct):
    name: str
    generation: int = 0


class _Spec(msgspec.Struct, rename="camel"):
    driver: str
    pool: _Pool
    node_name: str | None = None
    devices: list[_Device] | None = None


class _Slice(msgspec.Struct):
    spec: _Spec


def devices(items: object, node: str) -> tuple[Device, ...]:
    """Return the devices of the node's slices, of each pool's newest generation.

    Raises SliceError.
    """
    try:
        specs = [item.spec for item in msgspec.convert(_as_v1(items), list[_Slice])]
    except msgspec.ValidationError as error:
        raise SliceError(f"not ResourceSlices: {error}") from error
    specs = [spec for spec in specs if spec.node_name == node]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        key = spec.driver, spec.pool.name
        newest[key] = max(newest.get(key, 0), spec.pool.generation)
    listed = tuple(
        _device(spec, device)
        for spec in specs
        if spec.pool.generation == newest[spec.driver, spec.pool.name]
        for device in spec.devices or ()
    )
    if problem := next(_problems(listed), None):
        raise SliceError(problem)
    return listed


def _problems(listed: Sequence[Device]) -> Iterator[str]:
    """Yield names that an API server would reject, and sizes that a report cannot hold."""
    for device in listed:
        if not (
            _DRIVER.fullmatch(device.driver)
            and _POOL.fullmatch(device.pool)
            and _NAME.fullmatch(device.name)
        ):
            names = " ".join(repr(name[:60]) for name in (device.driver, device.pool, device.name))
            yield f"driver, pool and device {names} are not names that an API server accepts"
    counts = Counter((device.driver, device.pool, device.name) for device in listed)
    if twice := [key for key, count in counts.items() if count > 1]:
        yield f"the node's ResourceSlices list the device {'/'.join(twice[0])} more than once"
    if (size := sum(len(device.name) + 1 for device in listed)) > MAX_NAMES:
        yield (
            f"{len(listed)} devices in the node's ResourceSlices, with {size} characters of names; "
            f"at most {MAX_NAMES} are read"
        )
    places: dict[tuple[str, str], set[object]] = {}
    for device in listed:
        place = device.address if device.zone is None else device.zone
        places.setdefault((device.driver, device.pool), set()).add(place)
    if (groups := sum(min(len(zones), MAX_ZONES) for zones in places.values())) > MAX_GROUPS:
        yield (
            f"{len(places)} pools in {groups} places in the node's ResourceSlices; "
            f"at most {MAX_GROUPS} are read"
        )


def groups(listed: Iterable[Device], tree: Tree, zones: frozenset[int]) -> tuple[DynamicGroup, ...]:
    """Return the devices by driver, pool and zone; a zone that the machine lacks is left out."""
    parts: dict[tuple[str, str, tuple[int, ...]], tuple[list[str], list[str], list[str]]] = {}
    for device in listed:
        zone = _zone_of_address(device.address, tree) if device.zone is None else device.zone
        device_zones = (zone,) if zone in zones else ()
        whole, withheld, shared = parts.setdefault(
            (device.driver, device.pool, device_zones), ([], [], [])
        )
        if not device.whole:
            shared.append(device.name)
        elif device.withheld:
            withheld.append(device.name)
        else:
            whole.append(device.name)
    return tuple(
        DynamicGroup(*key, *map(format_ids, lists)) for key, lists in sorted(parts.items())
    )


def _as_v1(items: object) -> object:
    """Convert v1beta1's devices to the form of v1, in place."""
    if not isinstance(items, list):
        return items
    for item in items:
        spec = item.get("spec") if isinstance(item, dict) else None
        listed = spec.get("devices") if isinstance(spec, dict) else None
        for device in listed if isinstance(listed, list) else ():
            if isinstance(device, dict) and isinstance(device.get("basic"), dict):
                device.update(device.pop("basic"))
    return items


def _device(spec: _Spec, device: _Device) -> Device:
    attributes = device.attributes or {}
    address = attributes.get(PCI_ADDRESS)
    return Device(
        spec.driver,
        spec.pool.name,
        device.name,
        (address.string or "").lower() if address else "",
        _zone(attributes),
        not device.consumes_counters and not device.allow_multiple_allocations,
        any(taint.effect in ("NoSchedule", "NoExecute") for taint in device.taints or ()),
    )


def _zone(attributes: dict[str, _Attribute]) -> int | None:
    if NUMA_NODE in attributes:
        return _number(attributes[NUMA_NODE])
    zones = {
        _number(value)
        for name, value in attributes.items()
        if name.rpartition("/")[2] in DRIVER_ATTRIBUTES
    }
    return zones.pop() if len(zones) == 1 else None


def _number(attribute: _Attribute) -> int | None:
    value = attribute.int
    if isinstance(attribute.ints, list) and attribute.ints:
        value = attribute.ints[0]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _zone_of_address(address: str, tree: Tree) -> int | None:
    if not _ADDRESS.fullmatch(address):
        return None
    text = (tree.text(f"bus/pci/devices/{address}/numa_node") or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
