"""Reading the shapes of Koordinator's vectors with devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.device_request import (
    ALLOCATE_HINT,
    JOINT_ALLOCATE,
    PARTITION_SPEC,
    device_request,
)
from shared.owned.devices import (
    HOPPER,
    HOPPER_MODELS,
    Device,
    DeviceRequest,
    FreeDevices,
    OwnedDevices,
    Partition,
    Partitions,
    VirtualFunctions,
    free_devices_of,
)
from shared.owned.hints import Hint
from shared.owned.values import Strategy

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
        DeviceHolding(one["type"], one["minor"], one["resources"], dict.fromkeys(one["vfs"], 0))
        for pod in held
        for one in pod["devices"]
    ]
    return free_devices_of(node, holdings)


def _device(doc: Json) -> Device:
    place = doc["topology"] or {"zone": None, "pcie": ""}
    functions = tuple(
        VirtualFunctions(group["labels"], {vf["bus_id"]: 0 for vf in group["vfs"]})
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
    """Return the request, read from the pod's annotations. Raises DeviceRequestError."""
    hints = {
        kind: {
            "selector": _selector(hint["selector"]),
            "vfSelector": _selector(hint["vf_selector"]),
            "allocateStrategy": hint["strategy"],
            "requiredTopologyScope": hint["required_topology_scope"],
            "exclusivePolicy": hint["exclusive_policy"],
        }
        for kind, hint in pod["hints"].items()
    }
    annotations: dict[str, Json] = {ALLOCATE_HINT: hints}
    if joint := pod["joint"]:
        scope = joint["required_scope"]
        annotations[JOINT_ALLOCATE] = {"deviceTypes": joint["types"], "requiredScope": scope}
    if spec := pod["partition_spec"]:
        policy, bandwidth = spec["allocate_policy"], spec["ring_bandwidth"]
        annotations[PARTITION_SPEC] = {"allocatePolicy": policy, "ringBusBandwidth": bandwidth}
    texts = {key: msgspec.json.encode(value).decode() for key, value in annotations.items()}
    return device_request(pod["requests"], texts) or DeviceRequest()


def _selector(labels: Mapping[str, str] | None) -> Json | None:
    return None if labels is None else {"matchLabels": labels}


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
