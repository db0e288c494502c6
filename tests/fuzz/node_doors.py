"""Inputs of the exporter on its node: the /sys tree and ResourceSlices. Each becomes a report,
which the store then reads, and whose zones must add up.
"""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from services.exporter import core, slices
from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.sysfs import Machine, SysfsError, read_machine
from services.exporter.sysfs_cpus import read_layout
from services.topology_store import validation
from shared.bus import subjects
from shared.domain.dynamic import PREFIX
from shared.domain.report import ClaimedDevice, Freshness, Report
from shared.kube.nrt import to_nrt
from tests.fuzz.door import Door
from tests.fuzz.mutation import as_json

MIB = 1 << 20


class Files:
    """A /sys tree of texts by path. A link is the name of its target."""

    def __init__(self, files: dict[str, Any]) -> None:
        self._files = {path: text for path, text in files.items() if isinstance(text, str)}

    def text(self, path: str) -> str | None:
        return self._files.get(path)

    def target(self, path: str) -> str:
        return self._files.get(path, path).rpartition("/")[2]

    def names(self, path: str) -> list[str]:
        inside = (
            file.removeprefix(f"{path}/") for file in self._files if file.startswith(f"{path}/")
        )
        return sorted({each.partition("/")[0] for each in inside})


def _tree() -> dict[str, Any]:
    """Return a tree with zones 0 and 2 of four CPUs, CPU 5 offline, zone 7 with memory only (CXL),
    two NICs and a VFIO group.
    """
    node, cpu = "devices/system/node", "devices/system/cpu"
    files = {f"{node}/online": "0,2,7\n", f"{cpu}/online": "0-4,6-7\n"}
    for zone, cpus in ((0, "0-3"), (2, "4,6-7"), (7, "")):
        distances = " ".join("10" if other == zone else "21" for other in (0, 2, 7))
        files |= {
            f"{node}/node{zone}/cpulist": cpus + "\n",
            f"{node}/node{zone}/distance": distances + "\n",
            f"{node}/node{zone}/meminfo": f"Node {zone} MemTotal:  1048576 kB\n",
            f"{node}/node{zone}/hugepages/hugepages-2048kB/nr_hugepages": "64\n",
        }
    for number in (0, 1, 2, 3, 4, 6, 7):
        base = f"{cpu}/cpu{number}"
        files |= {
            f"{base}/topology/core_id": f"{number // 2}\n",
            f"{base}/topology/physical_package_id": f"{number // 4}\n",
            f"{base}/cache/index3/level": "3\n",
            f"{base}/cache/index3/shared_cpu_list": "0-3\n" if number < 4 else "4,6-7\n",
        }
    for address, device_zone in (("0000:3b:02.0", 0), ("0000:af:02.0", -1)):
        base = f"bus/pci/devices/{address}"
        files |= {
            f"{base}/vendor": "0x8086\n",
            f"{base}/numa_node": f"{device_zone}\n",
            f"{base}/driver": "drivers/iavf",
        }
    return {
        **files,
        "kernel/iommu_groups/17/devices/0000:af:02.0": "",
        "dev/char/226:128/device": "x/0000:3b:02.0",
    }


_FILES = _tree()
_DOCUMENTS = [_FILES]


def _judge(machine: Machine, allocatable: Allocatable, container: ListedContainer) -> None:
    pods = (ListedPod("default", "p", (container,)),)
    node_report = core.report(
        "n1", "e", core.Scan(Freshness("boot", 5), machine, allocatable, pods), core.Rules()
    )
    validation.read(subjects.report("n1"), msgspec.json.encode(node_report))
    for zone in node_report.zones:
        for name, resource in zone.resources.items():
            assert 0 <= resource.available <= resource.allocatable <= resource.capacity, (
                zone.id,
                name,
                resource,
            )


def _allocatable(machine: Machine) -> Allocatable:
    cpus = tuple(cpu for cpu in sorted(machine.zone_of_cpu) if cpu)
    blocks = tuple(
        MemoryBlock("memory", (node.id,), node.memory_bytes or 0) for node in machine.nodes
    )
    devices = tuple(
        DeviceGroup("vendor.example/nic", (f"nic-{node.id}",), (node.id,)) for node in machine.nodes
    )
    return Allocatable(cpus, blocks, devices)


def _read_tree(data: bytes) -> None:
    try:
        files = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    tree = Files(files if isinstance(files, dict) else {})
    machine = read_machine(tree)
    machine = msgspec.structs.replace(machine, cpus=read_layout(tree, machine.zone_of_cpu))
    _judge(
        machine,
        _allocatable(machine),
        ListedContainer("c", (1, 2), (MemoryBlock("memory", (0, 2), MIB),)),
    )


def _slices() -> dict[str, Any]:
    """Return a list of ResourceSlices of two drivers for one node, one of an older API version."""
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 2, "resourceSliceCount": 1},
    }
    whole = {
        "name": "gpu-0",
        "attributes": {slices.NUMA_NODE: {"int": 0}, "gpu.example.com/model": {"string": "x"}},
    }
    by_address = {
        "name": "gpu-1",
        "attributes": {slices.PCI_ADDRESS: {"string": "0000:3b:02.0"}},
        "taints": [{"effect": "NoSchedule"}],
    }
    part = {
        "name": "part-0",
        "attributes": {"numaNode": {"int": 2}},
        "consumesCounters": [{"counterSet": "g"}],
    }
    old = {
        "name": "eth0",
        "basic": {
            "attributes": {"dra.net/numaNode": {"int": 7}},
            "allowMultipleAllocations": False,
        },
    }
    other_slice = {
        "driver": "dra.net",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1},
        "devices": [old],
    }
    return {
        "items": [{"spec": {**spec, "devices": [whole, by_address, part]}}, {"spec": other_slice}]
    }


_SLICES = _slices()


def _read_slices(data: bytes) -> None:
    """Check that no list of slices makes a report that the store refuses, because then any author
    of slices could exclude the node.
    """
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    tree = Files(_FILES)
    machine = read_machine(tree)
    devices = slices.devices(
        document.get("items") if isinstance(document, dict) else document, "n1"
    )
    dynamic = slices.groups(devices, tree, frozenset(node.id for node in machine.nodes))
    claims = (
        ClaimedDevice("default/c", "gpu.example.com", "n1", "gpu-0", cdi=("vendor.com/gpu=0",)),
    )
    pods = (ListedPod("default", "p", (ListedContainer("c", claims=claims),)),)
    scan = core.Scan(Freshness("boot", 5), machine, _allocatable(machine), pods, dynamic=dynamic)
    node_report = core.report("n1", "e", scan, core.Rules())
    read = validation.read(subjects.report("n1"), msgspec.json.encode(node_report))
    assert isinstance(read, Report), read
    for zone in to_nrt(node_report)["zones"]:
        for resource in zone["resources"]:
            if resource["name"].startswith(PREFIX):
                assert (
                    0
                    <= int(resource["available"])
                    <= int(resource["allocatable"])
                    <= int(resource["capacity"])
                ), resource


def _make_tree(rng: random.Random) -> bytes:
    """Make mostly trees with missing files and wrong texts, because the reader would reject nearly
    every tree that is altered as a document.
    """
    if rng.random() < 0.2:
        return as_json(rng, _FILES, _DOCUMENTS)
    files = {path: text for path, text in _FILES.items() if rng.random() > 0.05}
    for path in rng.sample(sorted(files), min(len(files), rng.randrange(4))):
        files[path] = rng.choice(
            [
                "",
                "\n",
                "-1\n",
                "0-3\n",
                "7,2\n",
                "99999999999999999999\n",
                "0-65536\n",
                "x",
                "\0",
                "1 2 3",
            ]
        )
    return json.dumps(files).encode()


DOORS = (
    Door("sysfs", "a /sys tree with holes, at the exporter", _make_tree, _read_tree, (SysfsError,)),
    Door("slices", "ResourceSlices of a node, at the exporter",
         lambda rng: as_json(rng, _SLICES, _DOCUMENTS), _read_slices, (slices.SliceError,)),
)  # fmt: skip
