"""Device objects, as koordlet writes them and as anything may write them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.events.codec import encode
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kube.device_objects import GPU_PARTITIONS, MOST_DEVICES, devices_of
from shared.owned.devices import Device, OwnedDevices, Partition, VirtualFunctions, free_devices_of

GIB = 2**30
KOORDLETS: dict[str, Any] = {
    "metadata": {
        "name": "n1",
        "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"},
        "annotations": {
            GPU_PARTITIONS: '{"2":[{"minors":[0,1],"ringBusBandwidth":"1Ki","allocationScore":1}]}'
        },
    },
    "spec": {
        "devices": [
            {
                "type": "rdma",
                "minor": 1,
                "id": "0000:09:00.0",
                "health": True,
                "resources": {"koordinator.sh/rdma": 100},
                "topology": {"socketID": -1, "nodeID": -1, "pcieID": 4, "busID": "0000:09:00.0"},
                "vfGroups": [
                    {"labels": {"a": "b"}, "vfs": [{"minor": -1, "busID": "0000:09:00.3"}]}
                ],
            },
            {
                "type": "gpu",
                "minor": 0,
                "id": "GPU-0",
                "health": True,
                "resources": {"koordinator.sh/gpu-memory": "80Gi", "example.com/other": "x"},
                "topology": {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:3a"},
            },
            {"type": "xpu", "minor": 0, "health": True},
        ]
    },
}


def test_devices_of_koordlet_are_read_in_order() -> None:
    event = devices_of("n1", "7", KOORDLETS)
    functions = (VirtualFunctions({"a": "b"}, {"0000:09:00.3": -1}),)
    card = Device(
        "rdma", 1, {"koordinator.sh/rdma": 100}, -1, "4", functions=functions, id="0000:09:00.0"
    )
    memory = {"koordinator.sh/gpu-memory": 80 * GIB}
    assert event.devices == (Device("gpu", 0, memory, 1, "pci0000:3a", id="GPU-0"), card)
    assert event.partitions == {2: (Partition(0b11, 1, 1024),)}
    assert (event.resource_version, event.keeps_partitions, event.problem) == ("7", True, "")


@pytest.mark.parametrize(
    "change",
    [
        {"resources": {"koordinator.sh/gpu-memory": "-1"}},
        {"resources": {"koordinator.sh/gpu-memory": "1e30"}},
        {"resources": {"koordinator.sh/gpu-memory": ["1"]}},
        {"topology": {"nodeID": 64, "pcieID": ""}},
        {"topology": {"pcieID": "no zone"}},
        {"id": "x" * 300},
        {"vfGroups": [{"vfs": [{"busID": str(at)} for at in range(300)]}]},
    ],
)
def test_a_broken_entry_is_an_unhealthy_device(change: dict[str, Any]) -> None:
    entries = [{**entry, **change} if entry["type"] == "gpu" else entry for entry in _entries()]
    event = devices_of("n1", "7", {"spec": {"devices": entries}})
    assert [(d.type, d.is_healthy) for d in event.devices] == [("gpu", False), ("rdma", True)]
    assert event.problem.startswith("spec.devices[1]: ")


def test_of_two_entries_with_one_key_neither_is_believed() -> None:
    event = devices_of("n1", "7", {"spec": {"devices": [*_entries(), _entries()[1]]}})
    assert [(d.type, d.is_healthy) for d in event.devices] == [("gpu", False), ("rdma", True)]


@pytest.mark.parametrize("table", ["{", '{"2":[{"minors":[-1]}]}', '{"x":[]}', "[" * 100_000, 7])
def test_a_table_that_cannot_be_read_gives_no_whole_gpu(table: Any) -> None:
    event = devices_of("n1", "7", {"metadata": {"annotations": {GPU_PARTITIONS: table}}})
    assert (event.partitions, event.keeps_partitions) == ({}, True)
    assert GPU_PARTITIONS in event.problem


def test_an_object_with_too_many_entries_has_no_devices() -> None:
    entries = [{"type": "gpu", "minor": 0}] * (MOST_DEVICES + 1)
    assert devices_of("n1", "7", {"spec": {"devices": entries}}).devices == ()


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "minor", "health", "resources", "topology", "nodeID", "pcieID", "vfGroups"]
            ),
            inner | st.sampled_from(["gpu", "rdma", "1Gi"]),
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(
    st.fixed_dictionaries(
        {"metadata": json, "spec": json | st.fixed_dictionaries({"devices": json})}
    )
)
@settings(max_examples=150, deadline=None)
def test_any_object_becomes_an_event_that_is_stored_and_used(obj: dict[str, Any]) -> None:
    event = devices_of("n1", "7", obj)
    assert msgspec.json.decode(encode(event), type=NodeDevicesObserved) == event
    free_devices_of(OwnedDevices(event.devices), ())


def _entries() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = KOORDLETS["spec"]["devices"]
    return entries[:2]
