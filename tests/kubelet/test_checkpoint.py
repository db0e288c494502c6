"""Checkpoint files of a real kubelet are read and written back byte for byte; a wrong one gets the
kubelet's words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubelet.checkpoint import (
    CheckpointError,
    CpuCheckpoint,
    MemoryCheckpoint,
    read_cpu,
    read_memory,
    write_cpu,
    write_memory,
)
from shared.kubelet.checkpoint_devices import (
    DeviceCheckpoint,
    DeviceEntry,
    device_checkpoint,
    read_devices,
    write_devices,
)
from shared.kubelet.device_state import Device, DeviceState, hold, register
from shared.kubelet.memory_state import (
    Block,
    MemoryConfig,
    MemoryTable,
    NodeMemory,
    NodeMemoryConfig,
    initial,
    restored,
)

MOMENTS = sorted((Path(__file__).parent / "data" / "checkpoints").iterdir())
by_moment = pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)

PUBLISHED = [
    b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0'
    b'"]}},"Checksum":3952659280}',
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRl'
    b'Z3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}',
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65",'
    b'"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1i'
    b"MzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRpYWN0bBIO"
    b"L2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0tdG9vbHMSFS9k"
    b"ZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2Rldi9udmlkaWEx"
    b'EgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],"RegisteredDevices":{"nvidia.com/gpu":['
    b'"GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65",'
    b'"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}',
]


@by_moment
def test_cpu_state_survives_byte_for_byte(moment: Path) -> None:
    recorded = (moment / "cpu_manager_state").read_bytes()
    read = read_cpu(recorded, policy="static")
    assert isinstance(read, CpuCheckpoint)
    assert write_cpu(read) == recorded


@by_moment
def test_memory_state_survives_byte_for_byte(moment: Path) -> None:
    recorded = (moment / "memory_manager_state").read_bytes()
    read = read_memory(recorded, policy="Static")
    assert isinstance(read, MemoryCheckpoint)
    assert write_memory(read) == recorded


@by_moment
def test_memory_state_of_the_real_machine_is_accepted_at_start(moment: Path) -> None:
    read = read_memory((moment / "memory_manager_state").read_bytes())
    assert isinstance(read, MemoryCheckpoint)
    pages = ((2**30, 0), (2**21, 64))
    totals = (2044428288, 2077704192)
    config = MemoryConfig(
        "Static",
        tuple(
            NodeMemoryConfig(i, total, pages, {"memory": 200 * 2**20})
            for i, total in enumerate(totals)
        ),
    )
    assert not isinstance(restored(config, read.nodes, read.entries), str)
    grown = MemoryConfig(
        "Static", (config.nodes[0], NodeMemoryConfig(1, 2**32, pages, {"memory": 200 * 2**20}))
    )
    refusal = "[memorymanager] the expected machine state is different from the real one"
    assert restored(grown, read.nodes, read.entries) == refusal


@pytest.mark.parametrize("recorded", PUBLISHED, ids=["none", "no-node", "one-node"])
def test_published_device_states_survive_byte_for_byte(recorded: bytes) -> None:
    read = read_devices(recorded)
    assert isinstance(read, DeviceCheckpoint)
    assert write_devices(read) == recorded


def test_checksums_equal_the_ones_computed_by_the_real_code() -> None:
    cpu = CpuCheckpoint(
        "static", 0b1001111, {"uid-b": {"c1": 0b110000}, "uid-a": {"c1": 1 << 7, "c0": 1 << 8}}
    )
    assert json.loads(write_cpu(cpu))["checksum"] == 433060693
    table = MemoryTable(total=10, system_reserved=1, allocatable=9, reserved=2, free=7)
    blocks = {"uid-a": {"c0": (Block(1, 2, "memory"),)}}
    memory = MemoryCheckpoint("Static", {0: NodeMemory(1, 1, {"memory": table})}, blocks)
    assert json.loads(write_memory(memory))["checksum"] == 3749671400


def _error(read: object) -> str:
    assert isinstance(read, CheckpointError)
    return str(read)


def test_a_changed_byte_is_noticed() -> None:
    cpu = (MOMENTS[1] / "cpu_manager_state").read_bytes()
    assert "checkpoint is corrupted" in _error(read_cpu(cpu.replace(b'"c":"1-2"', b'"c":"1-3"')))
    memory = (MOMENTS[1] / "memory_manager_state").read_bytes()
    assert (
        _error(read_memory(memory.replace(b'"size":134217728', b'"size":134217729')))
        == "checkpoint is corrupted"
    )
    assert (
        _error(read_devices(PUBLISHED[1].replace(b"tegra", b"terra", 1)))
        == "checkpoint is corrupted"
    )


def test_a_corrupt_cpu_state_is_refused_in_the_kubelets_words() -> None:
    """The kubelet falls back to the old format, and its message is about that one if there are
    entries.
    """
    empty = read_cpu(b'{"policyName":"static","defaultCpuSet":"0-3","checksum":7}')
    assert isinstance(empty, CheckpointError)
    assert empty.message == "checkpoint is corrupted"
    filled = read_cpu(
        b'{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":{"c":"4"}},"checksum":7}'
    )
    assert isinstance(filled, CheckpointError)
    assert filled.message.startswith(
        "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries"
    )


def test_a_state_of_another_policy_is_refused() -> None:
    cpu = (MOMENTS[1] / "cpu_manager_state").read_bytes()
    assert _error(read_cpu(cpu, policy="none")).startswith(
        'configured policy "none" differs from state checkpoint policy "static"'
    )
    memory = (MOMENTS[1] / "memory_manager_state").read_bytes()
    assert "[memorymanager] configured policy" in _error(read_memory(memory, policy="None"))


def test_files_without_checksum_of_old_kubelets_are_accepted() -> None:
    assert read_cpu(b'{"policyName":"none","defaultCpuSet":""}') == CpuCheckpoint("none", 0, {})
    assert isinstance(
        read_memory(b'{"policyName":"None","machineState":{},"checksum":0}'), MemoryCheckpoint
    )


def _as_kubelet_1_37_writes(old: bytes) -> bytes:
    """Return the state as kubelet 1.37 writes it: the same form, and the counted part once more as
    text (kubernetes PR 139102).
    """
    decoded = json.loads(old)
    data = json.dumps({key: value for key, value in decoded.items() if key != "checksum"})
    return json.dumps({**decoded, "data": data, "dataChecksum": 1}).encode()


@by_moment
def test_a_newer_kubelets_state_is_read(moment: Path) -> None:
    """The old format may be next to the new one, or absent."""
    states: tuple[tuple[str, Callable[[bytes], object]], ...] = (
        ("cpu", read_cpu),
        ("memory", read_memory),
    )
    for name, read in states:
        old = (moment / f"{name}_manager_state").read_bytes()
        new = _as_kubelet_1_37_writes(old)
        assert not isinstance(read(old), CheckpointError)
        assert read(new) == read(old)
        assert read(json.dumps({"data": json.loads(new)["data"]}).encode()) == read(old)
        assert _error(read(b'{"policyName":"static","data":"{"}')).startswith("json: ")


@pytest.mark.parametrize("read", [read_cpu, read_memory])
def test_a_state_of_an_unknown_form_does_not_mean_that_nothing_is_held(
    read: Callable[[bytes], object],
) -> None:
    assert "it names no policy" in _error(read(b'{"version":5,"state":"..."}'))


def test_a_cpu_list_that_is_none_is_named() -> None:
    wrong = read_cpu(b'{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":{"c":"x"}}}')
    assert 'could not parse cpuset "x" for container "c" in pod "u"' in _error(wrong)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = [
    "policyName",
    "defaultCpuSet",
    "entries",
    "checksum",
    "machineState",
    "data",
    "Data",
    "Checksum",
    "PodDeviceEntries",
]


@given(
    st.one_of(
        st.binary(max_size=60), st.dictionaries(st.sampled_from(keys), json_values, max_size=5)
    )
)
def test_any_bytes_are_a_checkpoint_or_an_error(content: bytes | dict[str, object]) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    assert isinstance(read_cpu(data), CpuCheckpoint | CheckpointError)
    assert isinstance(read_memory(data), MemoryCheckpoint | CheckpointError)
    assert isinstance(read_devices(data), DeviceCheckpoint | CheckpointError)


names = st.text(min_size=1, max_size=8)
cpu_sets = st.integers(0, 2**20)


@given(st.dictionaries(names, st.dictionaries(names, cpu_sets, max_size=3), max_size=4), cpu_sets)
def test_a_written_checkpoint_reads_back(entries: dict[str, dict[str, int]], default: int) -> None:
    checkpoint = CpuCheckpoint("static", default, entries)
    assert read_cpu(write_cpu(checkpoint)) == checkpoint


def test_a_written_checkpoint_of_devices_reads_back() -> None:
    devices = {
        "a": Device(0b01),
        "b": Device(0b11),
        "c": Device(None),
        "d": Device(0b10, healthy=False),
    }
    state = register(DeviceState((0, 1)), "example.com/gpu", devices)
    state = hold(state, "u", "c0", "example.com/gpu", ["a", "b", "c"])
    written = device_checkpoint(state)
    assert written.entries == (
        DeviceEntry("u", "c0", "example.com/gpu", {-1: ("c",), 0: ("a", "b"), 1: ("b",)}),
    )
    assert written.registered == {"example.com/gpu": ("a", "b", "c")}
    assert read_devices(write_devices(written)) == written


def test_a_checkpoint_without_machine_state_starts_empty_unless_it_has_assignments() -> None:
    config = MemoryConfig("Static", (NodeMemoryConfig(0, 1000, (), {"memory": 1}),))
    assert restored(config, {}, {}) == initial(config)
    refusal = restored(config, {}, {"u": {"c": (Block(1, 5, "memory"),)}})
    assert (
        refusal == "[memorymanager] machine state can not be empty when it has memory assignments"
    )


@pytest.mark.parametrize(
    ("block", "missing"),
    [(Block(0b10, 5, "memory"), "the NUMA"), (Block(1, 5, "hugepages-2Mi"), "memory resource")],
)
def test_an_assignment_that_the_machine_cannot_have_is_named(block: Block, missing: str) -> None:
    config = MemoryConfig("Static", (NodeMemoryConfig(0, 1000, (), {"memory": 1}),))
    refusal = restored(config, initial(config).nodes, {"u": {"c": (block,)}})
    assert refusal == (
        f"[memorymanager] (pod: u, container: c) the memory assignment uses {missing} "
        "that does not exist"
    )
