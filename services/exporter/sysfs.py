"""The machine as /sys describes it: NUMA nodes with CPUs, memory, hugepages and distances, by the
kernel's node ids.

Pure: the tree is given as two functions. Ids may be sparse, nodes may have no CPUs (CXL, HBM) or no
memory, and a kernel without NUMA has no `node` folder: then one synthetic node 0 stands for the
machine. Must not know podresources. Source: Linux Documentation/ABI/stable/sysfs-devices-node.
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
LOCAL_DISTANCE = 10
REMOTE_DISTANCE = 20
MAX_ID = 65_536
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MEM_TOTAL = re.compile(r"MemTotal:\s+(\d{1,18}) kB")
_HUGEPAGES = re.compile(r"hugepages-(\d{1,9})kB")
_NODE = re.compile(r"node(\d{1,5})")


class SysfsError(ValueError):
    """The tree contradicts the kernel's formats; the message names the file, what it holds and what
    was expected.
    """


class Tree(Protocol):
    """Read access to a /sys tree by paths relative to its root."""

    def text(self, path: str) -> str | None:
        """The file's text, or None when there is no such file."""

    def names(self, path: str) -> list[str]:
        """The entries of a folder; empty when there is no such folder."""


class NumaNode(msgspec.Struct, frozen=True):
    """One NUMA node: online CPUs, total memory in bytes (hugepage pool included), hugepage pools in
    bytes, distances by id.
    """

    id: int
    cpus: tuple[int, ...] = ()
    memory_bytes: int = 0
    hugepages: dict[str, int] = {}
    distances: dict[int, int] = {}


class Machine(msgspec.Struct, frozen=True, dict=True):
    """All NUMA nodes, by ascending id, and how their CPUs nest (None: not read)."""

    nodes: tuple[NumaNode, ...] = ()
    cpus: CpuLayout | None = None

    @cached_property
    def zone_of_cpu(self) -> Mapping[int, int]:
        """CPU id -> NUMA node id."""
        return {cpu: node.id for node in self.nodes for cpu in node.cpus}


def parse_ids(text: str, where: str) -> tuple[int, ...]:
    """`0-2,8` -> (0, 1, 2, 8); an empty line is the empty set. Raises SysfsError."""
    ids: set[int] = set()
    for part in text.strip().split(",") if text.strip() else []:
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise SysfsError(f"{where}: {part!r} is no id or range of ids like 0-3,8")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last > MAX_ID:
            raise SysfsError(f"{where}: range {part!r} must ascend and stay at or below {MAX_ID}")
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))


def read_machine(tree: Tree) -> Machine:
    """The machine of a tree. Raises SysfsError for text that the kernel would not write."""
    ids = _online_nodes(tree)
    if not ids:
        return Machine((_without_numa(tree),))
    return Machine(tuple(_node(tree, node_id, ids) for node_id in ids))


def _online_nodes(tree: Tree) -> tuple[int, ...]:
    listed = tree.text(f"{NODES}/online")
    if listed is not None:
        return parse_ids(listed, f"{NODES}/online")
    found = (_NODE.fullmatch(name) for name in tree.names(NODES))
    return tuple(sorted(int(match[1]) for match in found if match))


def _without_numa(tree: Tree) -> NumaNode:
    online = tree.text(f"{CPUS}/online")
    if online is None:
        raise SysfsError(
            f"neither {NODES} nor {CPUS}/online is here: this is no /sys tree; check the sysfs root"
        )
    return NumaNode(0, parse_ids(online, f"{CPUS}/online"), distances={0: LOCAL_DISTANCE})


def _node(tree: Tree, node_id: int, online: tuple[int, ...]) -> NumaNode:
    base = f"{NODES}/node{node_id}"
    return NumaNode(
        node_id,
        parse_ids(tree.text(f"{base}/cpulist") or "", f"{base}/cpulist"),
        _memory_bytes(tree.text(f"{base}/meminfo"), f"{base}/meminfo"),
        _hugepages(tree, f"{base}/hugepages"),
        _distances(tree.text(f"{base}/distance"), node_id, online),
    )


def _memory_bytes(text: str | None, where: str) -> int:
    if not text:
        return 0
    found = _MEM_TOTAL.search(text)
    if found is None:
        raise SysfsError(f"{where}: no line 'Node N MemTotal: <number> kB'")
    return int(found[1]) * 1024


def _hugepages(tree: Tree, folder: str) -> dict[str, int]:
    pools: dict[int, int] = {}
    for name in tree.names(folder):
        found = _HUGEPAGES.fullmatch(name)
        pages = (tree.text(f"{folder}/{name}/nr_hugepages") or "0").strip() if found else ""
        if found and not pages.isdigit():
            raise SysfsError(f"{folder}/{name}/nr_hugepages: {pages!r} is no number of pages")
        if found:
            pools[int(found[1]) * 1024] = int(pages) * int(found[1]) * 1024
    return {f"hugepages-{_binary_size(size)}": pools[size] for size in sorted(pools)}


def _binary_size(size: int) -> str:
    """Kubernetes' canonical size: 2097152 -> 2Mi."""
    step = 0
    while size % 1024 == 0 and step < 3:
        size, step = size // 1024, step + 1
    return f"{size}{('', 'Ki', 'Mi', 'Gi')[step]}"


def _distances(text: str | None, node_id: int, online: tuple[int, ...]) -> dict[int, int]:
    """The j-th number belongs to the j-th *online* node; without a file the kernel's defaults
    stand.
    """
    words = (text or "").split()
    if not words:
        return {other: LOCAL_DISTANCE if other == node_id else REMOTE_DISTANCE for other in online}
    if len(words) != len(online) or not all(word.isdigit() for word in words):
        raise SysfsError(
            f"{NODES}/node{node_id}/distance: {text!r} is not one number for each online node {online}"
        )
    return dict(zip(online, map(int, words), strict=True))
