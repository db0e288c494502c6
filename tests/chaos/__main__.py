"""`python -m tests.chaos --faults N [--seed S]`: inject faults into a live workload, one after the
other, and check the result.

`topolog up` runs with a workload that does not end, on a Postgres and a NATS behind proxies. After
each fault a probe pod must be bound within a minute (`--limit`): that is the recovery time (from
when the fault was over). SIGTERM ends the run after the current fault. At the end safety and
liveness are read from the log and from the cluster. Prints a line per fault and a table (`--json`:
JSON lines); exit code 1 if something does not hold, with the seed to repeat the faults. Full disks
are tmpfs, and need root: elsewhere they are skipped with a notice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from services.embedded.nats import NatsSettings
from services.embedded.postgres import DATABASE, OWNER, PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER, plain_url
from tests.chaos import judging
from tests.chaos.disks import Disk, own_mounts
from tests.chaos.faults import FAULTS, ON_DISKS
from tests.chaos.looking import folded, look
from tests.chaos.proxy import Proxy
from tests.chaos.stage import Stage
from tests.fixtures.ports import free_port
from tests.road.harness import Road, ended, folder, ready, topolog

PASSWORD = "chaos"
PODS = "/api/v1/namespaces/default/pods"
REST_S = 5.0
FLAGS = ("--nodes", "6", "--report-interval", "1", "--schedulers", "2", "--standbys", "1")


def main() -> int:
    """Run the faults. Return 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument(
        "--seed", type=int, default=None, help="repeat the faults of an earlier run"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds until a pod must be bound; more on a busy machine",
    )
    parser.add_argument(
        "--speed",
        type=int,
        default=8,
        help="of the workload: the slower, the smaller the log that is restored",
    )
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder for the history and the pods of a run in which something does not hold",
    )
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else time.time_ns() % 10**6
    if not _chosen(options.only):
        parser.error(f"no fault is called {options.only!r}; there are: {', '.join(FAULTS)}")
    mounts = own_mounts()
    if not mounts:
        print(
            f"passed over, as this system permits no mounts: {', '.join(sorted(ON_DISKS))}",
            file=sys.stderr,
        )
    rounds, broken, remarks = asyncio.run(_run(options, seed, mounts))
    _tell(rounds, broken, remarks, seed, options)
    return 1 if broken else 0


def _chosen(only: str, mounts: bool = True) -> list[str]:
    return [name for name in FAULTS if only in name and (mounts or name not in ON_DISKS)]


async def _run(
    options: argparse.Namespace, seed: int, mounts: bool
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    rounds: list[dict[str, Any]] = []
    broken: list[str] = []
    ended_early = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended_early.set)
    with folder() as path:
        async with _stage(path, mounts, options.speed) as stage:
            for number in range(options.faults):
                if ended_early.is_set():
                    break
                stage.rng = chance(seed, number)
                name = stage.rng.choice(_chosen(options.only, mounts))
                rounds.append(outcome := await _round(stage, number, name, options.limit))
                broken += [outcome["broken"]] if outcome["broken"] else []
                if options.json:
                    print(json.dumps(outcome), flush=True)
                else:
                    print(
                        (
                            f"{number + 1:4d}  {outcome['fault']:24s} {outcome['what']:32s} "
                            f"{outcome['recovered_s']:6.2f} s"
                        ),
                        flush=True,
                    )
            broken_at_the_end, remarks, pods = await _judged(stage)
            broken += broken_at_the_end
            if (broken or remarks) and options.keep:
                _keep(
                    options.keep,
                    stage.database_url,
                    {"rounds": rounds, "broken": broken, "beside": remarks, "pods": pods},
                )
    return rounds, broken, remarks


def chance(seed: int, number: int) -> random.Random:
    """Return the random generator of one fault, so that its draws (such as one of the backends that
    happen to be connected) do not change those of later faults.
    """
    return random.Random(f"{seed}/{number}")


async def _judged(stage: Stage) -> tuple[list[str], list[str], list[dict[str, Any]] | None]:
    """Return the broken invariants, the rejections that break none, and the pods that the API
    server had. Topolog is stopped.
    """
    await asyncio.sleep(REST_S)
    first = await look(stage.road, stage.database_url)
    await asyncio.sleep(REST_S)
    last = await look(stage.road, stage.database_url)
    broken = judging.of_the_cluster(last, await _bound(stage.database_url, last.head))
    broken += stage.broken + judging.of_the_workload(stage.road, last.pods)
    await asyncio.to_thread(stage.road.stop)
    broken += judging.of_the_charges(first, last, await folded(stage.database_url))
    log = await PostgresEventLog.open(stage.database_url, role=READER)
    try:
        refused, remarks = await judging.of_the_refused(last, log)
    finally:
        await log.close()
    return (
        [*broken, *refused, *await asyncio.to_thread(judging.of_the_log, stage.database_url)],
        remarks,
        last.pods,
    )


@asynccontextmanager
async def _stage(path: Path, mounts: bool, speed: int) -> AsyncIterator[Stage]:
    """Set up the stage. Each server has its own folder, so that only one disk can be full."""
    port, homes, backups = (
        free_port(),
        {name: path.parent / name for name in ("postgres", "nats")},
        path.parent / "backups",
    )
    backups.mkdir()
    disks = {name: Disk(home) for name, home in homes.items()} if mounts else {}
    settings = PostgresSettings(listen_addresses="127.0.0.1", password=PASSWORD, port=port)
    async with (
        EmbeddedServers(
            homes["postgres"], want_nats=False, postgres_settings=settings
        ) as postgres_server,
        EmbeddedServers(
            homes["nats"], want_postgres=False, nats_settings=NatsSettings()
        ) as nats_server,
    ):
        database = postgres_server.postgres
        assert database is not None
        await asyncio.to_thread(database.apply_password)
        postgres, nats = Proxy(port), Proxy(urlsplit(nats_server.nats_url).port or 0)
        await asyncio.gather(postgres.start(), nats.start())
        direct = f"postgresql+asyncpg://{OWNER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
        urls = (
            "--database-url",
            _through(direct, postgres),
            "--nats-url",
            _through(nats_server.nats_url, nats),
        )

        def start() -> Road:
            """Start it without the status file of an earlier run, which would be mistaken for its
            own.
            """
            (path / "services.json").unlink(missing_ok=True)
            return ready(Road(path, *FLAGS, "--speed", str(speed), *urls))

        # The road blocks while it waits, so it runs in a thread: the proxies run in this loop.
        road = await asyncio.to_thread(start)
        stage = Stage(
            road,
            start,
            database,
            direct,
            homes["nats"] / "nats" / "jetstream",
            backups,
            disks,
            postgres,
            nats,
            random.Random(),
        )
        try:
            await asyncio.sleep(REST_S)
            await asyncio.to_thread(_label_nodes, stage.road)
            yield stage
        finally:
            await asyncio.to_thread(ended, stage.road)
            await asyncio.gather(postgres.stop(), nats.stop())


def _label_nodes(road: Road) -> None:
    """Label the nodes as a cloud provider does, so that a binding changes the labels of pods
    (Kubernetes 1.35).
    """
    for index, node in enumerate(road.kube("/api/v1/nodes")["items"]):
        del node["metadata"]["resourceVersion"]
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "ab"[index % 2]
        road.kube(f"/api/v1/nodes/{node['metadata']['name']}", "PUT", node)


def _through(url: str, proxy: Proxy) -> str:
    parts = urlsplit(url)
    user, _, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))


async def _round(stage: Stage, number: int, name: str, limit_s: float) -> dict[str, Any]:
    begun_s, broken, what = time.monotonic(), "", ""
    try:
        what = await FAULTS[name](stage)
    except LookupError as error:
        what = f"passed over: {error}"
    except (RuntimeError, AssertionError, subprocess.CalledProcessError) as error:
        what = "did not come about"
        broken = f"fault {number + 1} ({name}): {error}"
    over_s = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            await _probe(stage, f"probe-{number}")
    except TimeoutError:
        broken = (
            f"fault {number + 1} ({name}, {what}): its probe was not bound within {limit_s:.0f} s"
        )
    recovered_s = round(time.monotonic() - over_s, 2)
    return {
        "fault": name,
        "what": what,
        "over_at_s": round(time.time() - recovered_s),
        "took_s": round(over_s - begun_s, 2),
        "recovered_s": recovered_s,
        "broken": broken,
    }


async def _probe(stage: Stage, name: str) -> None:
    """Create a pod as a user would, wait until it is bound, and delete it."""
    amounts = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    body = {
        "metadata": {"name": name},
        "spec": {"schedulerName": "topolog", "containers": [container]},
    }
    while not (
        (await asyncio.to_thread(stage.road.kube, f"{PODS}/{name}") or {}).get("spec") or {}
    ).get("nodeName"):
        if (await asyncio.to_thread(stage.road.kube, f"{PODS}/{name}") or {}).get("kind") != "Pod":
            await asyncio.to_thread(stage.road.kube, PODS, "POST", body)
        await asyncio.sleep(0.05)
    await asyncio.to_thread(stage.road.kube, f"{PODS}/{name}?gracePeriodSeconds=0", "DELETE")


async def _bound(database_url: str, until: int) -> dict[str, str]:
    """Return the node of every binding in the log up to this position, by uid."""
    database = await asyncpg.connect(plain_url(database_url))
    asked = (
        "SELECT payload->>'uid' AS uid, payload->>'node' AS node FROM fact_json WHERE "
        "type = 'PodBound' AND position <= $1"
    )
    rows = await database.fetch(f"{asked} ORDER BY position", until)
    await database.close()
    return {row["uid"]: row["node"] for row in rows}


def _keep(folder: Path, database_url: str, result: dict[str, Any]) -> None:
    """Keep what is needed to find the cause."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(result, indent=1))
    topolog("log", "export", "--out", str(folder / "history.gz"), "--database-url", database_url)


def _tell(
    rounds: list[dict[str, Any]],
    broken: list[str],
    beside: list[str],
    seed: int,
    options: argparse.Namespace,
) -> None:
    table = {}
    for name in FAULTS:
        times = sorted(each["recovered_s"] for each in rounds if each["fault"] == name)
        if times:
            table[name] = {
                "faults": len(times),
                "p50_s": statistics.median(times),
                "max_s": times[-1],
            }
    if options.json:
        print(
            json.dumps(
                {
                    "faults": len(rounds),
                    "seed": seed,
                    "broken": broken,
                    "beside": beside,
                    "recovery": table,
                }
            )
        )
        return
    print(f"\n{'fault':26s} {'faults':>6s} {'p50 s':>8s} {'max s':>8s}")
    for name, row in table.items():
        print(f"{name:26s} {row['faults']:6d} {row['p50_s']:8.2f} {row['max_s']:8.2f}")
    for remark in beside:
        print(f"beside: {remark}")
    for remark in broken:
        print(f"broken: {remark}")
    again = [
        "--faults",
        str(len(rounds)),
        "--seed",
        str(seed),
        *(["--only", options.only] if options.only else []),
    ]
    print(
        f"{'broken' if broken else 'all holds'}; again: python -m tests.chaos {shlex.join(again)}"
    )


if __name__ == "__main__":
    sys.exit(main())
