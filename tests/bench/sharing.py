"""Several schedulers on one log: `python -m tests.bench sharing --schedulers 1 2 4`. Real processes
of the service on an embedded Postgres with fsync on.

When all of them are members, pods of several classes come at once; a JSON line for each number of
schedulers says how many were reserved per second (by the times in the log, first to last), how many
appends met another's (`conflicts`, `duplicates`, by the processes' own counters), how many pods are
reserved more than once (`reserved_twice`, from the log: must be 0), and the CPU time per pod in all
schedulers together. Processes share the machine's cores with Postgres: without a core for each
there is little to gain.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import asyncpg
import psutil

from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.domain.pod import Container, Pod
from shared.domain.report import Report, Zone, ZoneResource
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import plain_url
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.report_events import NodeReported
from tests.fixtures.ports import free_port

GIB = 1 << 30
SIZES = {"cpu": 32_000, "memory": 128 * GIB}
ROOT = Path(__file__).resolve().parents[2]
BATCH, TIMEOUT_S = 500, 600.0


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench sharing", description=__doc__)
    parser.add_argument("--schedulers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--zones", type=int, default=4)
    parser.add_argument("--pods", type=int, default=6000)
    options = parser.parse_args(argv)
    for count in options.schedulers:
        print(json.dumps(asyncio.run(measure(count, options))), flush=True)


async def measure(count: int, options: argparse.Namespace) -> dict[str, object]:
    """Return one result line; `options` has the numbers of nodes, zones and pods."""
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as folder:
        os.chmod(folder, 0o711)
        servers = EmbeddedServers(
            Path(folder) / "data", want_nats=False, postgres_settings=PostgresSettings(durable=True)
        )
        async with servers:
            await upgrade(servers.database_url)
            log = await PostgresEventLog.open(servers.database_url)
            database = await asyncpg.connect(plain_url(servers.database_url))
            try:
                await append(log, cluster(options.nodes, options.zones), "node")
                async with _schedulers(servers.database_url, count, Path(folder)) as processes:
                    await _until(
                        database,
                        "SELECT count(*) FROM lease WHERE role LIKE 'scheduler/%' AND holder <> ''",
                        count,
                    )
                    return await _play(log, database, processes, options)
            finally:
                await database.close()
                await log.close()


async def _play(
    log: PostgresEventLog,
    database: asyncpg.Connection,
    processes: dict[int, psutil.Process],
    options: argparse.Namespace,
) -> dict[str, object]:
    await asyncio.sleep(1.0)
    before_s = _cpu_s(processes)
    await append(log, _pods(options.pods), "pod")
    await _until(database, "SELECT count(*) FROM fact WHERE type = 'PodReserved'", options.pods)
    cpu_s = _cpu_s(processes) - before_s
    times = (
        "SELECT max(time_us) - min(time_us) AS us, count(*) - count(DISTINCT stream) AS "
        "twice FROM fact"
    )
    row = await database.fetchrow(f"{times} WHERE type = 'PodReserved'")
    by_member = await database.fetch(
        "SELECT role, count(*) AS pods FROM fact WHERE type = 'PodReserved' GROUP BY "
        "role ORDER BY 1"
    )
    return {
        "bench": "sharing",
        "schedulers": len(processes),
        "nodes": options.nodes,
        "zones": options.zones,
        "pods": options.pods,
        "reserved_per_s": round(options.pods / (row["us"] / 1e6)),
        "conflicts": _outcomes(processes, "Conflict"),
        "duplicates": _outcomes(processes, "Duplicate"),
        "reserved_twice": row["twice"],
        "by_member": [each["pods"] for each in by_member],
        "cpu_ms_per_pod": round(cpu_s / options.pods * 1e3, 3),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


@contextlib.asynccontextmanager
async def _schedulers(
    url: str, count: int, folder: Path
) -> AsyncIterator[dict[int, psutil.Process]]:
    """Start schedulers, and yield their processes by HTTP port."""
    running = {}
    for number in range(count):
        port = free_port()
        environment = {
            "TOPOLOG_DATABASE_URL": url,
            "TOPOLOG_HTTP_PORT": str(port),
            "TOPOLOG_OBSERVE": "false",
            "TOPOLOG_RELAY": "false",
        }
        with (folder / f"scheduler-{number}.log").open("w") as out:
            command = [sys.executable, "-m", "services.scheduler"]
            running[port] = _spawned(command, environment, out)
    try:
        yield {port: psutil.Process(process.pid) for port, process in running.items()}
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def _spawned(command: list[str], variables: dict[str, str], out: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **variables}, stdout=out, stderr=out
    )


def cluster(nodes: int, count: int) -> Iterator[tuple[str, Event]]:
    """Return nodes with `count` empty zones each, and their reports."""
    for number in range(nodes):
        name = f"n{number}"
        whole = {each: held * count for each, held in SIZES.items()} | {"pods": 250}
        yield streams.node(name), NodeObserved(name, f"uid-{name}", allocatable=whole)
        resources = {each: ZoneResource(held, held, held) for each, held in SIZES.items()}
        zones = tuple(Zone(zone, resources) for zone in range(count))
        report = Report(
            name,
            "boot",
            1,
            "e",
            zones=zones,
            placements=(),
            policy="single-numa-node",
            scope="container",
            tracked=("cpu", "memory"),
        )
        yield streams.report(name), NodeReported(report)


def _pods(count: int) -> Iterator[tuple[str, Event]]:
    for number in range(count):
        amounts = {"cpu": (1 + number % 4) * 1000, "memory": GIB}
        pod = Pod(
            f"uid-{number}",
            "bench",
            f"p{number}",
            "Guaranteed",
            (Container("c", "app", amounts, amounts),),
            scheduler_name="topolog",
        )
        yield streams.pod(pod.uid), PodObserved(pod)


async def append(log: PostgresEventLog, events: Iterator[tuple[str, Event]], kind: str) -> None:
    """Append each event as a commit of its own, with many commits per statement. `kind` makes the
    commit ids of several calls distinct.
    """
    numbered = enumerate(events)
    while page := list(islice(numbered, BATCH)):
        await log.append(
            [
                Commit(f"{kind}/{n}", "bench", 0, 1, (Draft(stream, event),))
                for n, (stream, event) in page
            ]
        )


async def _until(database: asyncpg.Connection, asked: str, count: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await database.fetchval(asked) < count:  # noqa: ASYNC110 - the log is asked from outside
            await asyncio.sleep(0.1)


def _cpu_s(processes: dict[int, psutil.Process]) -> float:
    return sum(
        process.cpu_times().user + process.cpu_times().system for process in processes.values()
    )


def _outcomes(processes: dict[int, psutil.Process], outcome: str) -> int:
    spent_s = 0.0
    for port in processes:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        spent_s += sum(
            float(value)
            for value in re.findall(
                rf'^topolog_append_outcomes_total{{[^}}]*outcome="{outcome}"[^}}]*}} (\S+)',
                page,
                re.M,
            )
        )
    return round(spent_s)
