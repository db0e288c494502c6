"""The checkpoint files of the CPU Manager and the Memory Manager: bytes to values and back, with
checksums.

`cpu_manager_state` and `memory_manager_state` are as kubelet 1.36 writes them with default feature
gates. Kubelet 1.37 writes the same and repeats the content in `data`, so that the other form can be
removed later (kubernetes PR 139102). With PodLevelResourceManagers on, `podEntries` has the pools
of pods; here they are entries of a container without a name. Errors of a corrupt file use the
kubelet's words. This module reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from shared.domain.report import POD_LEVEL
from shared.kubelet.checkpoint_text import dump_list, dump_map, fnv32a, go_json, string_order
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.memory_state import Block, Entries, MemoryState, MemoryTable, NodeMemory

MAX_BYTES = 64 * 1024 * 1024
CORRUPTED = "checkpoint is corrupted"
CPU_FILE = "cpu_manager_state"
MEMORY_FILE = "memory_manager_state"

T = TypeVar("T")
Unsigned = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
NodeId = Annotated[int, msgspec.Meta(ge=0, le=63)]


class CheckpointError(msgspec.Struct, frozen=True):
    """Why a checkpoint is refused: `message` is the kubelet's error, `detail` says what is wrong
    with the file.
    """

    message: str
    detail: str

    def __str__(self) -> str:
        return self.message if self.detail in self.message else f"{self.message} ({self.detail})"


class CpuCheckpoint(msgspec.Struct, frozen=True):
    """Contents of `cpu_manager_state`. CPU sets are integers (bit i = CPU i)."""

    policy: str
    default_cpus: int
    entries: Mapping[str, Mapping[str, int]] = {}


class MemoryCheckpoint(msgspec.Struct, frozen=True):
    """Contents of `memory_manager_state`."""

    policy: str
    nodes: Mapping[int, NodeMemory]
    entries: Entries = {}


class _CpuPool(msgspec.Struct):
    cpuSet: str = ""  # noqa: N815


class _CpuFile(msgspec.Struct, omit_defaults=False):
    policyName: str = ""  # noqa: N815 - the file's own names
    defaultCpuSet: str = ""  # noqa: N815
    entries: dict[str, dict[str, str]] | None = msgspec.field(default_factory=dict)
    podEntries: dict[str, _CpuPool] = {}  # noqa: N815
    checksum: Unsigned = 0
    data: str = ""


class _Table(msgspec.Struct):
    total: Unsigned = 0
    systemReserved: Unsigned = 0  # noqa: N815
    allocatable: Unsigned = 0
    reserved: Unsigned = 0
    free: Unsigned = 0


class _Node(msgspec.Struct):
    numberOfAssignments: int = 0  # noqa: N815
    memoryMap: dict[str, _Table] | None = None  # noqa: N815
    cells: list[NodeId] | None = None


class _Block(msgspec.Struct):
    numaAffinity: list[NodeId] | None = None  # noqa: N815
    type: str = ""
    size: Unsigned = 0


class _MemoryPool(msgspec.Struct):
    memoryBlocks: list[_Block] = []  # noqa: N815


class _MemoryFile(msgspec.Struct):
    policyName: str = ""  # noqa: N815
    machineState: dict[NodeId, _Node] | None = msgspec.field(default_factory=dict)  # noqa: N815
    entries: dict[str, dict[str, list[_Block] | None]] | None = msgspec.field(default_factory=dict)
    podEntries: dict[str, _MemoryPool] = {}  # noqa: N815
    checksum: Unsigned = 0
    data: str = ""


File = TypeVar("File", _CpuFile, _MemoryFile)


def read_cpu(
    data: bytes, policy: str | None = None, verify: bool = True
) -> CpuCheckpoint | CheckpointError:
    """Return `cpu_manager_state` as a value.

    `policy` is the configured policy, which is compared with the file's. `verify` computes the
    checksum, which costs more than everything else.
    """
    file = decode(data, _CpuFile)
    if isinstance(file, CheckpointError):
        return file
    if verify and file.checksum and file.checksum != fnv32a(_cpu_dump(file)):
        return CheckpointError(_cpu_corrupted(file), CORRUPTED)
    content = _told(file, policy)
    if isinstance(content, CheckpointError):
        return content
    try:
        return _cpu_value(content)
    except ValueError as error:
        return CheckpointError(str(error), "a CPU list in the file is wrong")


def _cpu_corrupted(file: _CpuFile) -> str:
    """Return the error for a corrupt file. The kubelet falls back to the format without pods and
    reports the error of that format.
    """
    if file.entries:
        return (
            "json: cannot unmarshal object into Go struct field "
            "CPUManagerCheckpointV1.entries of type string"
        )
    return CORRUPTED


def _cpu_value(file: _CpuFile) -> CpuCheckpoint:
    default = _cpus(file.defaultCpuSet, "default cpu set", "")
    entries = {
        uid: {
            name: _cpus(cpus, "cpuset", f' for container "{name}" in pod "{uid}"')
            for name, cpus in assignments.items()
        }
        for uid, assignments in (file.entries or {}).items()
    }
    for uid, pool in file.podEntries.items():
        entries.setdefault(uid, {})[POD_LEVEL] = _cpus(pool.cpuSet, "cpuset", f' for pod "{uid}"')
    return CpuCheckpoint(file.policyName, default, entries)


def _cpus(text: str, what: str, where: str) -> int:
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise ValueError(f'could not parse {what} "{text}"{where}: {error}') from error


def write_cpu(checkpoint: CpuCheckpoint) -> bytes:
    """Return the bytes of `cpu_manager_state` as a kubelet would write them."""
    entries = {
        uid: {name: format_cpus(assignments[name]) for name in sorted(assignments)}
        for uid, assignments in sorted(checkpoint.entries.items())
    }
    file = _CpuFile(checkpoint.policy, format_cpus(checkpoint.default_cpus), entries)
    document = {
        "policyName": file.policyName,
        "defaultCpuSet": file.defaultCpuSet,
        "entries": entries,
    }
    return sealed(document, _cpu_dump(file))


def _cpu_dump(file: _CpuFile) -> str:
    entries = dump_map(file.entries, lambda assignments: dump_map(assignments, str))
    return (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){file.policyName} "
        f"DefaultCPUSet:(string){file.defaultCpuSet} "
        f"Entries:(map[string]map[string]string){entries} "
        f"Checksum:(checksum.Checksum)0}}"
    )


def read_memory(
    data: bytes, policy: str | None = None, verify: bool = True
) -> MemoryCheckpoint | CheckpointError:
    """Return `memory_manager_state` as a value, as `read_cpu` does. `memory_state.restored` decides
    whether it fits the machine.
    """
    file = decode(data, _MemoryFile)
    if isinstance(file, CheckpointError):
        return file
    if verify and file.checksum and file.checksum != fnv32a(_memory_dump(file)):
        return CheckpointError(CORRUPTED, CORRUPTED)
    content = _told(file, policy, "[memorymanager] ")
    if isinstance(content, CheckpointError):
        return content
    return MemoryCheckpoint(content.policyName, _nodes(content), _entries(content))


def _nodes(file: _MemoryFile) -> dict[int, NodeMemory]:
    return {
        node_id: NodeMemory(node.numberOfAssignments, mask_of(node.cells or ()), _tables(node))
        for node_id, node in (file.machineState or {}).items()
    }


def _tables(node: _Node) -> dict[str, MemoryTable]:
    return {
        name: MemoryTable(
            table.total, table.systemReserved, table.allocatable, table.reserved, table.free
        )
        for name, table in (node.memoryMap or {}).items()
    }


def _entries(file: _MemoryFile) -> Entries:
    entries: dict[str, dict[str, tuple[Block, ...]]] = {}
    for uid, container_blocks in (file.entries or {}).items():
        entries[uid] = {
            name: _stored(blocks) for name, blocks in container_blocks.items() if blocks is not None
        }
    for uid, pool in file.podEntries.items():
        entries.setdefault(uid, {})[POD_LEVEL] = _stored(pool.memoryBlocks)
    return entries


def _stored(blocks: list[_Block]) -> tuple[Block, ...]:
    return tuple(
        [Block(mask_of(block.numaAffinity or ()), block.size, block.type) for block in blocks]
    )


def memory_checkpoint(state: MemoryState) -> MemoryCheckpoint:
    """What a kubelet in this state has written to disk."""
    return MemoryCheckpoint(state.config.policy, state.nodes, state.entries)


def write_memory(checkpoint: MemoryCheckpoint, seal: bool = True) -> bytes:
    """Return the bytes of `memory_manager_state` as a kubelet would write them. Without `seal` the
    checksum is 0, which kubelets accept.
    """
    file = _MemoryFile(
        checkpoint.policy,
        {node_id: _node_file(checkpoint.nodes[node_id]) for node_id in sorted(checkpoint.nodes)},
        {
            uid: {name: _block_files(entries[name]) for name in sorted(entries)}
            for uid, entries in sorted(checkpoint.entries.items())
        },
    )
    document = {
        "policyName": file.policyName,
        "machineState": string_order(file.machineState or {}),
        "entries": file.entries,
    }
    return sealed(document, _memory_dump(file) if seal else None)


def _node_file(node: NodeMemory) -> _Node:
    tables = {
        name: _Table(
            table.total, table.system_reserved, table.allocatable, table.reserved, table.free
        )
        for name, table in sorted(node.tables.items())
    }
    return _Node(node.assignments, tables, list(nodes_of(node.cells)))


def _block_files(blocks: tuple[Block, ...]) -> list[_Block] | None:
    return [_Block(list(nodes_of(block.mask)), block.resource, block.size) for block in blocks]


def _memory_dump(file: _MemoryFile) -> str:
    machine = dump_map(file.machineState, _node_dump)
    entries = dump_map(
        file.entries,
        lambda pod_entries: dump_map(pod_entries, lambda blocks: dump_list(blocks, _block_dump)),
    )
    return (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){file.policyName} "
        f"MachineState:(state.NUMANodeMap){machine} "
        f"Entries:(state.ContainerMemoryAssignments){entries} "
        f"Checksum:(checksum.Checksum)0}}"
    )


def _node_dump(node: _Node) -> str:
    tables = dump_map(node.memoryMap, _table_dump)
    return (
        f"<*>{{NumberOfAssignments:(int){node.numberOfAssignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} "
        f"Cells:([]int){dump_list(node.cells)}}}"
    )


def _table_dump(table: _Table) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.systemReserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} "
        f"Free:(uint64){table.free}}}"
    )


def _block_dump(block: _Block) -> str:
    affinity = dump_list(block.numaAffinity)
    return (
        f"{{NUMAAffinity:([]int){affinity} Type:(v1.ResourceName){block.type} "
        f"Size:(uint64){block.size}}}"
    )


def _told(file: File, policy: str | None, prefix: str = "") -> File | CheckpointError:
    """Return the content of the file if it is for this policy.

    A file in an unknown form is refused: it must not be read as a file without holdings.
    """
    content = decode(file.data.encode(), type(file)) if file.data else file
    if isinstance(content, CheckpointError):
        return content
    if policy is not None and policy != content.policyName:
        text = (
            f'{prefix}configured policy "{policy}" differs from state checkpoint policy '
            f'"{content.policyName}"'
        )
        return CheckpointError(text, "written under another policy")
    return content if content.policyName else CheckpointError(CORRUPTED, "it names no policy")


def decode(data: bytes, shape: type[T]) -> T | CheckpointError:
    """JSON of a given shape, or why it is none."""
    if len(data) > MAX_BYTES:
        return CheckpointError(CORRUPTED, f"the file has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = str(error) or "nested too deeply"
        return CheckpointError(
            "unexpected end of JSON input" if not data.strip() else f"json: {detail}", detail
        )


def sealed(document: Mapping[str, object], dump: str | None) -> bytes:
    """Return the document with its checksum, 0 without a dump. Empty `entries` are left out."""
    kept = {key: value for key, value in document.items() if key != "entries" or value}
    return go_json({**kept, "checksum": 0 if dump is None else fnv32a(dump)})
