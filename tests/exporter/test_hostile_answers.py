"""Answers that no kubelet should give: a clear error or a report that holds together, never a
crash, never a leak.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest
from google.protobuf.message import DecodeError

from services.exporter import checkpoints, core, wire
from services.exporter.answers import Allocatable, DeviceGroup, ListedContainer, MemoryBlock
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.service import Exporter
from services.exporter.settings import ExporterSettings
from services.exporter.sysfs import Machine, NumaNode, SysfsError
from services.exporter.sysfs_cpus import read_layout
from shared.bus.memory import MemoryBus
from shared.domain.cpus import CpuLayout
from shared.domain.report import Freshness, Report
from shared.kubelet.checkpoint_devices import device_checkpoint, write_devices
from shared.kubelet.device_state import Device, DeviceState, hold
from tests.exporter.test_core import EVEN_ODD, GPU, pod, report
from tests.exporter.test_sysfs import DictTree

MUTANTS = 10_000
MACHINE = Machine(
    (NumaNode(0, (0, 1, 2, 3), 2**31), NumaNode(1, (4, 5, 6, 7), 2**31), NumaNode(3, (), 2**31))
)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return the data with some bytes changed, lost, doubled or inserted."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        position = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0 if position < len(changed):
                changed[position] = rng.randrange(256)
            case 1:
                del changed[position : position + rng.randint(1, 8)]
            case 2:
                changed[position:position] = changed[position : position + rng.randint(1, 16)]
            case _:
                changed[position:position] = rng.randbytes(rng.randint(1, 10))
    return bytes(changed)


def holds_together(made: Report) -> None:
    ids = {zone.id for zone in made.zones}
    for zone in made.zones:
        for amounts in zone.resources.values():
            assert 0 <= amounts.available <= amounts.allocatable <= amounts.capacity
    for placement in (*(made.placements or ()), *made.hidden):
        assert all(
            ids.issuperset(holding.zones) and holding.amount >= 0 for holding in placement.held
        )
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_mutated_answers_are_errors_or_consistent_reports(recordings: Path) -> None:
    rng = random.Random(12)
    folder = recordings / "03-second-guaranteed-with-hugepages"
    lists, offers = (folder / "list.pb").read_bytes(), (folder / "allocatable.pb").read_bytes()
    stored = [
        (folder / name).read_bytes() for name in ("cpu_manager_state", "memory_manager_state")
    ]
    devices = hold(DeviceState((0, 1), {GPU: {"g": Device(1)}}), "u", "c", GPU, ["g"])
    files = [*stored, write_devices(device_checkpoint(devices))]
    reports = 0
    for number in range(MUTANTS):
        first = number % 2 == 0
        try:
            pods = wire.pods(
                pb.ListPodResourcesResponse.FromString(mutated(rng, lists) if first else lists)
            )
            offered = wire.allocatable(
                pb.AllocatableResourcesResponse.FromString(
                    offers if first else mutated(rng, offers)
                )
            )
        except (DecodeError, ValueError):
            continue
        kept = checkpoints.parse(
            *(mutated(rng, data) if rng.random() < 0.3 else data for data in files)
        )
        node_report = core.report(
            "n1",
            "test",
            core.Scan(Freshness("b", 1), MACHINE, offered, pods, checkpoints=kept),
            core.Rules(),
        )
        holds_together(node_report)
        reports += 1
    assert reports > MUTANTS // 100


def test_a_zone_that_the_machine_lacks_is_no_zone_anywhere() -> None:
    group = DeviceGroup(GPU, ("g",), (1, 9))
    holding = ListedContainer("c", (), (MemoryBlock("memory", (9,), 5),), (group,))
    node_report = report(EVEN_ODD, Allocatable((2,), (), (group,)), pod("p", holding))
    holds_together(node_report)
    assert node_report.devices is not None
    assert node_report.devices[0].zones == (1,)


@pytest.mark.parametrize("size", [2**57, 2**64 - 1])
def test_a_size_that_no_machine_has_is_an_error(size: int) -> None:
    answer = pb.AllocatableResourcesResponse(
        memory=[pb.ContainerMemory(memory_type="memory", size=size)]
    )
    with pytest.raises(ValueError, match="memory"):
        wire.allocatable(answer)


# -- the tree
# --------------------------------------------------------------------------------------------------

CPU = "devices/system/cpu"


def cpus(*groups: tuple[str, str, str]) -> dict[str, str]:
    """Return the files for each (lowest CPU, siblings, socket)."""
    files = {}
    for cpu, siblings, socket in groups:
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = siblings
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = socket
    return files


def test_cores_with_an_offline_sibling_and_sparse_ids_are_read() -> None:
    files = cpus(("0", "0,8", "0"), ("2", "2", "0"), ("8", "0,8", "0"), ("11", "11", "3"))
    layout = read_layout(DictTree(files), {0: 0, 2: 0, 8: 0, 11: 4})
    assert layout == CpuLayout("0,2,8,11", "0x3,4", "0x3,3", "0,2,0,11", "0x3,3")


def test_an_incomplete_column_is_empty() -> None:
    layout = read_layout(DictTree(cpus(("0", "0-1", "0"))), {0: 0, 1: 0, 2: 0})
    assert (layout.zones, layout.sockets, layout.cores, layout.caches) == ("0x3", "", "", "")


def test_a_machine_without_cpus_has_an_empty_layout() -> None:
    assert read_layout(DictTree({}), {}) == CpuLayout()


def test_caches_of_a_part_of_a_zone_are_groups_and_those_of_all_of_it_are_the_sockets() -> None:
    files = cpus(*((str(cpu), str(cpu), "0") for cpu in range(4)))
    for cpu, shared in (("0", "0-1"), ("2", "2-3")):
        files |= {
            f"{CPU}/cpu{cpu}/cache/index3/level": "3",
            f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list": shared,
        }
        files[f"{CPU}/cpu{cpu}/cache/index3/id"] = cpu
    assert read_layout(DictTree(files), dict.fromkeys(range(4), 0)).caches == "0x2,2x2"
    assert read_layout(DictTree(files), {0: 0, 1: 0, 2: 1, 3: 1}).caches == "0x4"


def test_text_that_no_kernel_writes_is_named() -> None:
    with pytest.raises(SysfsError, match="thread_siblings_list"):
        read_layout(DictTree(cpus(("0", "zero", "0"))), {0: 0})


# -- leaks
# --------------------------------------------------------------------------------------------------


async def test_a_kubelet_that_never_answers_costs_no_descriptors(tmp_path: Path) -> None:
    exporter = Exporter(
        MemoryBus(), ExporterSettings(nodes=(f"n1={tmp_path / 'none.sock'},{tmp_path}",))
    )
    await exporter.reporters["n1"].round()
    earlier = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        await exporter.reporters["n1"].round()
    assert len(os.listdir("/proc/self/fd")) <= earlier + 2
    await exporter.close()
