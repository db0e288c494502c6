"""The workloads: machines and tasks, the same for every row.

A trace (`services.simulator.traces` has the format) is played on its overlay of zones, on a cluster
that already runs pods at the start. `dense` is generated, and hard on purpose: pods of two
containers, devices in the last zone while CPUs are free in others, init containers larger and
smaller than the containers that follow, members of sets that are created again under their names.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from services.comparison import wide
from services.comparison.cells import DENSE, WIDE, Cell
from services.simulator.cluster import GPU, NodeShape, Policies, SimulatedNode, lay_out
from services.simulator.feasibility import infeasible, rooms
from services.simulator.traces import TraceError, is_openb, read_nodes, read_tasks
from services.simulator.workload import (
    Arrival,
    Task,
    TaskContainer,
    poisson,
    scarce_rate,
    trace_node,
    trace_rate,
    trace_tasks,
)
from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU, MEMORY
from shared.events.catalog import Event
from shared.kubelet.device_state import Device

GIB = 2**30
SCHEDULER = "topolog-scheduler"
ZONE_CPUS = 12
GPUS_A_NODE = 4
MOST_TASKS = 200_000
# Share of the dense load from members of sets.
MEMBER_SHARE = 0.25


class PodTask(Task, frozen=True):
    """A task with its pod, as a history recorded it.

    `again` are the pods that replaced it after a rejection. `node` is where it runs at the start,
    or where another scheduler bound it (`bound`: no scheduler is asked). A pod that still waits at
    `gives_up_s` is deleted then.
    """

    pod: Pod
    again: tuple[Pod, ...] = ()
    node: str = ""
    bound: bool = False
    gives_up_s: float = math.inf

    def at_attempt(self, attempt: int) -> Pod:
        """Return the pod of an attempt; a generated one if the history has no more."""
        pods = (self.pod, *self.again)
        if attempt < len(pods):
            return pods[attempt]
        last = pods[-1]
        return msgspec.structs.replace(
            last, uid=f"{last.uid}-again-{attempt}", name=f"{last.name}-again-{attempt}"
        )


class Workload(msgspec.Struct, frozen=True):
    """Machines, tasks that already run at the start (with the rest of their lifetimes), arrivals,
    set members.

    `strategy` is the score of upstream's rows. Members are created again under their names as long
    as the run lasts. `news` is what schedulers receive about nodes (seconds, stream, event);
    without it, each node as it is, at the start.
    """

    nodes: tuple[SimulatedNode, ...]
    running: tuple[Task, ...]
    arrivals: tuple[Arrival, ...]
    members: tuple[str, ...]
    strategy: str
    infeasible: int
    news: tuple[tuple[float, str, Event], ...] = ()


def workload(cell: Cell, traces: Path) -> Workload:
    """Return the cell's workload. It does not depend on the row and the reports."""
    if cell.workload == WIDE:
        return _wide_pods(cell)
    return _dense(cell) if cell.workload == DENSE else _traces(cell, traces)


def pod_of(task: Task, uid: str, attempt: int = 0) -> Pod:
    """Return the pod of a task: the recorded one, or a Guaranteed one."""
    if isinstance(task, PodTask):
        return task.at_attempt(attempt)
    ordered = sorted(task.containers, key=lambda container: not container.init)
    parts = tuple(
        Container(c.name, "init" if c.init else "app", c.requests, c.requests) for c in ordered
    )
    return Pod(uid, "bench", task.name, "Guaranteed", parts, scheduler_name=SCHEDULER)


def _policies(cell: Cell) -> Policies:
    return Policies(cell.policy, owner=cell.owner)


def _feasible(tasks: Iterator[Task], nodes: tuple[SimulatedNode, ...]) -> tuple[list[Task], int]:
    listed = list(tasks)
    bad = {refused.task for refused in infeasible(listed, rooms(nodes))}
    return [task for task in listed if task.name not in bad], len(bad)


# -- traces
# --------------------------------------------------------------------------------------------------


def _traces(cell: Cell, folder: Path) -> Workload:
    """Play a trace. The rate of the published trace is a convention. In other traces, tasks use the
    given share of the scarcest resource.
    """
    listed = read_nodes(folder, cell.nodes)
    try:
        nodes = tuple(trace_node(node, _policies(cell)) for node in listed)
    except ValueError as error:
        raise TraceError(f"{folder}: {error}") from error
    once = read_tasks(folder)
    rate = trace_rate(nodes, cell.load)
    if not is_openb(folder):
        fitting, _ = _feasible(islice(trace_tasks(once), len(once)), nodes)
        if not fitting:
            raise TraceError(
                f"{folder}: no task fits any of the first {len(nodes)} nodes; give more of them, "
                "or smaller tasks"
            )
        rate = scarce_rate(nodes, fitting, cell.load)
    tasks, bad = _feasible(
        islice(trace_tasks(once), min(MOST_TASKS, int(rate * cell.horizon_s * 1.2) + 50)), nodes
    )
    arrivals = [
        arrival for arrival in poisson(tasks, rate, cell.seed) if arrival.at_s < cell.horizon_s
    ]
    running = _at_work(tasks, rate, cell.seed)
    return Workload(nodes, running, tuple(arrivals), (), "LeastAllocated", bad)


def _at_work(tasks: list[Task], rate: float, seed: int) -> tuple[Task, ...]:
    """Return the tasks that a cluster under this load runs on average (Little's law), each at some
    moment of its life.
    """
    chance = random.Random(seed + 1)
    lifetimes = [max(task.lifetime_s, 0.01) for task in tasks]
    count = int(rate * sum(lifetimes) / len(lifetimes))
    chosen = chance.choices(tasks, lifetimes, k=count)
    return tuple(
        Task(f"before-{number}-{task.name}", task.containers, chance.uniform(0, task.lifetime_s))
        for number, task in enumerate(chosen)
    )


def _wide_pods(cell: Cell) -> Workload:
    nodes, rate = wide.nodes(cell), wide.rate(cell)
    tasks, bad = _feasible(wide.tasks(cell, int(rate * cell.horizon_s * 1.3) + 50), nodes)
    arrivals = tuple(
        arrival for arrival in poisson(tasks, rate, cell.seed) if arrival.at_s < cell.horizon_s
    )
    return Workload(nodes, (), arrivals, (), "MostAllocated", bad)


# -- dense
# --------------------------------------------------------------------------------------------------


def _dense(cell: Cell) -> Workload:
    nodes = tuple(
        _dense_node(f"dense-{number:02d}", cell.zones, _policies(cell))
        for number in range(cell.nodes)
    )
    chance = random.Random(cell.seed)
    sample = [_dense_task(chance, str(number)) for number in range(400)]
    work = sum(_cpus(task) * task.lifetime_s for task in sample) / len(sample)
    offered = cell.load * sum(node.allocatable()[CPU] for node in nodes) / 1000
    rate = offered * (1 - MEMBER_SHARE) / work
    tasks = (
        _dense_task(chance, f"{number}") for number in range(int(rate * cell.horizon_s * 1.3) + 50)
    )
    feasible, bad = _feasible(tasks, nodes)
    arrivals = tuple(
        arrival for arrival in poisson(feasible, rate, cell.seed) if arrival.at_s < cell.horizon_s
    )
    mean_cpus = sum(map(_cpus, sample)) / len(sample)
    members = tuple(f"web-{number}" for number in range(int(offered * MEMBER_SHARE / mean_cpus)))
    return Workload(nodes, (), arrivals, members, "MostAllocated", bad)


def _dense_node(name: str, zones: int, policies: Policies) -> SimulatedNode:
    """Return a node with 12 CPUs in each zone. All GPUs are in the last zone; from four zones on,
    half of them are in the zone before it.
    """
    shape = NodeShape(zones, ZONE_CPUS * zones, 64 * GIB * zones)
    node = lay_out(name, shape, policies)
    homes = [zones - 1] * GPUS_A_NODE if zones < 4 else [zones - 2, zones - 2, zones - 1, zones - 1]
    gpus = {f"gpu-{number}": Device(1 << home) for number, home in enumerate(homes)}
    return msgspec.structs.replace(node, devices={GPU: gpus})


def member_task(name: str, turn: int, seed: int) -> Task:
    """Return the task of a member of a set in its `turn`-th life. Every third life it has other
    requests.
    """
    chance = random.Random(f"{seed}/{name}/{turn // 3}")
    shape = _dense_task(chance, name)
    return Task(name, shape.containers, random.Random(f"{seed}/{name}/{turn}").uniform(5, 40))


def _dense_task(chance: random.Random, name: str) -> Task:
    kind = chance.choices(list(_KINDS), _WEIGHTS)[0]
    return Task(f"{kind}-{name}", _KINDS[kind](chance), chance.uniform(15, 90))


def _part(name: str, cpus: int, gpus: int = 0, init: bool = False) -> TaskContainer:
    amounts = {CPU: cpus * 1000, MEMORY: cpus * GIB}
    if gpus:
        amounts[GPU] = gpus
    return TaskContainer(name, amounts, init)


def _wide(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (_part("main", chance.choice((5, 6, 7, 8))),)


def _pair(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (_part("c1", chance.choice((3, 5, 6))), _part("c2", 2, 1))


def _starved(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (_part("train", chance.choice((2, 3)), chance.choice((1, 2))),)


def _with_init(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (
        _part("prepare", chance.choice((1, 2)), init=True),
        _part("main", chance.choice((3, 4))),
    )


def _init_heavy(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (_part("prepare", chance.choice((4, 6)), init=True), _part("c1", 2), _part("c2", 2))


def _small(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (_part("main", chance.choice((1, 2))),)


_KINDS = {
    "wide": _wide,
    "pair": _pair,
    "starved": _starved,
    "with-init": _with_init,
    "init-heavy": _init_heavy,
    "small": _small,
}
_WEIGHTS = (18, 22, 16, 12, 10, 22)


def _cpus(task: Task) -> float:
    return sum(c.requests[CPU] for c in task.containers if not c.init) / 1000
