"""The cluster of a data folder, so that a second start continues with the same one.

The first start saves nodes, zones and kubelet settings. Later starts use them for options that are
not given, and refuse options that contradict them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from services.embedded.up.options import UsageError
from shared.domain.policies import SINGLE_NUMA_NODE

_NOTE = "cluster.json"


class Shape(msgspec.Struct, frozen=True):
    """The cluster of a data folder; the defaults are those of `topolog up`."""

    nodes: int = 8
    zones: int = 2
    workload: str = "demo"
    policy: str = SINGLE_NUMA_NODE
    scope: str = "container"
    owner: str = "kubelet"
    seed: int = 1
    cells: int = 1


class Given(msgspec.Struct, frozen=True):
    """The same values from the command line; None means not given."""

    nodes: int | None = None
    zones: int | None = None
    workload: str | None = None
    policy: str | None = None
    scope: str | None = None
    owner: str | None = None
    seed: int | None = None
    cells: int | None = None


def shape_for(folder: Path, given: Given, fresh: bool) -> Shape:
    """Return the cluster to run on `folder`. Raises UsageError if an option contradicts the
    existing cluster.
    """
    existing = None if fresh else _read(folder)
    options = {
        name: value for name, value in msgspec.structs.asdict(given).items() if value is not None
    }
    wrong = _contradictions(existing, options) if existing is not None else []
    if wrong:
        raise UsageError(
            "; ".join(wrong),
            "topolog up --fresh, which deletes the old cluster, or another --data-dir",
        )
    return msgspec.structs.replace(existing or Shape(), **options)


def _contradictions(existing: Shape, options: dict[str, Any]) -> list[str]:
    wrong = [
        f"--{name} is {options[name]}, but the folder has a cluster with {getattr(existing, name)}"
        for name in ("nodes", "zones", "cells")
        if options.get(name, getattr(existing, name)) != getattr(existing, name)
    ]
    if _source(options.get("workload", existing.workload)) != _source(existing.workload):
        wrong.append(
            f"--workload is {options['workload']}, "
            f"but the folder has the nodes of {existing.workload}"
        )
    return wrong


def write_shape(folder: Path, shape: Shape) -> None:
    """Save the cluster."""
    temporary = folder / f".{_NOTE}.new"
    temporary.write_bytes(msgspec.json.encode(shape))
    temporary.replace(folder / _NOTE)


def _read(folder: Path) -> Shape | None:
    try:
        return msgspec.json.decode((folder.expanduser() / _NOTE).read_bytes(), type=Shape)
    except (OSError, msgspec.MsgspecError):
        return None


def _source(workload: str) -> str:
    """Return the origin of the nodes: a trace's folder, or the demo."""
    return workload if workload.startswith("openb:") else "demo"
