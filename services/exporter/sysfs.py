"""The machine as /sys shows it: NUMA nodes with CPUs, memory, hugepages and distances, by kernel
node id.

Pure: the tree is two functions. Ids may be sparse, and nodes may have no CPUs (CXL, HBM) or no
memory. An amount that the tree does not show is unknown (None, or left out), never 0.

A kernel without NUMA has no `node` folder. Then each physical package is one zone, as cAdvisor
presents such a machine to the kubelet, and /proc/meminfo has the memory of all of them together.

Must not know podresources. Sources: Linux Documentation/ABI/stable/sysfs-devices-node; cAdvisor
utils/sysinfo (GetNodesInfo, getCPUTopology).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import msgspec

from shared.domain.cpus import CpuLayout

NODES = "devices/system/node"
CPUS = "devices/system/cpu"
HUGEPAGES = "kernel/mm/hugepages"
MEMINFO = "/proc/meminfo"
LOCAL_DISTANCE = 10
REMOTE_DISTANCE = 20
MAX_ID = 65_536
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MEM_TOTAL = re.compile(r"MemTotal:\s+(\d{1,18}) kB")
_HUGEPAGES = re.compile(r"hugepages-(\d{1,9})kB")
_NODE = re.compile(r"node(\d{1,5})")


class SysfsError(ValueError):
    """A file of the tree has a format that the kernel does not write.

    The message names the file, its content and the expected format.
    """


class Tree(Protocol):
    """Read access to a /sys tree by paths relative to its root."""

    def text(self, path: str) -> str | None:
        """Return the file's text, or None if there is no such file.

        `/proc/meminfo` is the one path outside of /sys: the file of the same machine.
        """

    def names(self, path: str) -> list[str]:
        """Return the entries of a folder; empty if there is no such folder."""


class NumaNode(msgspec.Struct, frozen=True):
    """One NUMA node.

    Has its online CPUs, total memory in bytes (hugepages included; None if unknown), hugepage pools
    in bytes (sizes that are not shown are left out), and distances by id.
    """

    id: int
    cpus: tuple[int, ...] = ()
    memory_bytes: int | None = None
    hugepages: dict[str, int] = {}
    distances: dict[int, int] = {}


class Machine(msgspec.Struct, frozen=True, dict=True):
    """All NUMA nodes by ascending id, and the layout of their CPUs (None if not read)."""

    nodes: tuple[NumaNode, ...] = ()
    cpus: CpuLayout | None = None

    @cached_property
    def zone_of_cpu(self) -> Mapping[int, int]:
        """CPU id -> NUMA node id."""
        return {cpu: node.id for node in self.nodes for cpu in node.cpus}


def parse_ids(text: str, where: str) -> tuple[int, ...]:
    """Return the ids of a list: `0-2,8` -> (0, 1, 2, 8). Raises SysfsError."""
    ids: set[int] = set()
    for part in text.strip().split(",") if text.strip() else []:
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise SysfsError(f"{where}: {part!r} is not an id or a range of ids such as 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > MAX_ID:
            raise SysfsError(f"{where}: range {part!r} must ascend and end at {MAX_ID} or below")
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))


def read_machine(tree: Tree) -> Machine:
    """Read the machine of a tree. Raises SysfsError for text that the kernel does not write."""
    ids = _online_nodes(tree)
    if not ids:
        return Machine(_without_numa(tree))
    return Machine(tuple(_node(tree, node_id, ids) for node_id in ids))


def package_of(tree: Tree, cpu: int) -> int | None:
    """Return the CPU's physical package, None if unknown. Some virtual machines write -1: 0."""
    number = (tree.text(f"{CPUS}/cpu{cpu}/topology/physical_package_id") or "").strip()
    if not number.removeprefix("-").isdigit() or len(number) > 9:
        return None
    return max(0, int(number))


def _online_nodes(tree: Tree) -> tuple[int, ...]:
    listed = tree.text(f"{NODES}/online")
    if listed is not None:
        return parse_ids(listed, f"{NODES}/online")
    matches = (_NODE.fullmatch(name) for name in tree.names(NODES))
    return tuple(sorted(int(match[1]) for match in matches if match))


def _without_numa(tree: Tree) -> tuple[NumaNode, ...]:
    online = tree.text(f"{CPUS}/online")
    if online is None:
        raise SysfsError(
            f"the tree has neither {NODES} nor {CPUS}/online, so it is not a /sys tree; "
            "check the sysfs root"
        )
    packages: dict[int, list[int]] = {}
    for cpu in parse_ids(online, f"{CPUS}/online"):
        packages.setdefault(package_of(tree, cpu) or 0, []).append(cpu)
    ids = tuple(sorted(packages)) or (0,)
    # /proc/meminfo and the machine's pools do not say which package has how much.
    alone = len(ids) == 1
    memory = _memory_bytes(tree.text(MEMINFO), MEMINFO) if alone else None
    hugepages = _hugepages(tree, HUGEPAGES) if alone else {}
    return tuple(
        NumaNode(
            package,
            tuple(packages.get(package, ())),
            memory,
            hugepages,
            _distances(None, package, ids),
        )
        for package in ids
    )


def _node(tree: Tree, node_id: int, online: tuple[int, ...]) -> NumaNode:
    base = f"{NODES}/node{node_id}"
    return NumaNode(
        node_id,
        parse_ids(tree.text(f"{base}/cpulist") or "", f"{base}/cpulist"),
        _memory_bytes(tree.text(f"{base}/meminfo"), f"{base}/meminfo"),
        _hugepages(tree, f"{base}/hugepages"),
        _distances(tree.text(f"{base}/distance"), node_id, online),
    )


def _memory_bytes(text: str | None, where: str) -> int | None:
    if not text:
        return None
    match = _MEM_TOTAL.search(text)
    if match is None:
        raise SysfsError(f"{where}: the line 'MemTotal: <number> kB' is missing")
    return int(match[1]) * 1024


def _hugepages(tree: Tree, folder: str) -> dict[str, int]:
    pools: dict[int, int] = {}
    for name in tree.names(folder):
        match = _HUGEPAGES.fullmatch(name)
        count = tree.text(f"{folder}/{name}/nr_hugepages") if match else None
        if match is None or count is None:
            continue
        if not count.strip().isdigit():
            raise SysfsError(f"{folder}/{name}/nr_hugepages: {count!r} is not a number of pages")
        page_bytes = int(match[1]) * 1024
        pools[page_bytes] = int(count) * page_bytes
    return {f"hugepages-{_binary_size(size)}": pools[size] for size in sorted(pools)}


def _binary_size(size: int) -> str:
    """Return Kubernetes' canonical size: 2097152 -> 2Mi."""
    step = 0
    while size % 1024 == 0 and step < 3:
        size, step = size // 1024, step + 1
    return f"{size}{('', 'Ki', 'Mi', 'Gi')[step]}"


def _distances(text: str | None, node_id: int, online: tuple[int, ...]) -> dict[int, int]:
    """Return the distances by node id; the j-th number belongs to the j-th *online* node.

    Without a file the kernel's defaults hold.
    """
    words = (text or "").split()
    if not words:
        distances = dict.fromkeys(online, REMOTE_DISTANCE)
        return {**distances, node_id: LOCAL_DISTANCE}
    if len(words) != len(online) or not all(word.isdigit() for word in words):
        raise SysfsError(
            f"{NODES}/node{node_id}/distance: {text!r} does not have one number for each online "
            f"node {online}"
        )
    return dict(zip(online, map(int, words), strict=True))
