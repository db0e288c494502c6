"""Reads and checks the node list and the task list of a cluster trace. Zones are not decided here.

Files: `nodes.csv` and `tasks.csv`, or those of the Alibaba cluster trace GPU v2023 under their
published names; gzipped or not. Columns: node `sn` or `name`, `cpu_milli`, `memory_mib`, `gpu`;
task `name`, `cpu_milli`, `memory_mib`, `num_gpu`, `creation_time`, `deletion_time` (seconds).
Either may have `rdma` (a count), and nodes `zones`; other columns are ignored. This module does not
know pods or clocks.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

NODES_FILE = "openb_node_list_all_node.csv"
TASKS_FILE = "openb_pod_list_default.csv"
OWN_NODES_FILE, OWN_TASKS_FILE = "nodes.csv", "tasks.csv"
# The most that one node of a trace may have.
MAX_ZONES, MAX_CPUS, MAX_DEVICES = 64, 8192, 1024
MAX_NUMBER = 10**15
# `nodes=200` means every 7th node of the list, the first 200 of those.
SAMPLE_STRIDE = 7


class TraceError(ValueError):
    """A trace folder or row cannot be read. The message names file, row, field and the expected
    value.
    """


class TraceNode(msgspec.Struct, frozen=True):
    """One machine of the trace. `zones` is 0 if the trace names none."""

    name: str
    cpus: int
    memory_mib: int
    gpus: int
    rdma: int = 0
    zones: int = 0


class TraceTask(msgspec.Struct, frozen=True):
    """One task; `lifetime_s` is the time from creation to deletion, uncapped."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    lifetime_s: int
    rdma: int = 0


def is_openb(folder: Path) -> bool:
    """Return whether this is the published trace, whose arrival rate is a convention
    (`workload.GPU_SECONDS_A_TASK`).
    """
    return _file(folder, OWN_TASKS_FILE) is None and _file(folder, TASKS_FILE) is not None


def is_trace(folder: Path) -> bool:
    """Return whether the folder has a node list."""
    return any(_file(folder, name) is not None for name in (OWN_NODES_FILE, NODES_FILE))


def read_nodes(folder: Path, count: int = 0) -> tuple[TraceNode, ...]:
    """Return `count` nodes: every seventh one of the list, or its first ones if that gives too few.
    0 means all nodes. Raises TraceError.
    """
    path = _found(folder, OWN_NODES_FILE, NODES_FILE)
    listed = [_node(path, row, number) for row, number in _rows(path)]
    sample = listed[::SAMPLE_STRIDE]
    chosen = sample[:count] if 0 < count <= len(sample) else listed[: count or None]
    if len(chosen) < max(1, count):
        raise TraceError(
            f"{path}: {len(listed)} nodes are listed, {count} were asked for; use fewer --nodes"
        )
    return tuple(chosen)


def _node(path: Path, row: dict[str, str], number: _Number) -> TraceNode:
    name = row.get("sn") or row.get("name") or ""
    if not name:
        raise TraceError(f"{path}: a node without a name; expected a column sn or name")
    cpus, memory_mib = (
        number(row, "cpu_milli", most=MAX_CPUS * 1000) // 1000,
        number(row, "memory_mib"),
    )
    devices = number(row, "gpu", most=MAX_DEVICES), number(row, "rdma", 0, MAX_DEVICES)
    return TraceNode(name, cpus, memory_mib, *devices, number(row, "zones", 0, MAX_ZONES))


def read_tasks(folder: Path) -> tuple[TraceTask, ...]:
    """Return all tasks in the order of the list. Raises TraceError."""
    path = _found(folder, OWN_TASKS_FILE, TASKS_FILE)
    tasks = tuple(
        TraceTask(
            row.get("name") or f"task-{line}",
            number(row, "cpu_milli"),
            number(row, "memory_mib"),
            number(row, "num_gpu"),
            max(0, number(row, "deletion_time") - number(row, "creation_time")),
            number(row, "rdma", 0),
        )
        for line, (row, number) in enumerate(_rows(path))
    )
    if not tasks:
        raise TraceError(f"{path}: no task is listed; expected a header line and one line a task")
    return tasks


class _Number:
    """Reads a whole number from a row, naming file and line when there is none."""

    def __init__(self, path: Path, line: int) -> None:
        self._where = f"{path} line {line}"

    def __call__(
        self, row: dict[str, str], field: str, default: int | None = None, most: int = MAX_NUMBER
    ) -> int:
        text = row.get(field)
        if default is not None and not text:
            return default
        if text is None or not text.strip().isdecimal() or len(text) > len(str(MAX_NUMBER)):
            raise TraceError(f"{self._where}: {field} is {text!r}; expected a whole number")
        if int(text) > most:
            raise TraceError(f"{self._where}: {field} is {text}; expected at most {most}")
        return int(text)


def _rows(path: Path) -> Iterator[tuple[dict[str, str], _Number]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path}: {error}; expected CSV text, gzipped if the name ends in .gz"
        ) from error
    rows = csv.DictReader(text.splitlines())
    for line, row in enumerate(rows, start=2):
        yield row, _Number(path, line)


def _found(folder: Path, *names: str) -> Path:
    for name in names:
        path = _file(folder, name)
        if path is not None:
            return path
    raise TraceError(
        f"{folder}: neither {' nor '.join(names)} is there; give the folder of the trace, "
        "as in --workload openb:FOLDER"
    )


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
