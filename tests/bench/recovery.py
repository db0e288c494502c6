"""Measure how long a scheduler takes from its start to its first decision: `python -m tests.bench
recovery --events 1000000`.

A log of so many events is made on an embedded Postgres: nodes that report, pods that are observed,
reserved, charged, bound, run and end, and the same nodes, which report the live pods now and then.
(Exporters report about twice per pod. Such a log takes about twice as long per event, and leaves
the same state.) A process then follows it from the beginning (`cold_s`), and another one from the
snapshot that the first one left (`snapshot_s`): from the start of the process to the first look at
the queue (`_scheduler_start`), imports of compiled code included.

`fold_per_s` are events read, decoded and folded per second, on the clock and (`fold_per_cpu_s`) of
CPU time, `rss_mb` the peak of the process at the cold start. `cold_cpu_s`, `snapshot_cpu_s` and
`import_cpu_s` are the processes' own CPU time, which a busy machine stretches less, and so are
`explain_cpu_s`, `why_not_cpu_s`, `at_cpu_s` and `diff_cpu_s` of `topolog replay` commands about the
middle of the log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.domain.pod import Container, Pod
from shared.domain.report import Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.resources import Amounts
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres import PostgresEventLog
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.bench.sharing import GIB, append, cluster

NODES, ZONES, LIVE = 200, 2, 2000
# Pods between two rounds of reports, without which the state grows with the pods that ended.
REPORTED_EVERY = 14_000
ROOT = Path(__file__).resolve().parents[2]
START = "-m", "tests.bench._scheduler_start"
CLI = "-c", "from services.cli.main import main; main()", "replay"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench recovery", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    asyncio.run(_measure(parser.parse_args(argv).events))


async def _measure(events: int) -> None:
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as folder:
        os.chmod(folder, 0o711)
        servers = EmbeddedServers(
            Path(folder) / "data",
            want_nats=False,
            postgres_settings=PostgresSettings(durable=False),
        )
        async with servers:
            await upgrade(servers.database_url)
            log = await PostgresEventLog.open(servers.database_url)
            await append(log, cluster(NODES, ZONES), "node")
            await append(log, _lives(events), "life")
            await append(log, _reports(events // 7), "left")
            head = await log.head()
            await log.close()
            compiled = Path(folder) / "compiled"
            await asyncio.to_thread(_run, compiled, *START)
            cold, warm = [
                await asyncio.to_thread(_started, servers.database_url, compiled) for _ in range(2)
            ]
            answered = {
                f"{question.replace('-', '_')}_cpu_s": await asyncio.to_thread(
                    _asked, servers.database_url, compiled, question, *arguments
                )
                for question, *arguments in _questions(events, head)
            }
    print(
        json.dumps(
            {
                "bench": "recovery",
                "facts": head,
                "cold_s": cold["ready_s"],
                "snapshot_s": warm["ready_s"],
                "cold_cpu_s": cold["cpu_s"],
                "snapshot_cpu_s": warm["cpu_s"],
                "rss_mb": cold["rss_mb"],
                "fold_per_s": cold["fold_per_s"],
                "fold_per_cpu_s": cold["fold_per_cpu_s"],
                "import_cpu_s": warm["import_cpu_s"],
                **answered,
                "load": round(os.getloadavg()[0], 1),
            }
        ),
        flush=True,
    )


def _questions(events: int, head: int) -> Iterator[tuple[str, ...]]:
    """Yield `topolog replay` commands about the middle of the log."""
    number, middle = events // 14, head // 2
    yield "explain", f"uid-{number}"
    yield "why-not", f"uid-{number}", "--node", f"n{(number + 1) % NODES}"
    yield "at", str(middle)
    yield "diff", str(middle - NODES), str(middle)


def _asked(url: str, compiled: Path, *arguments: str) -> float:
    """Return the CPU seconds of a `topolog replay` command."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(compiled, *CLI, *arguments, "--database-url", url)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime, 2)


def _started(url: str, compiled: Path) -> dict[str, float]:
    figures: dict[str, float] = json.loads(
        _run(compiled, *START, url, str(time.time())).splitlines()[-1]
    )
    return figures


def _run(compiled: Path, *command: str) -> str:
    """Run Python with Python's bytecode cache, as in an image, whatever the environment of
    this process says.
    """
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # `replay diff` ends with 1 if there are differences.
    if done.returncode > ("diff" in command):
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _lives(events: int) -> Iterator[tuple[str, Event]]:
    """Return seven events per pod. The newest pods have not ended."""
    for number in range(events // 7):
        yield from _life(number)
        if number >= LIVE:
            ended = f"uid-{number - LIVE}"
            yield streams.pod(ended), PodEnded(ended, "succeeded", f"n{(number - LIVE) % NODES}")
        if number % REPORTED_EVERY == REPORTED_EVERY - 1:
            yield from _reports(number + 1)


def _reports(pods: int) -> Iterator[tuple[str, Event]]:
    """Yield a report of each node that lists the live ones of so many pods; unlisted pods are
    forgotten.
    """
    remaining = range(max(0, pods - LIVE), pods)
    reports = [
        (stream, event.report)
        for stream, event in cluster(NODES, ZONES)
        if isinstance(event, NodeReported)
    ]
    for index, (stream, report) in enumerate(reports):
        live = [(f"p{number}", _amounts(number)) for number in remaining if number % NODES == index]
        yield stream, NodeReported(_listing(report, live))


def _listing(report: Report, pods: list[tuple[str, Amounts]]) -> Report:
    """Return the report with these pods in its first zone."""
    placements = tuple(
        Placement(
            "bench",
            name,
            "c",
            tuple(ZonedAmount(each, (0,), amount) for each, amount in sorted(amounts.items())),
        )
        for name, amounts in pods
    )
    resources = {
        name: ZoneResource(
            each.capacity,
            each.allocatable,
            each.available - sum(amounts[name] for _, amounts in pods),
        )
        for name, each in report.zones[0].resources.items()
    }
    zones = (Zone(report.zones[0].id, resources), *report.zones[1:])
    return msgspec.structs.replace(report, zones=zones, placements=placements)


def _amounts(number: int) -> Amounts:
    return {"cpu": 1000 * (1 + number % 2), "memory": GIB}


def _life(number: int) -> Iterator[tuple[str, Event]]:
    uid, node = f"uid-{number}", f"n{number % NODES}"
    amounts = _amounts(number)
    pod = Pod(
        uid,
        "bench",
        f"p{number}",
        "Guaranteed",
        (Container("c", "app", amounts, amounts),),
        scheduler_name="topolog",
    )
    stream = streams.pod(uid)
    yield stream, PodObserved(pod)
    yield stream, PodReserved(uid, node, 1, 1, 1, 50, NODES, {"c": (0,)}, False, "", "")
    yield streams.node(node), NodeCharged(node, uid)
    yield stream, BindIntended(uid, "bench", pod.name, node, 0)
    yield stream, PodBound(uid, node)
    yield stream, PodRunning(uid, node)
