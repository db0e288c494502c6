"""Bench of the whole road: `topolog up` on real parts, every pod over HTTP, NATS and Postgres with its durable settings.

A JSON line for the settings that decide durability (read from the server), one a cluster size, one for the exporters. The
workload is the openb trace at a low load and a fixed speed, so that `--rate` pods a second arrive, however fast they are
bound. Rates are those of the middle 80 % of the pods; latencies are real milliseconds from the request that creates a pod.
CPU is counted from ready to the last pod's end, start-up excluded. `machine_cores` near `of_cores` says that CPU limits, and by
how much it exceeds `road_cores`, that others use the machine and inflate every number; `busiest_cores` near 1 names the process
that limits. `decide_ms_per_pod` is what the scheduler itself measures of its deciding batches, by the clock and without I/O.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from urllib.request import urlopen

import asyncpg
import psutil

from services.embedded.data_dir import read_addresses
from services.embedded.up.status import Workload, read_workload
from services.simulator.cluster import Policies
from services.simulator.traces import read_nodes
from services.simulator.workload import trace_node, trace_rate
from shared.eventlog.postgres_connection import plain_url
from tests.bench._road_processes import Sample, limits, sample, shares, spent
from tests.road.harness import Road, folder, running

TRACES = Path(__file__).resolve().parents[1] / "simulator" / "traces"
LOAD = 0.3
READY_TIMEOUT_S, END_TIMEOUT_S = 120.0, 900.0
IDLE_S = 15.0
MANY = 101
DECIDING = "topolog_decide_latency_seconds_sum"
SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench road", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 1000], help="cluster sizes")
    parser.add_argument("--pods", type=int, default=3000, help="pods to play on each")
    parser.add_argument("--rate", type=float, default=150.0, help="pods a second that arrive")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the openb trace")
    parser.add_argument("--report-interval", type=float, default=10.0, help="seconds between full reports of a node")
    parser.add_argument("--no-exporters", action="store_true", help="leave out the exporters' own measurement")
    given = parser.parse_args(argv)
    for nodes in given.nodes:
        _whole_road(nodes, given.pods, given.rate, given.traces.resolve(), given.report_interval)
    if not given.no_exporters:
        _exporters(given.report_interval)


def _whole_road(nodes: int, pods: int, rate: float, traces: Path, interval_s: float) -> None:
    speed = rate / trace_rate([trace_node(node, Policies()) for node in read_nodes(traces, nodes)], LOAD)
    flags = {
        "--nodes": nodes,
        "--pods": pods,
        "--workload": f"openb:{traces}",
        "--load": LOAD,
        "--speed": f"{speed:.2f}",
        "--report-interval": interval_s,
    }
    with folder() as path, running(path, *(str(part) for flag in flags.items() for part in flag)) as road:
        _print("settings", **asyncio.run(_postgres_settings(path)))
        began, position, decided_s = sample(psutil.Process(road.process.pid)), _position(road), _deciding_s(road)
        workload = _played(road, path)
        ended = sample(psutil.Process(road.process.pid))
        decided_s = _deciding_s(road) - decided_s
        facts_per_s = (_position(road) - position) / (ended.at_s - began.at_s)
        _report(nodes, rate, interval_s, speed, workload, began, ended, facts_per_s, decided_s)


async def _postgres_settings(path: Path) -> dict[str, str]:
    connection = await asyncpg.connect(plain_url(read_addresses(path).database_url or ""))
    try:
        return {name: await connection.fetchval(f"SHOW {name}") for name in SETTINGS}
    finally:
        await connection.close()


def _position(road: Road) -> int:
    stats = road.get("scheduler", "/stats") or {}
    return int(stats.get("position", 0))


def _deciding_s(road: Road) -> float:
    """Seconds that the scheduler has spent in deciding batches, from its metrics."""
    with urlopen(f"http://127.0.0.1:{road.services()['scheduler']}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(DECIDING))


def _played(road: Road, path: Path) -> Workload:
    """Wait for the end of the workload, without asking any process that is measured."""
    deadline_s = time.monotonic() + END_TIMEOUT_S
    workload = Workload()
    while not workload.done and time.monotonic() < deadline_s and road.process.poll() is None:
        time.sleep(0.5)
        workload = read_workload(path / "simulator" / "status.json", workload)
    return workload


def _report(
    nodes: int,
    rate: float,
    interval_s: float,
    speed: float,
    workload: Workload,
    began: Sample,
    ended: Sample,
    facts_per_s: float,
    decided_s: float,
) -> None:
    ran = workload.to_running.count
    rows = spent(began, ended, ran)
    _print(
        "road",
        nodes=nodes,
        pods=workload.total,
        ran=ran,
        rejected=workload.rejected,
        lost=workload.lost,
        infeasible=len(workload.infeasible),
        done=workload.done,
        report_interval_s=interval_s,
        offered_per_s=rate,
        speed=round(speed, 1),
        bound_per_s=workload.to_bound.per_s,
        running_per_s=workload.to_running.per_s,
        bound_p50_ms=workload.to_bound.p50_ms,
        bound_p99_ms=workload.to_bound.p99_ms,
        running_p50_ms=workload.to_running.p50_ms,
        running_p99_ms=workload.to_running.p99_ms,
        facts_per_s=round(facts_per_s),
        decide_ms_per_pod=round(decided_s * 1e3 / max(1, ran), 3),
        seconds=round(ended.at_s - began.at_s, 1),
        **shares(rows),
        **limits(began, ended, rows),
    )
    for name, row in rows.items():
        _print("process", nodes=nodes, name=name, **row)


def _exporters(interval_s: float) -> None:
    """One exporter on one idle node, then a hundred nodes on a few exporters: the price of a node added."""
    one, many = _idle(1, interval_s), _idle(MANY, interval_s)
    added = MANY - many["processes"]
    _print(
        "exporter",
        report_interval_s=interval_s,
        one_node_rss_mb=one["rss_mb"],
        one_node_cpu_ms_per_s=round(one["cpu_s"] / IDLE_S * 1e3, 2),
        added_node_mb=round((many["rss_mb"] - many["processes"] * one["rss_mb"]) / added, 3),
        added_node_cpu_ms_per_s=round((many["cpu_s"] - many["processes"] * one["cpu_s"]) / IDLE_S * 1e3 / added, 3),
        nodes=MANY,
    )


def _idle(nodes: int, interval_s: float) -> dict[str, float]:
    flags = ("--nodes", str(nodes), "--workload", "none", "--report-interval", str(interval_s))
    with folder() as path, running(path, *flags) as road:
        time.sleep(2 * interval_s)
        began = sample(psutil.Process(road.process.pid))
        time.sleep(IDLE_S)
        return spent(began, sample(psutil.Process(road.process.pid)), 0)["exporter"]


def _print(kind: str, **values: object) -> None:
    print(json.dumps({"bench": "road", "kind": kind, **values}), flush=True)
