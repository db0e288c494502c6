"""The machines of a simulated cluster: every policy, scope and number of zones starts, and its
files say the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from services.exporter import folders, kubelet_config
from services.exporter.sysfs import read_machine
from services.simulator import kubelet, machine_files, workload
from services.simulator.cluster import (
    NIC,
    NodeShape,
    Policies,
    lay_out,
    split,
    uniform,
    zone_hugepages,
)


@pytest.mark.parametrize("zones", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_demo_machine_starts_a_kubelet(zones: int, policy: str, scope: str) -> None:
    node = lay_out("n", workload.demo_shape(zones), Policies(policy, scope))
    state = kubelet.start(node).state
    assert state.kubelet.cpu.reserved.bit_count() == max(2, zones)
    assert len(state.memory.nodes) == zones


@pytest.mark.parametrize("zones", [1, 2, 8, 16])
def test_files_describe_the_machine(tmp_path: Path, zones: int) -> None:
    node = lay_out("n", workload.demo_shape(zones), Policies("restricted", "pod"))
    (files,) = machine_files.places(tmp_path, tmp_path, (node,))
    machine_files.write(node, files)
    machine = read_machine(folders.FolderTree(files.sysfs))
    for zone, read in zip(node.machine.zones, machine.nodes, strict=True):
        assert read.id == zone.id
        assert read.memory_bytes == zone.memory_bytes
        assert tuple(read.distances.values()) == zone.distances
        assert read.hugepages == zone_hugepages(zone)
        assert set(read.cpus) == {cpu.id for cpu in node.machine.cpus if cpu.numa == zone.id}
    events = kubelet_config.parse((files.kubelet_dir / "config.yaml").read_bytes(), "config")
    assert (events.policy, events.scope) == ("restricted", "pod")
    assert events.max_numa_nodes == max(8, zones)
    assert folders.boot_id(files.sysfs, None) == machine_files.boot_id("n", str(files.sysfs))


def test_odd_ones_go_to_the_first_zones() -> None:
    assert split(7, 3) == [3, 2, 2]
    node = lay_out("n", NodeShape(3, 10, 7 * 2**20, {NIC: 4}), Policies())
    assert [device.mask for device in node.devices[NIC].values()] == [1, 1, 2, 4]


def test_node_without_room_for_pods_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="node tiny: 2 CPUs on 2 zones"):
        lay_out("tiny", NodeShape(2, 2), Policies())


def test_names_sort_as_they_count() -> None:
    nodes = uniform(1200, NodeShape(), Policies())
    assert [node.name for node in nodes] == sorted(node.name for node in nodes)


def test_long_data_folder_gets_its_sockets_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    sockets = machine_files.socket_folder(deep)
    assert len(bytes(sockets / "99999.sock")) <= machine_files.MAX_SOCKET_BYTES
    assert deep not in sockets.parents
    sockets.rmdir()
