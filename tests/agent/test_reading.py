"""Annotations, paths of cgroups, and the bytes of the socket, as they come from outside."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent import cgroups, ttrpc, wishes
from services.agent.core import Cpuset
from services.agent.ttrpc import Message, ProtocolError
from services.agent.wishes import NOTHING, Wish
from shared.domain.zone_allocation import (
    MEMORY_POLICY,
    RESOURCE_STATUS,
    ZoneAllocation,
    annotations_of,
)

# The value as Koordinator writes it (apis/extension/resource.go, ResourceStatus).
EXAMPLE = (
    '{"cpuset":"0-3,16-19","numaNodeResources":'
    '[{"node":0,"resources":{"cpu":"8","memory":"16Gi"}}]}'
)


def status(**record: object) -> dict[str, str]:
    return {RESOURCE_STATUS: json.dumps(record)}


def zone(node: int, *resources: str) -> dict[str, object]:
    return {"node": node, "resources": dict.fromkeys(resources, "1")}


@pytest.mark.parametrize(
    ("annotations", "labels", "wish"),
    [
        ({}, {}, NOTHING),
        ({RESOURCE_STATUS: EXAMPLE}, {}, Wish(cpus=0xF000F)),
        ({RESOURCE_STATUS: EXAMPLE}, {MEMORY_POLICY: "bind"}, Wish(cpus=0xF000F, memory=1)),
        (
            {RESOURCE_STATUS: EXAMPLE, MEMORY_POLICY: "none"},
            {MEMORY_POLICY: "bind"},
            Wish(cpus=0xF000F),
        ),
        (status(numaNodeResources=[zone(0, "cpu"), zone(2, "cpu")]), {}, Wish(zones=0b101)),
        (
            status(numaNodeResources=[zone(1, "hugepages-2Mi")]) | {MEMORY_POLICY: "bind"},
            {},
            Wish(memory=0b10),
        ),
    ],
)
def test_annotations_are_read(
    annotations: dict[str, str], labels: dict[str, str], wish: Wish
) -> None:
    assert wishes.read(annotations, labels, "record") == wish


def one_zone(node: int) -> str:
    return json.dumps({"numaNodeResources": [zone(node, "cpu")]})


UNREADABLE = {
    "no JSON": "{",
    "deep": '{"x":' + "[" * 9000,
    "long": "0" * 30_000,
    "no CPUs": '{"cpuset":"a"}',
    "a number": '{"cpuset":7}',
    "zone 5000": one_zone(5000),
    "zone -1": one_zone(-1),
}


def test_the_agent_reads_what_the_binder_writes() -> None:
    zones = {0: {"cpu": 2000, "memory": 1 << 30}, 2: {"cpu": 1500, "memory": 1 << 30}}
    annotations = annotations_of(ZoneAllocation(zones, "0-1,4", memory_policy="bind"))
    assert wishes.read(annotations, {}, "record") == Wish(cpus=0b10011, memory=0b101)
    assert wishes.read(annotations_of(ZoneAllocation(zones)), {}, "record") == Wish(zones=0b101)


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_annotation_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"annotation scheduling\.koordinator\.sh/resource-status"):
        wishes.read({RESOURCE_STATUS: text}, {}, "record")


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/kubepods/pod1/abc", "kubepods/pod1/abc"),
        (
            "kubepods-burstable-pod1_2.slice:cri-containerd:abc",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/"
            "cri-containerd-abc.scope",
        ),
        ("kubepods.slice:crio:abc", "kubepods.slice/crio-abc.scope"),
        ("kubepods-pod1.slice", "kubepods.slice/kubepods-pod1.slice"),
    ],
)
def test_the_folder_of_a_container(path: str, folder: str) -> None:
    assert cgroups.folder(path) == folder


def test_both_versions_of_cgroups_are_measured() -> None:
    second = {
        "cgroup.controllers": "cpuset cpu",
        "a/b/cpuset.cpus.effective": "0-2\n",
        "a/b/cpuset.mems.effective": "0\n",
    }
    first = {
        "cpuset/a/b/cpuset.effective_cpus": "0-2\n",
        "cpuset/a/b/cpuset.effective_mems": "0\n",
    }
    for files in (first, second):
        assert cgroups.measure(files.get, "/a/b") == Cpuset(0b111, 0b1)
        assert cgroups.measure(files.get, "/a/c") is None
        assert cgroups.measure(files.get, "") is None


MESSAGES = st.builds(
    Message,
    st.sampled_from([ttrpc.PLUGIN, ttrpc.RUNTIME]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([ttrpc.REQUEST, ttrpc.RESPONSE]),
    st.binary(max_size=40) | st.integers(4000, 9000).map(bytes),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(MESSAGES, max_size=6), st.integers(1, 5000))
def test_messages_survive_any_cut(messages: list[Message], size: int) -> None:
    data = b"".join(map(ttrpc.encode, messages))
    decoder = ttrpc.Decoder()
    parts = (data[start : start + size] for start in range(0, len(data), size))
    assert [message for part in parts for message in decoder.feed(part)] == messages


@settings(max_examples=60, deadline=None)
@given(MESSAGES)
def test_no_frame_is_longer_than_the_runtime_can_read(message: Message) -> None:
    data, lengths = ttrpc.encode(message), []
    while data:
        lengths.append(int.from_bytes(data[4:8], "big"))
        data = data[8 + lengths[-1] :]
    assert max(lengths) <= 4096
    assert all(length == 4096 for length in lengths[:-1])


@pytest.mark.parametrize(
    "data",
    [
        bytes([0, 0, 0, 1, 0xFF, 0, 0, 0]),
        bytes([0, 0, 0, 1, 0, 0, 0, 10, 0xFF, 0, 0, 0, 0, 0, 0, 1, 1, 0]),
        bytes([0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 9, 0]),
    ],
)
def test_bytes_of_another_protocol_end_the_connection(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ttrpc.Decoder().feed(data)


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError):
        ttrpc.encode(Message(1, 1, 1, bytes(ttrpc.MAX_MESSAGE + 1)))
