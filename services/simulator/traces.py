"""The Alibaba cluster trace GPU v2023 as published: its node list and task list, read and checked. Decides no overlay.

Columns: node `sn, cpu_milli, memory_mib, gpu, model`; task `name, cpu_milli, memory_mib, num_gpu, ...`. Files may be
gzipped. Must not know zones, pods or clocks.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

NODES_FILE = "openb_node_list_all_node.csv"
TASKS_FILE = "openb_pod_list_default.csv"
SAMPLE_STRIDE = 7
"""`nodes=200` means every 7th node of the list, the first 200 of those."""


class TraceError(ValueError):
    """A trace folder or row that cannot be read; names file, row, field and what was expected."""


class TraceNode(msgspec.Struct, frozen=True):
    """One machine of the trace."""

    name: str
    cpus: int
    memory_mib: int
    gpus: int


class TraceTask(msgspec.Struct, frozen=True):
    """One task; `lifetime_s` is the time from creation to deletion, uncapped."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    lifetime_s: int


def read_nodes(folder: Path, count: int) -> tuple[TraceNode, ...]:
    """The first `count` of every seventh node; more than there are that way means the whole list from its start.

    Raises TraceError.
    """
    listed = [
        TraceNode(row["sn"], number(row, "cpu_milli") // 1000, number(row, "memory_mib"), number(row, "gpu"))
        for row, number in _rows(folder, NODES_FILE)
    ]
    sample = listed[::SAMPLE_STRIDE]
    chosen = sample[:count] if count <= len(sample) else listed[:count]
    if len(chosen) < count:
        raise TraceError(f"{folder / NODES_FILE}: {len(listed)} nodes are listed, {count} were asked for; use fewer --nodes")
    return tuple(chosen)


def read_tasks(folder: Path) -> tuple[TraceTask, ...]:
    """All tasks in the order of the list. Raises TraceError."""
    tasks = tuple(
        TraceTask(
            row["name"],
            number(row, "cpu_milli"),
            number(row, "memory_mib"),
            number(row, "num_gpu"),
            max(0, number(row, "deletion_time") - number(row, "creation_time")),
        )
        for row, number in _rows(folder, TASKS_FILE)
    )
    if not tasks:
        raise TraceError(f"{folder / TASKS_FILE}: no task is listed; expected a header line and one line a task")
    return tasks


class _Number:
    """Reads a whole number from a row, naming file and line when there is none."""

    def __init__(self, path: Path, line: int) -> None:
        self._where = f"{path} line {line}"

    def __call__(self, row: dict[str, str], field: str) -> int:
        text = row.get(field)
        if text is None or not text.strip().isdigit():
            raise TraceError(f"{self._where}: {field} is {text!r}; expected a whole number")
        return int(text)


def _rows(folder: Path, name: str) -> Iterator[tuple[dict[str, str], _Number]]:
    path = next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    if path is None:
        raise TraceError(f"{folder / name}: no such file; give the folder of the trace, as in --workload openb:FOLDER")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    for line, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        yield row, _Number(path, line)
