"""Measure an exporter's cost and delay: `python -m tests.bench exporter`. Simulated kubelets with
real sockets and files in this process, a real NATS, the exporter as a process of its own.

Prints a JSON line for each number of nodes: `event_p50_ms`, `event_p99_ms` from the binding of a
pod (its kubelet admits it at once) to its report on the bus; `rss_mb` and `cpu_percent` of one core
at rest (`idle_pods` pods, reports every `interval_s`), `busy_percent` while pods come. The last
line is the largest node (100 pods, 256 CPUs, 8 zones, 16 kinds of devices): `scan_ms` (CPU time of
the whole round, median, without the simulated kubelet's) and the bytes of its full report and of
the event after one more pod.

`--life-hours 24` plays a life instead, a hundred times as fast: the exporter reports every 0.1 s
instead of 10 s, pods come and go, and the kubelet's socket is gone for ten minutes ten times.
Printed are memory, descriptors and threads after each tenth of it, and the received reports.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from services.embedded.servers import EmbeddedServers
from services.exporter import core, unary
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.source_grpc import GrpcSource
from services.simulator import machine_files, workload
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.clock import VirtualClock
from services.simulator.cluster import NodeShape, Policies, SimulatedNode, uniform
from services.simulator.kubelet_agent import Delays
from services.simulator.kubelet_runner import KubeletRunner
from services.simulator.workload import Task, TaskContainer
from services.topology_store.delta import changes
from shared.bus.jetstream import JetStreamBus
from shared.domain.report import Report
from shared.domain.resources import CPU, MEMORY

GIB, MIB = 2**30, 2**20
AT_ONCE = Delays(0.0, 0.0, 0.0, 0.0)
KINDS = 16


class Kubelets:
    """Simulated kubelets with their store, sockets and files."""

    def __init__(self, folder: Path, nodes: tuple[SimulatedNode, ...]) -> None:
        self.nodes = nodes
        self.store = ClusterStore()
        self.files = machine_files.places(
            folder / "nodes", machine_files.socket_folder(folder), nodes
        )
        self.runner = KubeletRunner(self.store, nodes, self.files, VirtualClock(1.0), AT_ONCE)

    def bind(self, name: str, node: str, requests: dict[str, int]) -> float:
        """Bind a pod, and return the time."""
        self.store.create(
            "pods",
            workload.manifest(
                Task(name, (TaskContainer("c", requests),), 1e6), "s", "default", "w"
            ),
        )
        bound_s = time.monotonic()
        self.store.bind(name, "default", node)
        return bound_s

    def delete(self, name: str) -> None:
        self.store.delete("pods", name, "default")


class Heard:
    """The times at which a report first listed something of each pod."""

    def __init__(self, bus: JetStreamBus) -> None:
        self._bus = bus
        self.nodes: set[str] = set()
        self.count = 0
        self.at: dict[str, float] = {}

    async def run(self) -> None:
        async for batch in self._bus.reports():
            now_s = time.monotonic()
            for message in batch:
                report = msgspec.json.decode(message.data, type=Report)
                self.nodes.add(report.node)
                self.count += 1
                for placement in report.placements or ():
                    if len(placement.held) > 1:
                        self.at.setdefault(placement.pod, now_s)


@contextlib.asynccontextmanager
async def exporting(
    folder: Path, kubelets: Kubelets, url: str, interval_s: float
) -> AsyncIterator[psutil.Process]:
    shares = folder / "nodes.json"
    shares.write_bytes(msgspec.json.encode([files.for_exporter() for files in kubelets.files]))
    argv = [
        sys.executable,
        "-m",
        "services.exporter",
        "--nodes-file",
        str(shares),
        "--nats-url",
        url,
    ]
    log = (folder / "exporter.log").open("wb")
    process = subprocess.Popen([*argv, "--interval", f"{interval_s:g}"], stdout=log, stderr=log)  # noqa: ASYNC220
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)
        log.close()


async def until(holds: object, timeout_s: float = 120.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(folder: Path, count: int) -> AsyncIterator[tuple[Kubelets, Heard, str]]:
    """Yield `count` simulated kubelets, a receiver of their reports, and the bus' URL."""
    async with EmbeddedServers(folder / "servers", want_postgres=False) as servers:
        bus = JetStreamBus(servers.nats_url, name="bench")
        await bus.ensure_streams()
        kubelets, heard = (
            Kubelets(folder, uniform(count, NodeShape(2, 32, 128 * GIB), Policies())),
            Heard(bus),
        )
        await kubelets.runner.start()
        tasks = [asyncio.create_task(work()) for work in (kubelets.runner.run, heard.run)]
        yield kubelets, heard, servers.nats_url
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kubelets.runner.stop()
        await bus.close()


async def measure(count: int, options: argparse.Namespace) -> dict[str, object]:
    """Return one result line for `count` nodes in one exporter."""
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as text:
        folder = Path(text)
        async with (
            running(folder, count) as (kubelets, heard, url),
            exporting(folder, kubelets, url, options.interval) as process,
        ):
            await until(lambda: len(heard.nodes) == count)
            line = await _events(kubelets, heard, process, options)
            line |= await _rest(kubelets, process, options)
    return {"nodes": count, **line}


async def life(hours: float) -> dict[str, object]:
    """Return one result line: the sizes of a single-node exporter after each tenth of its run."""
    ends_s, interval_s = hours * 36.0, 0.1
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as text:
        folder = Path(text)
        async with (
            running(folder, 1) as (kubelets, heard, url),
            exporting(folder, kubelets, url, interval_s) as process,
        ):
            await until(lambda: heard.nodes)
            begun, number, sizes = time.monotonic(), 0, list[dict[str, object]]()
            while (lived := time.monotonic() - begun) < ends_s:
                kubelets.bind(f"p{number}", kubelets.nodes[0].name, {CPU: 2000, MEMORY: GIB})
                if number >= 8:
                    kubelets.delete(f"p{number - 8}")
                number += 1
                if lived > ends_s * (len(sizes) + 1) / 10:
                    await _away(kubelets.files[0].socket)
                    sizes.append(_size(process))
                await asyncio.sleep(0.2)
            sizes.append(_size(process))
    return {"life_hours": hours, "pods": number, "reports": heard.count, "tenths": sizes}


async def _away(socket: Path) -> None:
    """Remove the kubelet's socket for ten minutes of the run."""
    aside = socket.with_suffix(".away")
    socket.rename(aside)
    await asyncio.sleep(6.0)
    aside.rename(socket)
    await asyncio.sleep(2.0)


def _size(process: psutil.Process) -> dict[str, object]:
    memory = process.memory_full_info()
    return {
        "rss_mb": round(memory.rss / MIB, 1),
        "uss_mb": round(memory.uss / MIB, 1),
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
    }


async def _events(
    kubelets: Kubelets, heard: Heard, process: psutil.Process, options: argparse.Namespace
) -> dict[str, object]:
    times_before, started, waits = process.cpu_times(), time.monotonic(), []
    for number in range(options.events):
        name, node = f"e{number}", kubelets.nodes[number % len(kubelets.nodes)].name
        bound_s = kubelets.bind(name, node, {CPU: 2000, MEMORY: GIB})
        await until(lambda name=name: name in heard.at)
        waits.append((heard.at[name] - bound_s) * 1e3)
        kubelets.delete(name)
        await asyncio.sleep(options.pause)
    busy = _percent(times_before, process, started)
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {
        "events": len(waits),
        "event_p50_ms": round(cuts[49], 1),
        "event_p99_ms": round(cuts[98], 1),
        "busy_percent": busy,
    }


async def _rest(
    kubelets: Kubelets, process: psutil.Process, options: argparse.Namespace
) -> dict[str, object]:
    for node in kubelets.nodes:
        for number in range(options.idle_pods):
            kubelets.bind(f"{node.name}-{number}", node.name, {CPU: 1000, MEMORY: GIB})
    await asyncio.sleep(2.0)
    times_before, started = process.cpu_times(), time.monotonic()
    await asyncio.sleep(options.rest)
    memory = process.memory_full_info()
    return {
        "idle_pods": options.idle_pods,
        "interval_s": options.interval,
        "cpu_percent": _percent(times_before, process, started),
        "rss_mb": round(memory.rss / MIB, 1),
        "uss_mb": round(memory.uss / MIB, 1),
    }


def _percent(before: Any, process: psutil.Process, started: float) -> float:
    times_after = process.cpu_times()
    used = times_after.user + times_after.system - before.user - before.system
    return float(round(100 * used / (time.monotonic() - started), 2))


@contextlib.asynccontextmanager
async def answering(folder: Path, spec: NodeSpec) -> AsyncIterator[NodeReader]:
    """Yield a reader of the node. Another process answers for its kubelet, with the current
    answers.
    """
    files = []
    for name in ("List", "GetAllocatableResources"):
        files.append(folder / f"{name}.pb")
        files[-1].write_bytes(
            await unary.call(spec.socket, f"/v1.PodResourcesLister/{name}", b"", 10.0)
        )
    socket = folder / "a.sock"
    argv = [sys.executable, "-m", "tests.bench._answering", str(socket), *map(str, files)]
    process = subprocess.Popen(argv)  # noqa: ASYNC220
    try:
        await until(socket.exists)
        elsewhere = msgspec.structs.replace(spec, socket=str(socket))
        yield NodeReader(elsewhere, ExporterSettings(node_name=spec.name), GrpcSource(str(socket)))
    finally:
        process.terminate()
        process.wait(20)


async def largest(options: argparse.Namespace) -> dict[str, object]:
    """Measure scans of the largest node in this process."""
    devices = {f"vendor.example/kind-{kind:02d}": 16 for kind in range(KINDS)}
    nodes = uniform(1, NodeShape(8, 256, 2048 * GIB, devices), Policies("best-effort"))
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as text:
        kubelets = Kubelets(Path(text), nodes)
        await kubelets.runner.start()
        task = asyncio.create_task(kubelets.runner.run())
        kinds = sorted(devices)
        for number in range(100):
            kubelets.bind(
                f"p{number}", nodes[0].name, {CPU: 2000, MEMORY: GIB, kinds[number % KINDS]: 1}
            )
        files = kubelets.files[0]
        spec = NodeSpec(nodes[0].name, str(files.socket), str(files.sysfs), str(files.kubelet_dir))
        reader = NodeReader(
            spec, ExporterSettings(node_name=nodes[0].name), GrpcSource(str(files.socket))
        )
        await until(lambda: len(kubelets.runner.agent(nodes[0].name).node.state.cpu.entries) == 100)
        async with answering(Path(text), spec) as elsewhere:
            times = []
            for _ in range(options.scans):
                begun = time.process_time()
                made = core.report(nodes[0].name, "bench", await elsewhere.scan(), core.Rules())
                times.append((time.process_time() - begun) * 1e3)
            await elsewhere.close()
        kubelets.bind("one-more", nodes[0].name, {CPU: 2000, MEMORY: GIB, kinds[0]: 1})
        await until(lambda: len(kubelets.runner.agent(nodes[0].name).node.state.cpu.entries) == 101)
        full = core.report(nodes[0].name, "bench", await reader.scan(), core.Rules())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reader.close()
        await kubelets.runner.stop()
    return {
        "zones": 8,
        "cpus": 256,
        "device_kinds": KINDS,
        "pods": 100,
        "scan_ms": round(statistics.median(times), 2),
        "report_bytes": len(msgspec.json.encode(made)),
        "delta_bytes": len(msgspec.json.encode(changes(made, full))),
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench exporter", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 50])
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.15, help="seconds between two pods")
    parser.add_argument("--idle-pods", type=int, default=10)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--rest", type=float, default=30.0, help="seconds at rest")
    parser.add_argument("--scans", type=int, default=50)
    parser.add_argument(
        "--life-hours",
        type=float,
        default=0.0,
        help="only a life of so many hours, a hundred times as fast",
    )
    options = parser.parse_args(argv)
    if options.life_hours:
        print(json.dumps(asyncio.run(life(options.life_hours))), flush=True)
        return
    for count in options.nodes:
        print(json.dumps(asyncio.run(measure(count, options))), flush=True)
    print(json.dumps(asyncio.run(largest(options))), flush=True)
