"""The numbers that `topolog up` shows: the simulator's summary, and the scheduler's numbers over
HTTP. A scheduler that does not answer keeps its last numbers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shared.runtime.http_get import get

ASK_TIMEOUT_S = 2.0
LOOK_EVERY_S = 0.05


class Latency(msgspec.Struct, frozen=True):
    """Percentiles in real milliseconds over `count` pods; `per_s` is the rate of the middle 80 % of
    them.
    """

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    per_s: float = 0.0


class Workload(msgspec.Struct, frozen=True):
    """The simulator's count of its pods, by the API. `total` is 0 for an unlimited workload;
    `resumed` pods were created by earlier runs.
    """

    total: int = 0
    created: int = 0
    waiting: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    rejected: int = 0
    lost: int = 0
    infeasible: tuple[dict[str, Any], ...] = ()
    left: tuple[str, ...] = ()
    done: bool = False
    quiet_s: float = 0.0
    virtual_s: float = 0.0
    real_s: float = 0.0
    factor: float = 0.0
    to_bound: Latency = Latency()
    to_running: Latency = Latency()
    withdrawn: int = 0
    resumed: int = 0


class Scheduling(msgspec.Struct, frozen=True):
    """The scheduler's numbers; `nodes_unnamed` are names that exporters report and no Node object
    has.
    """

    position: int = 0
    pods_pending: int = 0
    pods_reserved: int = 0
    pods_intended: int = 0
    pods_bound: int = 0
    pods_running: int = 0
    nodes: int = 0
    nodes_reporting: int = 0
    nodes_unnamed: int = 0
    nodes_in_use: int = 0
    zones: int = 0
    zones_in_use: int = 0
    unproven: int = 0
    reserved: int = 0
    conflicts: int = 0
    cell: str = ""
    cells: int = 1

    @property
    def live(self) -> int:
        """Pods that have not ended by the scheduler's fold."""
        return (
            self.pods_pending
            + self.pods_reserved
            + self.pods_intended
            + self.pods_bound
            + self.pods_running
        )


class Status(msgspec.Struct, frozen=True):
    """One moment. `events_per_s` is measured since the previous status; `workload` counts only if
    the cluster is `simulated`; `scheduler_answered` says that `scheduling` is not older."""

    elapsed_s: float
    workload: Workload = Workload()
    scheduling: Scheduling = Scheduling()
    events_per_s: float = 0.0
    restarts: int = 0
    simulated: bool = True
    scheduler_answered: bool = False


class _Simulation(msgspec.Struct):
    nodes: int = 0
    workload: Workload | None = None


def read_workload(path: Path, default: Workload) -> Workload:
    """Return the workload of the simulator's status file, the default if there is none."""
    return _read(path).workload or default


def read_nodes(path: Path) -> int:
    """Return the number of simulated nodes, 0 if there is no status file."""
    return _read(path).nodes


def _read(path: Path) -> _Simulation:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Simulation)
    except (OSError, msgspec.MsgspecError):
        return _Simulation()


async def ask_schedulers(ports: Sequence[int], before: Scheduling, token: str = "") -> Scheduling:
    """Return the numbers of the scheduler that is furthest in the log, with the sums of what each
    scheduler did itself; of several cells, the sums over them. Return `before` if none answers, or
    fewer cells than before. `token` is for HTTP, "" for none.
    """
    urls = [f"http://127.0.0.1:{port}/stats" for port in ports]
    answers = await asyncio.gather(*(ask(url, Scheduling, None, token) for url in urls))
    received: list[Scheduling] = [answer for answer in answers if answer is not None]
    if not received:
        return before
    furthest = {
        numbers.cell: numbers for numbers in sorted(received, key=lambda numbers: numbers.position)
    }
    if len(furthest) < before.cells:
        return before
    sums = dict[str, Any]()
    for name in Scheduling.__struct_fields__:
        if name != "cell":
            counted = received if name in ("reserved", "conflicts") else furthest.values()
            sums[name] = sum(getattr(numbers, name) for numbers in counted)
    return Scheduling(**sums)


async def until_all_report(
    ports: Sequence[int], nodes: int, limit_s: float, token: str = ""
) -> Scheduling:
    """Return the numbers once so many nodes report, or after `limit_s`."""
    numbers, until_s = Scheduling(), time.monotonic() + limit_s
    while numbers.nodes_reporting < nodes and time.monotonic() < until_s:
        await asyncio.sleep(LOOK_EVERY_S)
        numbers = await ask_schedulers(ports, numbers, token)
    return numbers


async def ask(url: str, kind: type[Any], default: Any, token: str = "") -> Any:
    """GET a JSON value; return the default if there is no answer in time."""
    return await asyncio.to_thread(_ask, url, kind, default, token)


def _ask(url: str, kind: type[Any], default: Any, token: str) -> Any:
    try:
        return msgspec.json.decode(get(url, token, ASK_TIMEOUT_S), type=kind)
    except (OSError, msgspec.MsgspecError):
        return default
