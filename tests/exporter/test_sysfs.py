"""The /sys parser: sparse ids, nodes without CPUs, kernels without NUMA, and texts that no kernel
writes.
"""

from __future__ import annotations

import pytest

from services.exporter.sysfs import Machine, NumaNode, SysfsError, parse_ids, read_machine


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


def test_nodes_are_found_by_folder_when_no_online_file_is_there() -> None:
    machine = read_machine(tree(node1__cpulist="1", node0__cpulist="0", has_cpu="0-1"))
    assert [node.id for node in machine.nodes] == [0, 1]
    assert machine.nodes[0].distances == {0: 10, 1: 20}


def test_kernel_without_numa_is_one_node() -> None:
    machine = read_machine(DictTree({"devices/system/cpu/online": "0-3\n"}))
    assert machine == Machine((NumaNode(0, (0, 1, 2, 3), distances={0: 10}),))


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
def test_a_tree_that_no_kernel_writes_is_refused_by_name(files: dict[str, str], named: str) -> None:
    with pytest.raises(SysfsError, match=named):
        read_machine(DictTree(files))


def test_empty_list_is_the_empty_set_and_a_huge_range_is_refused() -> None:
    assert parse_ids("\n", "x") == ()
    with pytest.raises(SysfsError, match="must ascend"):
        parse_ids("0-999999", "x")
