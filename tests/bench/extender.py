"""Bench of the HTTP extender: filter with node cache on a full cluster, and pods through filter,
prioritize and bind.

Prints one JSON line. `filter_p99_ms`: /filter over HTTP on loopback with all node names, pod
classes seen before, a node changed before each; `prioritize_p99_ms` the same for /prioritize on 100
of the nodes that passed, `both_p99_ms` for the two together, by the clock; `..._cpu_ms` is CPU time
of server and client together, the figure to compare on a shared machine. `pods_per_s`: filter on
all nodes, prioritize on 100 of those that passed, bind on the best, with `--clients` at a time; log
in memory, and a binder that answers at once. `filter_cold_ms`: the slowest first request of a pod
class.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import time
from typing import Any, NamedTuple

import httpx2
import msgspec

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.extender.extender import Extender
from services.scheduler.extender.server import ExtenderServer
from services.scheduler.extender.settings import ExtenderSettings
from services.scheduler.handlers import Decider, fold_of
from shared.domain.report import Report, Zone, ZoneResource
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft, Lease
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodReserved
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.lent_lease import LentLease
from shared.runtime.projector import Projector
from tests.fixtures.ports import free_port

GIB = 1 << 30
JSON_HEADERS = {"Content-Type": "application/json"}
REQUESTS, PODS, SHAPES, PASSING = 300, 500, 8, 100


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench extender", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--zones", type=int, default=8)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args(argv)
    print(json.dumps(asyncio.run(measure(options))), flush=True)


class Bench:
    """A scheduler with its extender, on a log in memory."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.random = random.Random(7)
        self.log = MemoryEventLog("bench")
        self.names = [f"node-{at:05}.example" for at in range(options.nodes)]
        self.url = f"http://127.0.0.1:{free_port()}"
        self._told = 0

    async def tell(self, *events: tuple[str, Event]) -> None:
        commits = []
        for stream, event in events:
            self._told += 1
            commits.append(Commit(f"told/{self._told}", "bench", 0, 0, (Draft(stream, event),)))
        await self.log.append(commits)

    async def fill(self) -> None:
        """Add nodes whose zones have 16 CPUs, of which at least half are free."""
        for name in self.names:
            allocatable = {
                "cpu": 16_000 * self.options.zones,
                "memory": 64 * GIB * self.options.zones,
                "pods": 250,
            }
            await self.tell(
                (streams.node(name), NodeObserved(name, name, allocatable=allocatable)),
                self.report(name, 1),
            )

    def report(self, name: str, at: int) -> tuple[str, Event]:
        zones = tuple(Zone(number, self._resources(), {}) for number in range(self.options.zones))
        made = Report(
            name,
            "boot",
            at,
            policy="single-numa-node",
            tracked=("cpu", "memory"),
            zones=zones,
            placements=(),
        )
        return streams.report(name), NodeReported(made)

    def _resources(self) -> dict[str, ZoneResource]:
        free = self.random.randint(8, 16)
        return {
            "cpu": ZoneResource(16_000, 16_000, free * 1000),
            "memory": ZoneResource(64 * GIB, 64 * GIB, free * 4 * GIB),
        }

    def pod(self, number: int) -> dict[str, Any]:
        amounts = {"cpu": str(1 + number % SHAPES), "memory": "1Gi"}
        container = {
            "name": "c",
            "image": "x",
            "resources": {"requests": amounts, "limits": amounts},
        }
        return {
            "metadata": {"name": f"p{number}", "namespace": "ns", "uid": f"uid-{number}"},
            "spec": {"schedulerName": "default-scheduler", "containers": [container]},
            "status": {"qosClass": "Guaranteed"},
        }

    async def binder(self) -> None:
        """Bind every reserved pod."""
        number = 0
        while True:
            page = await self.log.read(number)
            if not page:
                await self.log.wait(number, 0.5)
                continue
            number = page[-1].position
            reserved = [e for e in page if e.type == PodReserved.__name__]
            for envelope in reserved:
                uid = envelope.stream.removeprefix("pod/")
                node = msgspec.json.decode(envelope.payload)["node"]
                stream = streams.pod(uid)
                await self.tell(
                    (stream, BindIntended(uid, "ns", "p", node, envelope.position)),
                    (stream, PodBound(uid, node)),
                )


async def measure(options: argparse.Namespace) -> dict[str, object]:
    bench = Bench(options)
    await bench.fill()
    decider, extenders = (
        Decider(bench.log, LentLease(Lease("scheduler/topolog/0", "bench", 1)), SYSTEM_CLOCK),
        list[Extender](),
    )

    def after(core: SchedulerCore, page: Any) -> None:
        decider.folded(core, page)
        for extender in extenders:
            extender.folded(core, page)

    projector: Projector[SchedulerCore] = Projector(
        "scheduler", bench.log, fold_of(CoreConfig()), after=after
    )
    extender = Extender(projector, decider.wake, 25.0)
    extenders.append(extender)
    decider.after_turn = extender.answered
    server = ExtenderServer(extender, ExtenderSettings(port=int(bench.url.rsplit(":", 1)[1])))
    works = (projector.run(), decider.run(projector), server.run(), bench.binder())
    tasks = [asyncio.create_task(work) for work in works]
    await projector.wait_live()
    await projector.wait_for(await bench.log.head(), 600)
    gc.collect()
    gc.freeze()  # as the service does once it has caught up with the log
    while not server.url:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    async with httpx2.AsyncClient(timeout=60, headers=JSON_HEADERS) as client:
        cold, warm, scored = await filters(bench, client, projector)
        pods_per_s, refused = await pods(bench, client)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "nodes": options.nodes,
        "zones": options.zones,
        **shown("filter", warm),
        **shown("prioritize", scored),
        **shown(
            "both",
            [filtering.plus(scoring) for filtering, scoring in zip(warm, scored, strict=True)],
        ),
        "filter_cold_ms": round(max(cold).clock * 1e3, 1),
        "filter_cold_cpu_ms": round(max(cold).cpu * 1e3, 1),
        "pods_per_s": round(pods_per_s, 1),
        "clients": options.clients,
        "bind_refused": refused,
    }


class Taken(NamedTuple):
    """Times in seconds, by the clock and of the CPU."""

    clock: float
    cpu: float

    def plus(self, other: Taken) -> Taken:
        return Taken(self.clock + other.clock, self.cpu + other.cpu)


def now() -> Taken:
    return Taken(time.perf_counter(), time.process_time())


def since(begun: Taken) -> Taken:
    return now().plus(Taken(-begun.clock, -begun.cpu))


def shown(name: str, times: list[Taken]) -> dict[str, float]:
    """Return p99 by the clock, and p50 and p99 of CPU time, in milliseconds."""
    clock, cpu = [each.clock for each in times], [each.cpu for each in times]
    figures = {
        "p99_ms": quantile(clock, 0.99),
        "p50_cpu_ms": statistics.median(cpu),
        "p99_cpu_ms": quantile(cpu, 0.99),
    }
    return {f"{name}_{figure}": round(seconds * 1e3, 2) for figure, seconds in figures.items()}


async def filters(
    bench: Bench, client: httpx2.AsyncClient, projector: Projector[SchedulerCore]
) -> tuple[list[Taken], list[Taken], list[Taken]]:
    """Return seconds of the first /filter of each pod class, and of /filter and /prioritize after
    that; a node reports again before each.
    """
    cold, warm, scored = list[Taken](), list[Taken](), list[Taken]()
    for number in range(SHAPES + REQUESTS):
        await bench.tell(bench.report(bench.random.choice(bench.names), 2 + number))
        await projector.wait_for(await bench.log.head(), 60)
        await asyncio.sleep(0.005)
        body = msgspec.json.encode(
            {"Pod": bench.pod(number), "Nodes": None, "NodeNames": bench.names}
        )
        begun = now()
        answer = await client.post(f"{bench.url}/filter", content=body)
        (cold if number < SHAPES else warm).append(since(begun))
        assert answer.status_code == 200, answer.text
        if number >= SHAPES:
            scored.append(
                await prioritized(
                    bench, client, number, msgspec.json.decode(answer.content)["NodeNames"]
                )
            )
    return cold, warm, scored


async def prioritized(
    bench: Bench, client: httpx2.AsyncClient, number: int, passing: list[str]
) -> Taken:
    some = bench.random.sample(passing, min(PASSING, len(passing)))
    body = msgspec.json.encode({"Pod": bench.pod(number), "NodeNames": some})
    begun = now()
    answer = await client.post(f"{bench.url}/prioritize", content=body)
    assert answer.status_code == 200, answer.text
    return since(begun)


async def pods(bench: Bench, client: httpx2.AsyncClient) -> tuple[float, int]:
    """Return the pods per second through all three verbs, and the number of refused bindings."""
    numbers, refused = iter(range(100_000, 100_000 + PODS)), 0

    async def scheduler() -> None:
        nonlocal refused
        for number in numbers:
            while not await one(bench, client, number):
                refused += 1

    begun = time.perf_counter()
    await asyncio.gather(*(scheduler() for _ in range(bench.options.clients)))
    return PODS / (time.perf_counter() - begun), refused


async def one(bench: Bench, client: httpx2.AsyncClient, number: int) -> bool:
    made = bench.pod(number)
    asked = msgspec.json.encode({"Pod": made, "Nodes": None, "NodeNames": bench.names})
    passing = msgspec.json.decode(
        (await client.post(f"{bench.url}/filter", content=asked)).content
    )["NodeNames"]
    some = bench.random.sample(passing, min(PASSING, len(passing)))
    scored = await client.post(
        f"{bench.url}/prioritize", content=msgspec.json.encode({"Pod": made, "NodeNames": some})
    )
    best = max(msgspec.json.decode(scored.content), key=lambda each: each["Score"])["Host"]
    uid = made["metadata"]["uid"]
    body = {"PodName": f"p{number}", "PodNamespace": "ns", "PodUID": uid, "Node": best}
    answer = await client.post(f"{bench.url}/bind", content=msgspec.json.encode(body))
    return not msgspec.json.decode(answer.content)["Error"]


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
