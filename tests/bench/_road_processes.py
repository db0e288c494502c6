"""The CPU seconds and memory of Topolog's processes by name, read from the operating system.

This module starts and stops nothing.
"""

from __future__ import annotations

import contextlib
import time

import msgspec
import psutil

MIB = 2**20
SERVICES = {
    "services.topology_store": "topology-store",
    "services.scheduler": "scheduler",
    "services.binder": "binder",
    "tests.bench._large_binder": "binder",
    "services.exporter": "exporter",
    "services.simulator": "simulator",
}
SERVERS = ("postgres", "nats")
# Costs by process name.
Rows = dict[str, dict[str, float]]
SIMULATOR, SUPERVISOR = "simulator", "up"


class Cost(msgspec.Struct):
    """Of all processes of one name. `pss_mb` counts a page shared by several once (Postgres shares
    its buffers).
    """

    processes: int = 0
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    pss_mb: float = 0.0


class Sample(msgspec.Struct, frozen=True):
    """All processes at one moment (monotonic seconds); `machine_s` is the CPU time that everything
    on the machine has used.
    """

    at_s: float
    costs: dict[str, Cost]
    machine_s: float


def sample(root: psutil.Process) -> Sample:
    """Return the costs of `root` and all processes below it, by name."""
    costs: dict[str, Cost] = {}
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            _add(costs.setdefault(_name(process, root), Cost()), process, process != root)
    times = psutil.cpu_times()
    return Sample(time.monotonic(), costs, sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _name(process: psutil.Process, root: psutil.Process) -> str:
    command = process.cmdline()
    services = [SERVICES[part] for part in command if part in SERVICES]
    if services:
        return services[0]
    if "postgres" in process.name():
        return "postgres"
    return "nats" if "nats" in process.name() else SUPERVISOR


def _add(cost: Cost, process: psutil.Process, with_children: bool) -> None:
    """Add the costs of a process, and the CPU time of its ended children: of Postgres backends, and
    of children that dump a service's state.
    """
    times, memory = process.cpu_times(), process.memory_full_info()
    cost.processes += 1
    cost.cpu_s += times.user + times.system
    if with_children:
        cost.cpu_s += times.children_user + times.children_system
    cost.rss_mb += memory.rss / MIB
    cost.pss_mb += memory.pss / MIB


def spent(before: Sample, after: Sample, pods: int) -> Rows:
    """Return, by name, the CPU time between two samples and the memory at the second one."""
    spent_s = {}
    for name, cost in sorted(after.costs.items()):
        cpu_s = cost.cpu_s - before.costs.get(name, Cost()).cpu_s
        spent_s[name] = {
            "processes": cost.processes,
            "cpu_s": round(cpu_s, 2),
            "cpu_ms_per_pod": round(cpu_s * 1e3 / pods, 2) if pods else 0.0,
            "rss_mb": round(cost.rss_mb, 1),
            "pss_mb": round(cost.pss_mb, 1),
        }
    return spent_s


def with_rest(rows: Rows, ended: Sample, rested: Sample, seconds_per_pod: float) -> Rows:
    """Add to each row the CPU time per second at rest, between the two samples, and the time that a
    pod costs in addition.
    """
    at_rest, passed_s = spent(ended, rested, 0), rested.at_s - ended.at_s
    rows_with_rest = {}
    for name, row in rows.items():
        rest = at_rest[name]["cpu_s"] * 1e3 / passed_s
        added = row["cpu_ms_per_pod"] - rest * seconds_per_pod
        rows_with_rest[name] = row | {
            "rest_cpu_ms_per_s": round(rest, 2),
            "added_ms_per_pod": round(added, 2),
        }
    return rows_with_rest


def limits(before: Sample, after: Sample, rows: Rows) -> dict[str, object]:
    """Return what limited the run: cores used by Topolog and by the whole machine, and the process
    that came nearest to one full core.
    """
    passed_s = after.at_s - before.at_s
    busiest = max(rows, key=lambda name: rows[name]["cpu_s"] / rows[name]["processes"])
    return {
        "road_cores": round(sum(row["cpu_s"] for row in rows.values()) / passed_s, 2),
        "machine_cores": round((after.machine_s - before.machine_s) / passed_s, 2),
        "of_cores": psutil.cpu_count(),
        "busiest": busiest,
        "busiest_cores": round(rows[busiest]["cpu_s"] / rows[busiest]["processes"] / passed_s, 2),
    }


def shares(rows: Rows) -> dict[str, float]:
    """Return the CPU milliseconds per pod of Topolog's processes, its servers, and the simulated
    cluster.
    """
    services_only = [row for name, row in rows.items() if name not in (*SERVERS, SIMULATOR)]
    servers = [rows[name]["cpu_ms_per_pod"] for name in SERVERS if name in rows]
    return {
        "topolog_cpu_ms_per_pod": round(sum(row["cpu_ms_per_pod"] for row in services_only), 2),
        "topolog_added_ms_per_pod": round(sum(row["added_ms_per_pod"] for row in services_only), 2),
        "servers_cpu_ms_per_pod": round(sum(servers), 2),
        "simulator_cpu_ms_per_pod": rows.get(SIMULATOR, {}).get("cpu_ms_per_pod", 0.0),
    }
