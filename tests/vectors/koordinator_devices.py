"""Reading the shapes of Koordinator's vectors with devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.device_request import device_amounts, gpu_needs
from shared.owned.devices import (
    GPU,
    HOPPER,
    HOPPER_MODELS,
    Device,
    DeviceHint,
    DeviceRequest,
    FreeDevices,
    OwnedDevices,
    Partition,
    Partitions,
    PartitionSpec,
    VirtualFunctions,
    free_devices_of,
)
from shared.owned.hints import Hint
from shared.owned.values import DeviceHolding, DeviceType, Strategy

Json = dict[str, Any]


def with_devices(doc: Json) -> Iterator[Json]:
    """Yield the cases of a file, each with the devices of the machine that it names."""
    for case in doc["cases"]:
        yield {**case, "devices": doc["machines"][case["machine"]]} if "machine" in case else case


def free_devices(doc: Json, held: list[Json], strategy: str) -> FreeDevices:
    node = OwnedDevices(
        tuple(map(_device, doc["devices"])),
        _partitions(doc),
        # Koordinator asks the Device object, except for a built-in table.
        doc["honor_partitions"] and doc["partitions"] is not None,
        cast(Strategy, strategy),
    )
    holdings = [
        DeviceHolding(one["type"], one["minor"], one["resources"], tuple(one["vfs"]))
        for pod in held
        for one in pod["devices"]
    ]
    return free_devices_of(node, holdings)


def _device(doc: Json) -> Device:
    place = doc["topology"] or {"zone": None, "pcie": ""}
    functions = tuple(
        VirtualFunctions(group["labels"], tuple(vf["bus_id"] for vf in group["vfs"]))
        for group in doc["vf_groups"] or ()
    )
    return Device(
        doc["type"],
        doc["minor"],
        doc["resources"],
        place["zone"],
        place["pcie"],
        doc["labels"],
        doc["healthy"],
        functions,
    )


def _partitions(doc: Json) -> Partitions | None:
    if doc["partitions"] is None:
        return HOPPER if doc["gpu_model"] in HOPPER_MODELS else None
    return {
        int(size): tuple(
            Partition(mask_of(one["minors"]), one["allocation_score"], one["ring_bandwidth"])
            for one in listed
        )
        for size, listed in doc["partitions"].items()
    }


def request_of_devices(pod: Json) -> DeviceRequest:
    """Return the request. Raises DeviceRequestError."""
    amounts = device_amounts(pod["requests"])
    hints = {
        cast(DeviceType, kind): DeviceHint(
            hint["selector"],
            hint["vf_selector"],
            hint["strategy"],
            hint["required_topology_scope"],
            hint["exclusive_policy"],
        )
        for kind, hint in pod["hints"].items()
    }
    spec, joint = pod["partition_spec"], pod["joint"] or {"types": [], "required_scope": ""}
    return DeviceRequest(
        amounts,
        gpu_needs(amounts.get(GPU, {})),
        hints,
        tuple(
            kind
            for kind in joint["types"]
            if kind in amounts and hints.get(kind, DeviceHint()).strategy != "ApplyForAll"
        ),
        joint["required_scope"] == "SamePCIe",
        None
        if spec is None
        else PartitionSpec(spec["allocate_policy"] == "Restricted", spec["ring_bandwidth"]),
    )


def holdings_json(holdings: Sequence[DeviceHolding]) -> list[Json]:
    return [
        {
            "type": holding.type,
            "minor": holding.minor,
            "resources": dict(holding.resources),
            "vfs": list(holding.functions),
        }
        for holding in holdings
    ]


def device_hints_json(hints: Mapping[str, list[Hint]]) -> Json:
    return {
        kind: [
            {"mask": list(nodes_of(h.mask or 0)), "preferred": h.preferred, "score": h.score}
            for h in listed
        ]
        for kind, listed in hints.items()
    }
