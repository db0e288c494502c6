"""How long nobody is at work: `python -m tests.bench failover --role binder --kills 50`.

A whole `topolog up` with two processes of every service and the default settings. Each round kills the process that holds the
role (`--signal TERM` asks it to stop), submits a few pods at the same moment and waits until the role's work is done again: the
pods are bound; for `store` a report that came after them is in the log, for `relay` they are relayed. The supervisor starts the
dead process again; the next round waits until it is ready. Times are seconds from the signal; `first_s` to the first binding,
`all_s` to the last one, and to the role's own work. A last line sums up; `load` is the machine's run queue: on a busy machine
these figures say little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import time
from typing import Any

import asyncpg

from services.embedded.data_dir import read_addresses
from shared.eventlog.postgres_connection import plain_url
from tests.road.harness import Road, folder, running

HOLDERS = {
    "scheduler": "scheduler/topolog/%",
    "observer": "observer",
    "relay": "relay",
    "binder": "binder",
    "store": "topology-store/%",
}
PODS = "/api/v1/namespaces/default/pods"
BATCH = 4
ROUND_S = 6.0
"""A child that lives for shorter counts as failing (services/embedded/child.py)."""
TIMEOUT_S = 60.0


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench failover", description=__doc__)
    parser.add_argument("--role", choices=sorted(HOLDERS), required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signal", choices=["KILL", "TERM"], default="KILL")
    asyncio.run(_measure(parser.parse_args(argv)))


async def _measure(options: argparse.Namespace) -> None:
    flags = ("--nodes", "8", "--workload", "none", "--schedulers", "2", "--standbys", "1", "--report-interval", "1")
    with folder() as path, running(path, *flags) as road:
        database = await asyncpg.connect(plain_url(read_addresses(path).database_url or ""))
        await _settled(road)
        rounds = []
        for number in range(options.kills):
            rounds.append(await _round(road, database, options, number))
            print(json.dumps({"bench": "failover", "kind": "round", "role": options.role, **rounds[-1]}), flush=True)
        await database.close()
    print(json.dumps({"bench": "failover", **_summary(options, rounds)}), flush=True)


async def _round(road: Road, database: Any, options: argparse.Namespace, number: int) -> dict[str, Any]:
    pid, role = await _holder(database, options.role, number)
    position = await database.fetchval("SELECT position FROM counter")
    begun_s = time.monotonic()
    os.kill(pid, signal.Signals[f"SIG{options.signal}"])
    names = [f"after-{number}-{pod}" for pod in range(BATCH)]
    made = [await asyncio.to_thread(road.kube, PODS, "POST", _manifest(name)) for name in names]
    streams = [f"pod/{pod['metadata']['uid']}" for pod in made]
    await _until(lambda: _bound(database, streams, position, 1))
    first_s = time.monotonic() - begun_s
    await _until(lambda: _bound(database, streams, position, BATCH))
    if options.role in ("store", "relay"):
        await _until(lambda: _own_work(database, options.role, streams))
    all_s = time.monotonic() - begun_s
    for name in names:
        await asyncio.to_thread(road.kube, f"{PODS}/{name}?gracePeriodSeconds=0", "DELETE")
    await asyncio.sleep(max(ROUND_S - (time.monotonic() - begun_s), 0))
    await _settled(road)
    return {"killed": role, "first_s": round(first_s, 3), "all_s": round(all_s, 3), "load": round(os.getloadavg()[0], 1)}


async def _holder(database: Any, role: str, number: int) -> tuple[int, str]:
    """Its process id, from the holder's name (`shared.runtime.app.holder_name`), and the role; of several in turn."""
    asked = "SELECT role, holder FROM lease WHERE role LIKE $1 AND holder <> '' ORDER BY role"
    rows = await database.fetch(asked, HOLDERS[role])
    row = rows[number % len(rows)]
    return int(row["holder"].split("/")[-2]), row["role"]


async def _bound(database: Any, streams: list[str], after: int, count: int) -> bool:
    asked = "SELECT count(*) FROM fact WHERE stream = ANY($1) AND type = 'PodBound' AND position > $2"
    return int(await database.fetchval(asked, streams, after)) >= count


async def _own_work(database: Any, role: str, streams: list[str]) -> bool:
    if role == "relay":
        asked = "SELECT c.position >= max(f.position) FROM fact f, checkpoint c WHERE stream = ANY($1) AND consumer = 'relay'"
        return bool(await database.fetchval(f"{asked} GROUP BY c.position", streams))
    asked = "SELECT max(position) FILTER (WHERE role LIKE 'topology-store/%') > min(position) FILTER (WHERE stream = ANY($1))"
    return bool(await database.fetchval(f"{asked} FROM fact", streams))


async def _until(true: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await true():  # noqa: ASYNC110 - the log is asked from outside
            await asyncio.sleep(0.01)


async def _settled(road: Road) -> None:
    """Every process is there and ready: whoever dies next has a warm standby."""
    names = [name for name in road.services() if name.startswith(("scheduler", "binder", "topology-store"))]

    async def ready() -> bool:
        answers = [await asyncio.to_thread(road.get, name, "/readyz") for name in names]
        return all((answer or {}).get("ok") for answer in answers)

    await _until(ready)


def _manifest(name: str) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "topolog", "containers": [container]}}


def _summary(options: argparse.Namespace, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"role": options.role, "signal": options.signal, "kills": len(rounds)}
    for key in ("first_s", "all_s"):
        values = sorted(each[key] for each in rounds)
        found[f"{key[:-2]}_p50_s"] = round(statistics.median(values), 3)
        found[f"{key[:-2]}_p99_s"] = values[math.ceil(len(values) * 0.99) - 1]
    return found | {"load": round(statistics.mean(each["load"] for each in rounds), 1)}
