"""ResourceSlices of one node as groups of devices: which driver has what, in which zone, and
whether it is given away whole.

A zone is what the standard attribute says (`resource.kubernetes.io/numaNode`; of a list the first,
which is the device's own), else what a driver's own attribute of that name says, else what /sys
says of its PCI address. Attributes that disagree name none. Pure but for the tree. Must not know
how slices are read. Source: resource.k8s.io v1, v1beta2, v1beta1; KEP-6072.
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
OWN = ("numaNode", "numaNodeID")
"""What drivers called the attribute before there was a standard one, in a domain of theirs (dra.cpu, dra.net, gpu.amd.com)."""
MAX_NAMES = 64 << 10
MAX_GROUPS = 512
MAX_ZONES = 64
"""Characters of all devices' names, and groups by driver, pool and zone: with more a report would be refused, and the node with
it, whoever wrote the slices."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_POOL = re.compile(r"[a-z0-9]([-a-z0-9./]{0,251}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SliceError(ValueError):
    """What came are no ResourceSlices."""


class Tree(Protocol):
    """A /sys tree."""

    def text(self, path: str) -> str | None:
        """The file's text; None when it is absent."""


class Device(NamedTuple):
    """One device; `zone` is None where nobody names it."""

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
    """The devices of the node's slices: of each pool those of its newest generation. Raises
    SliceError.
    """
    try:
        found = [each.spec for each in msgspec.convert(_flat(items), list[_Slice])]
    except msgspec.ValidationError as error:
        raise SliceError(f"no ResourceSlices: {error}") from error
    own = [spec for spec in found if spec.node_name == node]
    newest: dict[tuple[str, str], int] = {}
    for spec in own:
        key = spec.driver, spec.pool.name
        newest[key] = max(newest.get(key, 0), spec.pool.generation)
    current = [spec for spec in own if spec.pool.generation == newest[spec.driver, spec.pool.name]]
    listed = tuple(_device(spec, each) for spec in current for each in spec.devices or ())
    if problem := next(_problems(listed), None):
        raise SliceError(problem)
    return listed


def _problems(found: Sequence[Device]) -> Iterator[str]:
    """What an API server would not have taken, and more than a report can hold."""
    for each in found:
        if not (
            _DRIVER.fullmatch(each.driver)
            and _POOL.fullmatch(each.pool)
            and _NAME.fullmatch(each.name)
        ):
            names = " ".join(repr(name[:60]) for name in (each.driver, each.pool, each.name))
            yield f"driver, pool and device {names} are no names that an API server takes"
    if twice := [
        each
        for each, count in Counter((one.driver, one.pool, one.name) for one in found).items()
        if count > 1
    ]:
        yield f"the device {'/'.join(twice[0])} stands in the node's ResourceSlices more than once"
    if (size := sum(len(each.name) + 1 for each in found)) > MAX_NAMES:
        yield f"{len(found)} devices in the node's ResourceSlices, with {size} characters of names; at most {MAX_NAMES} are read"
    places: dict[tuple[str, str], set[object]] = {}
    for each in found:
        places.setdefault((each.driver, each.pool), set()).add(
            each.address if each.zone is None else each.zone
        )
    if (groups := sum(min(len(each), MAX_ZONES) for each in places.values())) > MAX_GROUPS:
        yield f"{len(places)} pools in {groups} places in the node's ResourceSlices; at most {MAX_GROUPS} are read"


def groups(found: Iterable[Device], tree: Tree, zones: frozenset[int]) -> tuple[DynamicGroup, ...]:
    """The devices by driver, pool and zone; a zone that the machine lacks is none."""
    parts: dict[tuple[str, str, tuple[int, ...]], tuple[list[str], list[str], list[str]]] = {}
    for each in found:
        zone = _zone_of_address(each.address, tree) if each.zone is None else each.zone
        known = (zone,) if zone in zones else ()
        part = 2 if not each.whole else 1 if each.withheld else 0
        parts.setdefault((each.driver, each.pool, known), ([], [], []))[part].append(each.name)
    return tuple(
        DynamicGroup(*key, *map(format_ids, lists)) for key, lists in sorted(parts.items())
    )


def _flat(items: object) -> object:
    """v1beta1's devices in the form of v1."""
    if not isinstance(items, list):
        return items
    for each in items:
        spec = each.get("spec") if isinstance(each, dict) else None
        found = spec.get("devices") if isinstance(spec, dict) else None
        for device in found if isinstance(found, list) else ():
            if isinstance(device, dict) and isinstance(device.get("basic"), dict):
                device.update(device.pop("basic"))
    return items


def _device(spec: _Spec, found: _Device) -> Device:
    attributes = found.attributes or {}
    given = attributes.get(PCI_ADDRESS)
    whole = not found.consumes_counters and not found.allow_multiple_allocations
    withheld = any(taint.effect in ("NoSchedule", "NoExecute") for taint in found.taints or ())
    address = (given.string or "").lower() if given else ""
    return Device(
        spec.driver, spec.pool.name, found.name, address, _zone(attributes), whole, withheld
    )


def _zone(attributes: dict[str, _Attribute]) -> int | None:
    if NUMA_NODE in attributes:
        return _number(attributes[NUMA_NODE])
    told = {_number(value) for name, value in attributes.items() if name.rpartition("/")[2] in OWN}
    return told.pop() if len(told) == 1 else None


def _number(found: _Attribute) -> int | None:
    value = found.ints[0] if isinstance(found.ints, list) and found.ints else found.int
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _zone_of_address(address: str, tree: Tree) -> int | None:
    if not _ADDRESS.fullmatch(address):
        return None
    text = (tree.text(f"bus/pci/devices/{address}/numa_node") or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
