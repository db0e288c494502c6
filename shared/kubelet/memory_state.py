"""The Memory Manager's state as a value: one table per NUMA node, and the blocks that containers
hold.

This module has the values, the initial state, how blocks are taken and returned, and whether a
stored state still fits the machine. `memory_manager` decides which mask a container gets. Source:
kubelet 1.36 memorymanager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from shared.domain.quantity import format_amount
from shared.domain.resources import HUGEPAGES_PREFIX, MEMORY
from shared.kubelet.masks import nodes_of

MemoryPolicy = Literal["None", "Static"]


class NodeMemoryConfig(msgspec.Struct, frozen=True):
    """One NUMA node: `memory_bytes` in all, hugepages by page size (bytes) and count, and the
    system's reservation.
    """

    id: int
    memory_bytes: int
    hugepages: tuple[tuple[int, int], ...] = ()
    reserved: dict[str, int] = {}


class MemoryConfig(msgspec.Struct, frozen=True):
    """The machine's memory as the kubelet sees it, nodes ascending by id. `group_check` and
    `compared_by` are rules of its version (`shared.kubelet.versions`).
    """

    policy: MemoryPolicy = "None"
    nodes: tuple[NodeMemoryConfig, ...] = ()
    group_check: bool = True
    compared_by: Literal["zone", "group"] = "group"

    @property
    def ids(self) -> tuple[int, ...]:
        """The node ids, ascending."""
        return tuple(node.id for node in self.nodes)


class MemoryTable(msgspec.Struct, frozen=True, gc=False):
    """One resource of one node in bytes; `allocatable == reserved + free`."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


class NodeMemory(msgspec.Struct, frozen=True):
    """One node: how many blocks touch it, the group of nodes it belongs to, and its tables by
    resource name.
    """

    assignments: int
    cells: int
    tables: dict[str, MemoryTable]


class Block(msgspec.Struct, frozen=True, gc=False):
    """`size` bytes of `resource` for one container, anywhere on the nodes of `mask`."""

    mask: int
    size: int
    resource: str


Blocks = tuple[Block, ...]
# Pod uid -> container name -> blocks.
Entries = Mapping[str, Mapping[str, Blocks]]


class MemoryState(msgspec.Struct, frozen=True):
    """The whole state. `reuse` is what init containers of pod `reuse_uid` leave to later ones: mask
    -> resource -> bytes.

    `reuse` exists only in the kubelet's memory and is lost on restart.
    """

    config: MemoryConfig
    nodes: Mapping[int, NodeMemory]
    entries: Entries = {}
    reuse_uid: str = ""
    reuse: Mapping[int, Mapping[str, int]] = {}


def hugepages_name(page_bytes: int) -> str:
    """`hugepages-2Mi` for 2097152."""
    return HUGEPAGES_PREFIX + format_amount(MEMORY, page_bytes)


def config_error(config: MemoryConfig) -> str | None:
    """Return why the kubelet would refuse to start with this configuration, or None."""
    if config.policy == "None":
        return None
    if sum(node.reserved.get(MEMORY, 0) for node in config.nodes) <= 0:
        return "[memorymanager] you should specify the system reserved memory"
    for node in config.nodes:
        for resource, table in _tables(node).items():
            if table.allocatable < 0:
                return f"NUMA node {node.id} reserves more {resource} than it has"
    return None


def initial(config: MemoryConfig) -> MemoryState:
    """The book of a machine on which nothing is allocated."""
    return MemoryState(
        config, {node.id: NodeMemory(0, 1 << node.id, _tables(node)) for node in config.nodes}
    )


def _tables(node: NodeMemoryConfig) -> dict[str, MemoryTable]:
    tables = {}
    in_hugepages = 0
    for page_bytes, pages in node.hugepages:
        total, name = page_bytes * pages, hugepages_name(page_bytes)
        reserved = node.reserved.get(name, 0)
        tables[name] = MemoryTable(total, reserved, total - reserved, 0, total - reserved)
        in_hugepages += total
    reserved = node.reserved.get(MEMORY, 0)
    allocatable = node.memory_bytes - reserved - in_hugepages
    tables[MEMORY] = MemoryTable(node.memory_bytes, reserved, allocatable, 0, allocatable)
    return {name: tables[name] for name in sorted(tables)}


def take(nodes: Mapping[int, NodeMemory], block: Block, reused: int = 0) -> dict[int, NodeMemory]:
    """Return the nodes after `block` is allocated, node by node in id order. `reused` bytes of it
    are allocated already.
    """
    rest = max(block.size - reused, 0)
    new_nodes = dict(nodes)
    for node_id in nodes_of(block.mask):
        node = new_nodes[node_id]
        table = node.tables.get(block.resource)
        taken = min(rest, table.free) if table is not None else 0
        rest -= taken
        new_nodes[node_id] = NodeMemory(
            node.assignments + 1, block.mask, _moved(node.tables, block.resource, taken)
        )
    return new_nodes


def give_back(nodes: Mapping[int, NodeMemory], block: Block) -> dict[int, NodeMemory]:
    """Return the nodes after `block` is released. Each node in id order returns as much as it can,
    regardless of its origin.
    """
    rest = block.size
    new_nodes = dict(nodes)
    for node_id in nodes_of(block.mask):
        node = new_nodes[node_id]
        table = node.tables.get(block.resource)
        given = min(rest, table.reserved) if table is not None else 0
        rest -= given
        remaining = node.assignments - 1
        cells = node.cells if remaining else 1 << node_id
        new_nodes[node_id] = NodeMemory(
            remaining, cells, _moved(node.tables, block.resource, -given)
        )
    return new_nodes


def _moved(tables: dict[str, MemoryTable], resource: str, taken: int) -> dict[str, MemoryTable]:
    if not taken:
        return tables
    old = tables[resource]
    moved = MemoryTable(
        old.total, old.system_reserved, old.allocatable, old.reserved + taken, old.free - taken
    )
    return {**tables, resource: moved}


def release(state: MemoryState, uid: str, containers: Iterable[str]) -> MemoryState:
    """The book without the blocks of these containers of one pod."""
    held_blocks = state.entries.get(uid)
    if held_blocks is None:
        return state
    nodes: Mapping[int, NodeMemory] = state.nodes
    leaving = [name for name in containers if name in held_blocks]
    for name in leaving:
        for block in held_blocks[name]:
            nodes = give_back(nodes, block)
    remaining = {name: blocks for name, blocks in held_blocks.items() if name not in leaving}
    others = {pod_uid: entry for pod_uid, entry in state.entries.items() if pod_uid != uid}
    entries = {**others, uid: remaining} if remaining else others
    return msgspec.structs.replace(state, nodes=nodes, entries=entries)


def restored(
    config: MemoryConfig, nodes: Mapping[int, NodeMemory], entries: Entries
) -> MemoryState | str:
    """Return the state as read from a checkpoint, or the text with which the kubelet refuses to
    start on it.
    """
    if not nodes:
        if entries:
            return "[memorymanager] machine state can not be empty when it has memory assignments"
        return initial(config)
    expected = _recomputed(config, entries)
    if isinstance(expected, str):
        return expected
    if not _same_machine(nodes, expected, config.compared_by == "group"):
        return "[memorymanager] the expected machine state is different from the real one"
    return MemoryState(config, nodes, entries)


def _recomputed(config: MemoryConfig, entries: Entries) -> Mapping[int, NodeMemory] | str:
    nodes: Mapping[int, NodeMemory] = initial(config).nodes
    for uid in sorted(entries):
        for name in sorted(entries[uid]):
            for block in entries[uid][name]:
                missing = _missing(nodes, block)
                if missing:
                    return (
                        f"[memorymanager] (pod: {uid}, container: {name}) the memory "
                        f"assignment uses {missing}"
                    )
                nodes = take(nodes, block)
    return nodes


def _missing(nodes: Mapping[int, NodeMemory], block: Block) -> str:
    for node_id in nodes_of(block.mask):
        if node_id not in nodes:
            return "the NUMA that does not exist"
        if block.resource not in nodes[node_id].tables:
            return "memory resource that does not exist"
    return ""


def _same_machine(
    stored: Mapping[int, NodeMemory], expected: Mapping[int, NodeMemory], by_group: bool
) -> bool:
    """Compare as areMachineStatesEqual does: fixed columns by node, free and reserved only in sum
    over a group of nodes (to 1.31: by node, too, so that a healthy kubelet may refuse to start).
    """
    if stored.keys() != expected.keys():
        return False
    for node_id, restored_node in stored.items():
        right = expected[node_id]
        if (restored_node.assignments, restored_node.cells) != (right.assignments, right.cells):
            return False
        if restored_node.tables.keys() != right.tables.keys():
            return False
        if not by_group and restored_node.tables != right.tables:
            return False
        for resource in restored_node.tables:
            if _fixed(restored_node, resource) != _fixed(right, resource):
                return False
            if _group_sums(stored, restored_node.cells, resource) != _group_sums(
                expected, restored_node.cells, resource
            ):
                return False
    return True


def _fixed(node: NodeMemory, resource: str) -> tuple[int, int, int]:
    table = node.tables[resource]
    return table.total, table.system_reserved, table.allocatable


def _group_sums(nodes: Mapping[int, NodeMemory], cells: int, resource: str) -> tuple[int, int]:
    tables = [
        nodes[node_id].tables.get(resource) for node_id in nodes_of(cells) if node_id in nodes
    ]
    sums = [table for table in tables if table is not None]
    return sum(table.free for table in sums), sum(table.reserved for table in sums)
