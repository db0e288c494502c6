"""Bench of the whole road: `topolog up` on real parts, every pod over HTTP, NATS and Postgres with
its durable settings.

Prints a JSON line for the settings that decide durability (read from the server), one per cluster
size, one for the exporters. The workload is the openb trace at a low load and a fixed speed, so
that `--rate` pods per second arrive, however fast they are bound. Rates are those of the middle 80
% of the pods; latencies are real milliseconds from the request that creates a pod. CPU is counted
from ready to the last pod's end, start-up excluded.

`machine_cores` near `of_cores` means that CPU limits; its excess over `road_cores` means that other
programs use the machine and inflate every number; `busiest_cores` near 1 names the process that
limits. `decide_ms_per_pod` is the scheduler's own measure of its deciding batches, by the clock and
without I/O, and `decide_cpu_ms_per_pod` their CPU time. The kubelets are the simulator's, and their
CPU with it; the exporters that read them are Topolog's. `reports_per_pod` far below 2 or
`failed_scans` mean that kubelets did not answer: a road without reports is cheap, and not the one
to measure. CPU at rest, in the `REST_S` after the last pod's end, is `rest_cpu_ms_per_s`; it is in
`cpu_ms_per_pod`, and not in `added_ms_per_pod`. With `--where` the services' stacks are sampled,
and a line for each cause shows their CPU. Of the outcomes without a node in the log (`verdicts`),
`undecided_share` is the share that counts nodes which the search left undecided; `undecided_nodes`
is the same by node. A `log` line has what a pod adds to the log, counted from the first pod: all
(type ""), then by type. `tables_bytes` is by how much tables and indexes grew, start-up included.
With `--no-report-on-change` each node reports every `--report-interval` only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import asyncpg
import msgspec
import psutil

from services.embedded.data_dir import read_addresses
from services.embedded.up.status import Workload, read_workload
from services.scheduler.explain.wording import PHRASES
from services.simulator.cluster import Policies
from services.simulator.traces import read_nodes
from services.simulator.workload import trace_node, trace_rate
from shared.domain.refusal import Reason
from shared.eventlog.postgres_connection import plain_url
from shared.events.scheduling_events import PodVerdictChanged
from tests.bench._road_processes import Rows, Sample, limits, sample, shares, spent, with_rest
from tests.bench._where import SAMPLING, where
from tests.road.harness import Road, folder, running

TRACES = Path(__file__).resolve().parents[1] / "simulator" / "traces"
LOAD = 0.3
READY_TIMEOUT_S, END_TIMEOUT_S = 120.0, 900.0
IDLE_S = 15.0
MANY = 101
REST_S = 10.0
POSITION = 'topolog_consumer_position{consumer="scheduler"}'
DECIDING, DECIDING_CPU = "topolog_decide_latency_seconds_sum", "topolog_decide_cpu_seconds_total"
SCANS, FAILED_SCANS = (
    "topolog_exporter_scans_total",
    'topolog_exporter_scans_total{result="failed"}',
)
REPORTS = 'topolog_bus_published_total{stream="reports"}'
# `row_bytes` without indexes, nor the rows of `stream_head` and `commit_seen`: those are in TABLES.
WRITTEN = """
SELECT coalesce(type, '') AS type, count(*) AS events, count(DISTINCT commit_id) AS commits,
    sum(octet_length(payload)) AS payload, sum(pg_column_size(f.*)) AS row_bytes
FROM fact f
WHERE position >= (SELECT min(position) FROM fact WHERE type = 'PodObserved' AND position > $1)
    AND position <= $2
GROUP BY ROLLUP (type) ORDER BY row_bytes DESC
"""
TABLES = """
SELECT c.position, (
    SELECT sum(pg_total_relation_size(t.oid)) FROM pg_class t
        WHERE t.relname IN ('commit_seen', 'stream_head', 'pod_name')
            OR t.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'fact'::regclass)
) AS bytes FROM counter c
"""
SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench road", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 1000], help="cluster sizes")
    parser.add_argument("--pods", type=int, default=3000, help="pods to play on each")
    parser.add_argument("--rate", type=float, default=150.0, help="pods a second that arrive")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the openb trace")
    parser.add_argument(
        "--report-interval", type=float, default=10.0, help="seconds between full reports of a node"
    )
    parser.add_argument(
        "--report-on-change",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="report a node also when its kubelet's state changed",
    )
    parser.add_argument(
        "--load", type=float, default=LOAD, help="share of the cluster that is asked for"
    )
    parser.add_argument(
        "--no-exporters", action="store_true", help="leave out the exporters' own measurement"
    )
    parser.add_argument(
        "--where",
        action="store_true",
        help="sample the services' stacks, and tell where their CPU goes",
    )
    given = parser.parse_args(argv)
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory() as samples:
            environment = (
                {"TOPOLOG_SAMPLES": samples, "PYTHONPATH": str(SAMPLING)} if given.where else {}
            )
            began, ended, rows = _whole_road(nodes, given, environment)
            for name, what, ms in where(
                Path(samples),
                began.at_s,
                ended.at_s,
                {n: r["cpu_ms_per_pod"] for n, r in rows.items()},
            ):
                _print("where", nodes=nodes, name=name, what=what, cpu_ms_per_pod=ms)
    if not given.no_exporters:
        _exporters(given.report_interval)


def _whole_road(
    nodes: int, given: argparse.Namespace, environment: dict[str, str]
) -> tuple[Sample, Sample, Rows]:
    """Run one road from ready to the last pod's end and print it; return its first and last moment
    and its processes' CPU time.
    """
    traces = given.traces.resolve()
    speed = given.rate / trace_rate(
        [trace_node(node, Policies()) for node in read_nodes(traces, nodes)], given.load
    )
    flags = {
        "--nodes": nodes,
        "--pods": given.pods,
        "--workload": f"openb:{traces}",
        "--load": given.load,
        "--speed": f"{speed:.2f}",
        "--report-interval": given.report_interval,
    }
    with (
        folder() as path,
        running(
            path,
            *(str(part) for flag in flags.items() for part in flag),
            *(() if given.report_on_change else ("--no-report-on-change",)),
            env=environment,
        ) as road,
    ):
        _print("settings", **asyncio.run(_postgres_settings(path)))
        earlier = asyncio.run(_asked(path, TABLES))[0]
        figures, began = _figures(road), sample(psutil.Process(road.process.pid))
        workload = _played(road, path)
        ended = sample(psutil.Process(road.process.pid))
        figures = _figures(road).since(figures)
        time.sleep(REST_S)
        rested = sample(psutil.Process(road.process.pid))
        _print("verdicts", nodes=nodes, **asyncio.run(_verdicts(path)))
        later = asyncio.run(_asked(path, TABLES))[0]
        ran = workload.to_running.count
        written = asyncio.run(_asked(path, WRITTEN, earlier["position"], later["position"]))
        for row in written:
            _print("log", nodes=nodes, **_per_pod(row, ran))
        grown = int(later["bytes"] - earlier["bytes"])
        _print("log", nodes=nodes, tables_bytes=round(grown / max(1, ran), 2))
        figures = msgspec.structs.replace(figures, events=written[0]["events"])
        return (
            began,
            ended,
            _report(nodes, given, speed, workload, figures, began, ended, rested),
        )


async def _verdicts(path: Path) -> dict[str, float]:
    rows = await _asked(path, "SELECT payload FROM fact WHERE type = 'PodVerdictChanged'")
    outcomes = [msgspec.json.decode(row["payload"], type=PodVerdictChanged) for row in rows]
    return undecided_shares([outcome.counts for outcome in outcomes])


async def _asked(path: Path, query: str, *values: int) -> list[asyncpg.Record]:
    """Return the rows of a query to the log's database."""
    connection = await asyncpg.connect(plain_url(read_addresses(path).database_url or ""))
    try:
        return list(await connection.fetch(query, *values))
    finally:
        await connection.close()


def _per_pod(row: asyncpg.Record, pods: int) -> dict[str, object]:
    return {
        key: value if isinstance(value, str) else round(value / max(1, pods), 2)
        for key, value in row.items()
    }


def undecided_shares(outcomes: list[dict[str, int]]) -> dict[str, float]:
    """Return the shares of outcomes without a node, and of their nodes, that were undecided."""
    phrase = PHRASES[Reason.BRANCH_LIMIT]
    undecided = [sum(n for text, n in counts.items() if phrase in text) for counts in outcomes]
    nodes = sum(sum(counts.values()) for counts in outcomes)
    return {
        "verdicts": len(outcomes),
        "undecided_share": round(sum(map(bool, undecided)) / max(1, len(outcomes)), 4),
        "undecided_nodes": round(sum(undecided) / max(1, nodes), 6),
    }


async def _postgres_settings(path: Path) -> dict[str, str]:
    connection = await asyncpg.connect(plain_url(read_addresses(path).database_url or ""))
    try:
        return {name: await connection.fetchval(f"SHOW {name}") for name in SETTINGS}
    finally:
        await connection.close()


class Figures(msgspec.Struct, frozen=True):
    """Figures of the services themselves: events in the log, seconds in decision batches, scans of
    kubelets, and reports.
    """

    events: float
    decided_s: float
    decided_cpu_s: float
    scans: float
    failed_scans: float
    reports: float

    def since(self, before: Figures) -> Figures:
        """Return the lines printed after `before`."""
        return Figures(
            *(
                now - then
                for now, then in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(before), strict=True
                )
            )
        )


def _figures(road: Road) -> Figures:
    scheduler = _metrics(road, "scheduler")
    exporters = [
        line
        for name in road.services()
        if name.startswith("exporter")
        for line in _metrics(road, name)
    ]
    counted = [_summed(exporters, name) for name in (SCANS, FAILED_SCANS, REPORTS)]
    return Figures(
        _summed(scheduler, POSITION),
        _summed(scheduler, DECIDING),
        _summed(scheduler, DECIDING_CPU),
        *counted,
    )


def _metrics(road: Road, name: str) -> list[str]:
    with urlopen(f"http://127.0.0.1:{road.services()[name]}/metrics", timeout=10) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return lines


def _summed(lines: list[str], name: str) -> float:
    """Return the sum of a metric over its labels."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


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
    given: argparse.Namespace,
    speed: float,
    workload: Workload,
    figures: Figures,
    began: Sample,
    ended: Sample,
    rested: Sample,
) -> Rows:
    ran, seconds = workload.to_running.count, ended.at_s - began.at_s
    rows = with_rest(spent(began, ended, ran), ended, rested, seconds / max(1, ran))
    _print(
        "road",
        nodes=nodes,
        pods=workload.total,
        ran=ran,
        rejected=workload.rejected,
        lost=workload.lost,
        infeasible=len(workload.infeasible),
        done=workload.done,
        report_interval_s=given.report_interval,
        report_on_change=given.report_on_change,
        load=given.load,
        offered_per_s=given.rate,
        speed=round(speed, 1),
        bound_per_s=workload.to_bound.per_s,
        running_per_s=workload.to_running.per_s,
        bound_p50_ms=workload.to_bound.p50_ms,
        bound_p99_ms=workload.to_bound.p99_ms,
        running_p50_ms=workload.to_running.p50_ms,
        running_p99_ms=workload.to_running.p99_ms,
        events_per_s=round(figures.events / seconds),
        events_per_pod=round(figures.events / max(1, ran), 2),
        scans_per_pod=round(figures.scans / max(1, ran), 2),
        failed_scans=int(figures.failed_scans),
        reports_per_pod=round(figures.reports / max(1, ran), 2),
        decide_ms_per_pod=round(figures.decided_s * 1e3 / max(1, ran), 3),
        decide_cpu_ms_per_pod=round(figures.decided_cpu_s * 1e3 / max(1, ran), 3),
        seconds=round(seconds, 1),
        **shares(rows),
        **limits(began, ended, rows),
    )
    for name, row in rows.items():
        _print("process", nodes=nodes, name=name, **row)
    return rows


def _exporters(interval_s: float) -> None:
    """Measure one exporter on one idle node, then a hundred nodes on a few exporters: the
    difference is the cost of one more node.
    """
    of_one, of_many = _idle(1, interval_s), _idle(MANY, interval_s)
    added = MANY - of_many["processes"]
    _print(
        "exporter",
        report_interval_s=interval_s,
        one_node_rss_mb=of_one["rss_mb"],
        one_node_cpu_ms_per_s=round(of_one["cpu_s"] / IDLE_S * 1e3, 2),
        added_node_mb=round(
            (of_many["rss_mb"] - of_many["processes"] * of_one["rss_mb"]) / added, 3
        ),
        added_node_cpu_ms_per_s=round(
            (of_many["cpu_s"] - of_many["processes"] * of_one["cpu_s"]) / IDLE_S * 1e3 / added, 3
        ),
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
