"""What a data folder's cluster looks like, so that a second start goes on with the same one without
being told again.

Nodes, zones and the kubelets' settings are written down at the first start; options that were not
given are taken from there, and those that contradict it are refused. Knows nothing of what runs on
it.
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
    seed: int = 1


class Given(msgspec.Struct, frozen=True):
    """The same as far as the command line says it; None is not given."""

    nodes: int | None = None
    zones: int | None = None
    workload: str | None = None
    policy: str | None = None
    scope: str | None = None
    seed: int | None = None


def shape_for(folder: Path, given: Given, fresh: bool) -> Shape:
    """What to run on `folder`. Raises UsageError when an option contradicts the cluster that is
    there.
    """
    there = None if fresh else _read(folder)
    said = {
        name: value for name, value in msgspec.structs.asdict(given).items() if value is not None
    }
    wrong = _contradictions(there, said) if there is not None else []
    if wrong:
        raise UsageError(
            "; ".join(wrong),
            "topolog up --fresh, which deletes what is there, or another --data-dir",
        )
    return msgspec.structs.replace(there or Shape(), **said)


def _contradictions(there: Shape, said: dict[str, Any]) -> list[str]:
    wrong = [
        f"--{name} is {said[name]}, but the folder holds a cluster with {getattr(there, name)}"
        for name in ("nodes", "zones")
        if said.get(name, getattr(there, name)) != getattr(there, name)
    ]
    if _source(said.get("workload", there.workload)) != _source(there.workload):
        wrong.append(
            f"--workload is {said['workload']}, but the folder holds the nodes of {there.workload}"
        )
    return wrong


def write_shape(folder: Path, shape: Shape) -> None:
    """Leave the note."""
    temporary = folder / f".{_NOTE}.new"
    temporary.write_bytes(msgspec.json.encode(shape))
    temporary.replace(folder / _NOTE)


def _read(folder: Path) -> Shape | None:
    try:
        return msgspec.json.decode((folder.expanduser() / _NOTE).read_bytes(), type=Shape)
    except (OSError, msgspec.MsgspecError):
        return None


def _source(workload: str) -> str:
    """Where the nodes come from: a trace's folder, or the demo."""
    return workload if workload.startswith("openb:") else "demo"
