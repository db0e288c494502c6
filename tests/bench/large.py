"""Bench of a large cluster over time: `python -m tests.bench large [--nodes 20000 --live 300000
--rate 100 --seconds 600]`.

Scheduler, topology-store and binder are processes of their own on an embedded Postgres with fsync
and an embedded NATS. Pods, watches, kubelets and exporters are simulated by this process, which
appends what the observer would; the API that the binder calls accepts at once (`_large_binder`).
The cluster begins with its live pods. Then as many pods arrive as end, and every node reports every
`--reports` seconds.

A JSON line every `--every` seconds, and one over all (`summary`). `lag` is by consumer how many
events it is behind the log. `bound_ms` and `reserved_ms` are from the arrival of a pod to these
events, by their times in the log; `gap_ms` is the longest time without a decision. `reported_ms` is
from the publication of a report to its event. `cpu_ms_per_pod` and `mb` (shared pages counted once)
are by process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice, pairwise
from pathlib import Path
from urllib.request import urlopen

import msgspec
import psutil

from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import StreamLimits
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.codec import decode
from shared.events.envelope import Envelope
from tests.bench._large_cluster import Events, LargeCluster
from tests.bench._road_processes import Sample, sample, spent
from tests.fixtures.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {
    "services.scheduler": {"TOPOLOG_OBSERVE": "false"},
    "services.topology_store": {"TOPOLOG_REPORTS": "bus", "TOPOLOG_MIRROR": "false"},
    "tests.bench._large_binder": {},
}
TICK_S, PAGE, COMMIT = 0.1, 2000, 1000
READY_TIMEOUT_S = 600.0
_POSITION = re.compile(r'^topolog_consumer_position\{[^}]*consumer="([^"]+)"[^}]*\} (\S+)', re.M)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench large", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--zones", type=int, default=2)
    parser.add_argument("--live", type=int, default=300_000, help="pods that run")
    parser.add_argument("--rate", type=float, default=100.0, help="pods per second that arrive")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--reports", type=float, default=10.0, help="seconds between two of a node")
    parser.add_argument("--every", type=float, default=10.0, help="seconds of one line")
    asyncio.run(_measure(parser.parse_args(argv)))


async def _measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as folder:
        os.chmod(folder, 0o711)
        servers = EmbeddedServers(
            Path(folder) / "data", postgres_settings=PostgresSettings(durable=True)
        )
        async with servers:
            await upgrade(servers.database_url)
            log = await PostgresEventLog.open(servers.database_url)
            limits = StreamLimits(options.nodes)
            bus = JetStreamBus(servers.nats_url, limits=limits)
            try:
                await bus.ensure_streams()
                cluster = LargeCluster(options.nodes, options.zones)
                await _fill(log, cluster.full(options.live))
                urls = servers.database_url, servers.nats_url
                with _services(*urls, options.nodes, Path(folder)) as ports:
                    await Play(log, bus, cluster, ports, options).run()
            finally:
                await bus.close()
                await log.close()


async def _fill(log: PostgresEventLog, events: Iterator[tuple[str, Event]]) -> None:
    """Append events, many in a commit."""
    for number in count():
        drafts = tuple(Draft(stream, event) for stream, event in islice(events, COMMIT))
        if not drafts:
            return
        await log.append([Commit(f"full/{number}", "bench", 0, time.time_ns() // 1000, drafts)])


@contextlib.contextmanager
def _services(database: str, nats: str, nodes: int, folder: Path) -> Iterator[list[int]]:
    """Run the services, and yield their HTTP ports."""
    running, ports = [], []
    for module, settings in SERVICES.items():
        ports.append(free_port())
        common = {
            "TOPOLOG_DATABASE_URL": database,
            "TOPOLOG_NATS_URL": nats,
            "TOPOLOG_NATS_NODES": str(nodes),
            "TOPOLOG_HTTP_PORT": str(ports[-1]),
        }
        with (folder / f"{module}.log").open("w") as out:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", module],
                    cwd=ROOT,
                    env={**os.environ, **common, **settings},
                    stdout=out,
                    stderr=out,
                )
            )
    try:
        yield ports
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


async def _caught_up(log: PostgresEventLog, ports: Sequence[int]) -> None:
    """Wait until every consumer has read what the cluster began with, and each role has its
    holder.
    """
    head = await log.head()
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            positions = await asyncio.to_thread(_positions, ports)
            members = await log.members("scheduler/topolog")
            is_read = len(positions) >= len(SERVICES) and min(positions.values()) >= head
            if members and await log.members("topology-store") and is_read:
                return
            await asyncio.sleep(0.2)


def _positions(ports: Sequence[int]) -> dict[str, int]:
    """Return the positions of all consumers."""
    positions: dict[str, int] = {}
    for port in ports:
        with contextlib.suppress(OSError):
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                page = answer.read().decode()
            positions |= {name: int(float(value)) for name, value in _POSITION.findall(page)}
    return positions


class Times(msgspec.Struct):
    """What the events of an interval show, in milliseconds."""

    reserved: list[float] = []
    bound: list[float] = []
    reported: list[float] = []
    decided_at: list[float] = []

    def figures(self) -> dict[str, object]:
        gaps = [later - earlier for earlier, later in pairwise(self.decided_at)]
        return {
            "bound": len(self.bound),
            "reserved_ms": _spread(self.reserved),
            "bound_ms": _spread(self.bound),
            "reported_ms": _spread(self.reported),
            "gap_ms": round(max(gaps, default=0.0)),
        }


def _spread(values: list[float]) -> dict[str, int]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered)),
        "p99": round(ordered[int(len(ordered) * 0.99)]),
        "max": round(ordered[-1]),
    }


class Play:
    """Plays the cluster against the log and the bus, and prints the lines."""

    def __init__(
        self,
        log: PostgresEventLog,
        bus: JetStreamBus,
        cluster: LargeCluster,
        ports: Sequence[int],
        options: argparse.Namespace,
    ) -> None:
        self._log, self._bus, self._cluster, self._ports = log, bus, cluster, ports
        self._options = options
        self._commits = self._position = 0
        self._arrived_us: dict[str, int] = {}
        self._published_us: dict[str, int] = {}
        self._times, self._all = Times(), Times()
        self._root = psutil.Process()

    async def run(self) -> None:
        # A node that is silent while the services start would expire.
        tasks = [asyncio.ensure_future(self._reports(time.monotonic()))]
        await _caught_up(self._log, self._ports)
        self._position = await self._log.head()
        began_s, began = time.monotonic(), sample(self._root)
        works = [self._pods(began_s), self._follow(), self._lines(began)]
        tasks += [asyncio.ensure_future(work) for work in works]
        await asyncio.wait(
            tasks, timeout=self._options.seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        await self._line("summary", began, began, self._all)

    async def _pods(self, began_s: float) -> None:
        """Let pods arrive and end at the given rate."""
        arrived = 0
        while True:
            wanted = int((time.monotonic() - began_s) * self._options.rate)
            events = self._cluster.arrive(wanted - arrived)
            arrived = wanted
            events += self._cluster.end(max(0, self._cluster.live - self._options.live))
            await self._append(events)
            await asyncio.sleep(TICK_S)

    async def _reports(self, began_s: float) -> None:
        """Let every node report once per interval."""
        reported = 0
        while True:
            wanted = int((time.monotonic() - began_s) * self._options.nodes / self._options.reports)
            messages = self._cluster.reports(wanted - reported)
            reported = wanted
            now_us = time.time_ns() // 1000
            self._published_us |= {
                message.subject.rsplit(".", 1)[-1]: now_us for message in messages
            }
            if messages:
                await self._bus.publish_many(messages)
            await asyncio.sleep(TICK_S)

    async def _follow(self) -> None:
        """Note the times of events, and let kubelets admit what is bound."""
        while True:
            page = await self._log.read(self._position, PAGE)
            events: Events = []
            for envelope in page:
                events += self._note(envelope)
            if page:
                self._position = page[-1].position
            await self._append(events)
            if len(page) < PAGE:
                await asyncio.sleep(TICK_S / 2)

    def _note(self, envelope: Envelope) -> Events:
        kind, key = envelope.type, envelope.stream.partition("/")[2]
        for times in (self._times, self._all):
            if kind == "PodReserved":
                times.decided_at.append(envelope.time_us / 1000)
                times.reserved.append(_since(self._arrived_us, key, envelope))
            elif kind == "PodBound":
                times.bound.append(_since(self._arrived_us, key, envelope))
            elif kind in {"NodeReportChanged", "NodeReported"}:
                times.reported.append(_since(self._published_us, key, envelope))
        if kind == "PodObserved":
            self._arrived_us[key] = envelope.time_us
        elif kind == "PodEnded":
            self._arrived_us.pop(key, None)
        elif kind == "PodBound":
            event = decode(envelope)
            assert isinstance(event, PodBound)
            return self._cluster.bound(event.uid, event.node)
        return []

    async def _append(self, events: Events) -> None:
        now_us = time.time_ns() // 1000
        commits = []
        for stream, event in events:
            self._commits += 1
            draft = Draft(stream, event)
            commits.append(Commit(f"played/{self._commits}", "bench", 0, now_us, (draft,)))
        if commits:
            await self._log.append(commits)

    async def _lines(self, began: Sample) -> None:
        """Print a line per interval."""
        last, due_s = began, time.monotonic()
        while True:
            due_s += self._options.every
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            times, self._times = self._times, Times()
            last = await self._line("interval", began, last, times)

    async def _line(self, kind: str, began: Sample, last: Sample, times: Times) -> Sample:
        head = await self._log.head()
        positions = await asyncio.to_thread(_positions, self._ports)
        sampled = await asyncio.to_thread(sample, self._root)
        rows = spent(last, sampled, max(1, len(times.bound)))
        row = {
            "bench": "large",
            "kind": kind,
            "at_s": round(sampled.at_s - began.at_s, 1),
            "live": self._cluster.live,
            "waiting": self._cluster.waiting,
            "rejected": self._cluster.rejected,
            **times.figures(),
            "lag": {name: max(0, head - position) for name, position in positions.items()},
            "cpu_ms_per_pod": {name: cost["cpu_ms_per_pod"] for name, cost in rows.items()},
            "mb": {name: cost["pss_mb"] for name, cost in rows.items()},
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(row), flush=True)
        return sampled


def _since(times_us: dict[str, int], key: str, envelope: Envelope) -> float:
    return (envelope.time_us - times_us.get(key, envelope.time_us)) / 1000
