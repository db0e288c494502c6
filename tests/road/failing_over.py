"""A failover on a running road: the holder of a role is sent a signal, and another process takes
over its work. Knows the holders of roles and the events that show their work. Must not know how
long it may take.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from services.embedded.data_dir import read_addresses
from services.embedded.postgres import OWNER
from shared.eventlog.postgres_connection import plain_url
from tests.road.harness import Road

# Two processes of every service, without a workload.
WARM = ("--workload", "none", "--schedulers", "2", "--standbys", "1", "--report-interval", "1")
SERVICES = ("scheduler", "binder", "topology-store")
HOLDERS = {
    "scheduler": "scheduler/topolog/%",
    "observer": "observer",
    "relay": "relay",
    "binder": "binder",
    "store": "topology-store/%",
}
PODS = "/api/v1/namespaces/default/pods"
BATCH = 4


class Failover(msgspec.Struct, frozen=True):
    """`lease` is the role's name in the log. Seconds from the signal: to the first binding; to the
    last one of the batch, and to the role's own work."""

    lease: str
    first_s: float
    all_s: float


class Holder(msgspec.Struct, frozen=True):
    """A process that holds a role, and the role's epoch."""

    lease: str
    pid: int
    epoch: int


async def connect(path: Path) -> Any:
    """Connect to the log of a data folder, as its owner."""
    return await asyncpg.connect(plain_url(read_addresses(path).database_url or ""), user=OWNER)


async def holders(database: Any, role: str = "%") -> list[Holder]:
    """Return all holders of a role of this name (a pattern of SQL); the process id is from the
    holder's name (`shared.runtime.app.holder_name`).
    """
    asked = (
        "SELECT role, holder, epoch FROM lease WHERE role LIKE $1 AND holder <> '' ORDER BY role"
    )
    rows = await database.fetch(asked, HOLDERS.get(role, role))
    return [Holder(row["role"], int(row["holder"].split("/")[-2]), row["epoch"]) for row in rows]


async def fail_over(
    road: Road, database: Any, role: str, number: int, sent: signal.Signals, timeout_s: float
) -> Failover:
    """Send the signal to the holder (of several, in turn by `number`), submit a few pods at once,
    wait until they are bound and the role's own work is done, and remove them. Raises TimeoutError.
    """
    processes = await holders(database, role)
    holder = processes[number % len(processes)]
    position = await database.fetchval("SELECT position FROM counter")
    begun_s = time.monotonic()
    os.kill(holder.pid, sent)
    names = [f"after-{number}-{pod}" for pod in range(BATCH)]
    streams = [await submit(road, name) for name in names]
    async with asyncio.timeout(timeout_s):
        await until(lambda: told(database, "PodBound", streams, 1, position))
        first_s = time.monotonic() - begun_s
        await until(lambda: told(database, "PodBound", streams, BATCH, position))
        if role in ("store", "relay"):
            await until(lambda: _own_work(database, role, streams))
        all_s = time.monotonic() - begun_s
    for name in names:
        await remove(road, name)
    return Failover(holder.lease, round(first_s, 3), round(all_s, 3))


async def submit(road: Road, name: str) -> str:
    """Create a small pod and return its stream."""
    amounts = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    body = {
        "metadata": {"name": name},
        "spec": {"schedulerName": "topolog", "containers": [container]},
    }
    result = await asyncio.to_thread(road.kube, PODS, "POST", body)
    return f"pod/{result['metadata']['uid']}"


async def remove(road: Road, name: str) -> None:
    """Delete a pod."""
    await asyncio.to_thread(road.kube, f"{PODS}/{name}?gracePeriodSeconds=0", "DELETE")


async def told(database: Any, event: str, streams: list[str], count: int, after: int = 0) -> bool:
    """Return whether the log has this event on so many of the streams."""
    asked = (
        "SELECT count(DISTINCT stream) FROM fact WHERE stream = ANY($1) AND type = $2 "
        "AND position > $3"
    )
    return int(await database.fetchval(asked, streams, event, after)) >= count


async def _own_work(database: Any, role: str, streams: list[str]) -> bool:
    """Return whether the relay has reached the pods' last events, and the log has a report that is
    newer than their first events.
    """
    if role == "relay":
        asked = (
            "SELECT c.position >= max(f.position) FROM fact f, checkpoint c WHERE stream = "
            "ANY($1) AND consumer = 'relay'"
        )
        return bool(await database.fetchval(f"{asked} GROUP BY c.position", streams))
    asked = (
        "SELECT max(position) FILTER (WHERE role LIKE 'topology-store/%') > "
        "min(position) FILTER (WHERE stream = ANY($1))"
    )
    return bool(await database.fetchval(f"{asked} FROM fact", streams))


async def until(true: Callable[[], Awaitable[Any]]) -> None:
    """Wait until the condition holds."""
    while not await true():  # noqa: ASYNC110 - the log is asked from outside
        await asyncio.sleep(0.01)


async def settled(road: Road, service: str = "", timeout_s: float = 60.0) -> None:
    """Wait until every process (of one service, if named) is ready, so that each has a warm
    standby.
    """
    names = [name for name in road.services() if name.startswith(service or SERVICES)]

    async def ready() -> bool:
        answers = [await asyncio.to_thread(road.get, name, "/readyz") for name in names]
        return all((answer or {}).get("ok") for answer in answers)

    async with asyncio.timeout(timeout_s):
        await until(ready)
