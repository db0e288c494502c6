"""The /sys parser: sparse ids, nodes without CPUs, kernels without NUMA, and texts that no kernel
writes.
"""

from __future__ import annotations

import pytest

from services.exporter.sysfs import Machine, NumaNode, SysfsError, parse_ids, read_machine
from services.exporter.sysfs_cpus import read_layout


class DictTree:
    """A /sys tree in memory."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def text(self, path: str) -> str | None:
        return self._files.get(path)

    def names(self, path: str) -> list[str]:
        inside = (name[len(path) + 1 :] for name in self._files if name.startswith(path + "/"))
        return sorted({name.split("/")[0] for name in inside})


BASE = "devices/system/node"


def tree(**files: str) -> DictTree:
    return DictTree({f"{BASE}/{name.replace('__', '/')}": text for name, text in files.items()})


def test_sparse_ids_take_distances_in_order_of_online_nodes() -> None:
    files = {
        f"{BASE}/online": "0,3\n",
        f"{BASE}/node0/cpulist": "0-2,8\n",
        f"{BASE}/node0/meminfo": "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 3 kB\n",
        f"{BASE}/node0/distance": "10 21\n",
        f"{BASE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
        f"{BASE}/node0/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        f"{BASE}/node3/cpulist": "\n",
        f"{BASE}/node3/distance": "21 10\n",
        f"{BASE}/power": "",
    }
    pools = {"hugepages-2Mi": 3 * 2**21, "hugepages-1Gi": 0}
    first = NumaNode(0, (0, 1, 2, 8), 1024 * 1024, pools, {0: 10, 3: 21})
    assert read_machine(DictTree(files)) == Machine(
        (first, NumaNode(3, (), None, {}, {0: 21, 3: 10}))
    )


def test_nodes_are_listed_by_folder_without_an_online_file() -> None:
    machine = read_machine(tree(node1__cpulist="1", node0__cpulist="0", has_cpu="0-1"))
    assert [node.id for node in machine.nodes] == [0, 1]
    assert machine.nodes[0].distances == {0: 10, 1: 20}


def test_kernel_without_numa_is_one_node() -> None:
    machine = read_machine(DictTree({"devices/system/cpu/online": "0-3\n"}))
    assert machine == Machine((NumaNode(0, (0, 1, 2, 3), distances={0: 10}),))


def without_numa(packages: dict[int, int], **files: str) -> DictTree:
    topology = {
        f"devices/system/cpu/cpu{cpu}/topology/physical_package_id": f"{package}\n"
        for cpu, package in packages.items()
    }
    online = ",".join(map(str, packages))
    return DictTree({**topology, "devices/system/cpu/online": online, **files})


def test_memory_without_numa_is_the_machines_or_unknown_and_never_zero() -> None:
    files = {
        "/proc/meminfo": "MemTotal:       2048 kB\nMemFree: 1 kB\n",
        "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "1\n",
    }
    (node,) = read_machine(without_numa({0: 0, 1: 0}, **files)).nodes
    assert (node.memory_bytes, node.hugepages) == (2048 * 1024, {"hugepages-2Mi": 2 << 20})
    (bare,) = read_machine(without_numa({0: -1, 1: -1})).nodes
    assert (bare.memory_bytes, bare.hugepages) == (None, {})


def test_packages_without_numa_are_the_kubelets_zones() -> None:
    """cAdvisor makes a node of each physical package (getCPUTopology), and so does the kubelet."""
    first, second = read_machine(without_numa({0: 0, 1: 1, 2: 0, 3: 1})).nodes
    assert (first.cpus, second.cpus, second.memory_bytes) == ((0, 2), (1, 3), None)
    assert second.distances == {0: 20, 1: 10}


def test_a_node_without_meminfo_or_page_count_has_no_amount() -> None:
    machine = read_machine(
        tree(online="0", node0__cpulist="0", **{"node0/hugepages/hugepages-2048kB/x": ""})
    )
    assert (machine.nodes[0].memory_bytes, machine.nodes[0].hugepages) == (None, {})


def layout(ids: dict[int, tuple[int, int]], zone_of_cpu: dict[int, int]) -> str:
    """Return the column of cores; `ids` are (core_id, physical_package_id) by CPU."""
    files: dict[str, str] = {}
    for cpu, (core, package) in ids.items():
        base = f"devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{base}/core_id": f"{core}\n", f"{base}/physical_package_id": f"{package}\n"}
        files[f"{base}/thread_siblings_list"] = f"{cpu}\n"
    return read_layout(DictTree(files), zone_of_cpu).cores


def test_cores_are_core_and_package_ids_within_a_zone_as_cadvisor_groups_them() -> None:
    clusters = {cpu: (cpu % 4, 0) for cpu in range(16)}
    assert layout(clusters, dict.fromkeys(range(16), 0)) == "0-3,0-3,0-3,0-3"
    assert layout({0: (0, 0), 1: (0, 1), 2: (0, 0)}, {0: 0, 1: 0, 2: 0}) == "0-1,0"
    assert layout({0: (0, 0), 1: (0, 0)}, {0: 0, 1: 1}) == "0-1"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({}, "check the sysfs root"),
        ({f"{BASE}/online": "0-x"}, "online"),
        ({f"{BASE}/online": "5-2"}, "must ascend"),
        ({f"{BASE}/online": "0", f"{BASE}/node0/distance": "10 20"}, "distance"),
        ({f"{BASE}/online": "0", f"{BASE}/node0/meminfo": "garbage"}, "MemTotal"),
        (
            {f"{BASE}/online": "0", f"{BASE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "-1"},
            "nr_hugepages",
        ),
    ],
)
def test_an_invalid_tree_is_rejected_with_the_file(files: dict[str, str], named: str) -> None:
    with pytest.raises(SysfsError, match=named):
        read_machine(DictTree(files))


def test_empty_list_is_the_empty_set_and_a_huge_range_is_refused() -> None:
    assert parse_ids("\n", "x") == ()
    with pytest.raises(SysfsError, match="must ascend"):
        parse_ids("0-999999", "x")
