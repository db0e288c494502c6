"""Device objects (scheduling.koordinator.sh/v1alpha1), which koordlet or Topolog's exporter writes:
the GPUs, RDMA and FPGA cards of the node with the same name.

1. Anything may write them, so each entry is read for itself, within limits. An entry that cannot be
   read, or whose type and minor another entry has, counts as unhealthy: the card is known, and
   offers nothing. Entries without a known type and a minor are left out.
2. A card without topology has no zone. The zone -1 stands for every zone, as in Koordinator.
3. The annotation gpu-partitions is the table of GPUs that a fabric connects. A table that cannot be
   read is an empty one that is kept: no whole GPU is given.

Source: Koordinator a7a1b76b, apis/scheduling/v1alpha1/device_types.go and apis/extension.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec

from shared.domain.fields import part
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceType
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kubelet.masks import mask_of
from shared.owned.device_request import GPU_MEMORY, PERCENTAGES, bandwidth
from shared.owned.devices import Device, Partition, Partitions, VirtualFunctions
from shared.owned.request import PodSpecError

GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
HONOR = "Honor"
MODEL_LABEL = "node.koordinator.sh/gpu-model"

# A machine has tens of cards, and a card at most 256 virtual functions.
MOST_DEVICES, MOST_ENTRIES, MOST_TEXT = 256, 256, 253
_RESOURCES = PERCENTAGES | {GPU_MEMORY}

_Text = Annotated[str, msgspec.Meta(max_length=MOST_TEXT)]
_Minor = Annotated[int, msgspec.Meta(ge=0, lt=MOST_DEVICES)]
_Labels = Annotated[dict[_Text, _Text], msgspec.Meta(max_length=64)]


class _Function(msgspec.Struct, rename={"bus_id": "busID"}):
    bus_id: _Text
    # koordlet writes -1.
    minor: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] = 0


class _Group(msgspec.Struct):
    labels: _Labels | None = None
    vfs: Annotated[list[_Function], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None


class _Topology(msgspec.Struct, rename={"node_id": "nodeID", "pcie_id": "pcieID"}):
    node_id: Annotated[int, msgspec.Meta(ge=-1, lt=64)]
    pcie_id: _Text | int = ""


class _Key(msgspec.Struct):
    type: DeviceType
    minor: _Minor


class _Device(_Key, rename={"vf_groups": "vfGroups"}):
    id: _Text = ""
    health: bool = False
    labels: _Labels | None = None
    resources: Annotated[dict[_Text, Any], msgspec.Meta(max_length=64)] | None = None
    topology: _Topology | None = None
    vf_groups: Annotated[list[_Group], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None


class _Partition(msgspec.Struct, rename="camel"):
    minors: Annotated[list[_Minor], msgspec.Meta(min_length=1, max_length=MOST_ENTRIES)]
    ring_bus_bandwidth: str | int | None = None
    allocation_score: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0


_table = msgspec.json.Decoder(
    dict[
        Annotated[int, msgspec.Meta(ge=1, lt=MOST_DEVICES)],
        Annotated[list[_Partition], msgspec.Meta(max_length=MOST_ENTRIES)],
    ]
)


def devices_of(name: str, version: str, obj: dict[str, Any]) -> NodeDevicesObserved:
    """Return the event of a Device object."""
    metadata = part(obj, "metadata")
    devices, problem = _devices(part(obj, "spec").get("devices"))
    partitions, keeps = None, part(metadata, "labels").get(PARTITION_POLICY) == HONOR
    if table := part(metadata, "annotations").get(GPU_PARTITIONS):
        try:
            partitions = _partitions(table)
        except (msgspec.MsgspecError, PodSpecError, RecursionError, TypeError) as error:
            partitions, keeps = {}, True
            problem = problem or f"annotation {GPU_PARTITIONS}: {error}"
    return NodeDevicesObserved(name, version, devices, partitions, keeps, problem)


def _devices(entries: object) -> tuple[tuple[Device, ...], str]:
    """Return the devices by type and minor, and the problem of the first entry that has one."""
    devices, problem = dict[tuple[DeviceType, int], Device](), ""
    listed = entries if isinstance(entries, list) else []
    if len(listed) > MOST_DEVICES:
        return (), f"spec.devices has {len(listed)} entries, more than {MOST_DEVICES}"
    keys = [_key(entry) for entry in listed]
    times = Counter(keys)
    for number, (key, entry) in enumerate(zip(keys, listed, strict=True)):
        if key is None:
            continue
        try:
            if times[key] > 1:
                raise PodSpecError("another entry has this type and minor")
            devices[key] = _device(msgspec.convert(entry, _Device))
        except (msgspec.ValidationError, PodSpecError) as error:
            devices[key] = Device(*key, is_healthy=False)
            problem = problem or f"spec.devices[{number}]: {error}"
    return tuple(devices[key] for key in sorted(devices)), problem


def _key(entry: object) -> tuple[DeviceType, int] | None:
    try:
        key = msgspec.convert(entry, _Key)
    except msgspec.ValidationError:
        return None
    return key.type, key.minor


def _device(entry: _Device) -> Device:
    place = entry.topology
    return Device(
        entry.type,
        entry.minor,
        _amounts(entry.resources or {}),
        None if place is None else place.node_id,
        "" if place is None else str(place.pcie_id),
        entry.labels or {},
        entry.health,
        tuple(
            VirtualFunctions(group.labels or {}, {vf.bus_id: vf.minor for vf in group.vfs or ()})
            for group in entry.vf_groups or ()
        ),
        entry.id,
    )


def _amounts(resources: dict[str, Any]) -> Amounts:
    """Return the amounts of a card. Raises PodSpecError."""
    try:
        amounts = {n: amount(n, text) for n, text in sorted(resources.items()) if n in _RESOURCES}
    except (QuantityError, TypeError, AttributeError) as error:
        raise PodSpecError(f"resources: {error}") from error
    if any(size < 0 for size in amounts.values()):
        raise PodSpecError("resources: a negative amount")
    return amounts


def _partitions(table: str) -> Partitions:
    return {
        size: tuple(
            Partition(
                mask_of(partition.minors),
                partition.allocation_score,
                bandwidth(partition.ring_bus_bandwidth),
            )
            for partition in listed
        )
        for size, listed in sorted(_table.decode(table).items())
    }
