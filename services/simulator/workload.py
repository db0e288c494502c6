"""The workload: tasks with requests, lifetimes and arrivals, and the pod manifests for them.

Tasks come from a demo mixture, or from a trace under the project's overlay: Guaranteed pods of one
container, whole CPUs, lifetimes of at most 600 s, Poisson arrivals at `load` times the cluster's
capacity. All randomness comes from a seed. Times are virtual seconds. This module does not know the
API server, clocks or the scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count as numbers
from typing import Any

import msgspec

from services.simulator.cluster import GPU, NIC, NodeShape, Policies, SimulatedNode, lay_out
from services.simulator.traces import TraceNode, TraceTask
from shared.domain.gang import KOORDINATOR_MIN, KOORDINATOR_NAME
from shared.domain.quantity import format_amount
from shared.domain.resources import CPU, MEMORY, Amounts

LIFETIME_ANNOTATION = "simulator.topolog.dev/lifetime-s"
LABEL = "simulator.topolog.dev/workload"
MAX_LIFETIME_S = 600
GANG_SIZE = 4
# Mean GPU-seconds of a task of the whole trace under the overlay. It converts a load into an
# arrival rate.
GPU_SECONDS_A_TASK = 365
ZONES_FROM_CPUS = 32
MIB, GIB = 2**20, 2**30


class TaskContainer(msgspec.Struct, frozen=True):
    """One container: requests in Topolog's units, and equal limits, or none if `burst` is set."""

    name: str
    requests: Amounts
    init: bool = False
    burst: bool = False


class Task(msgspec.Struct, frozen=True):
    """A future pod: its name and containers, and how many virtual seconds it runs."""

    name: str
    containers: tuple[TaskContainer, ...]
    lifetime_s: float


class GangTask(Task, frozen=True):
    """A future pod that starts with its gang of GANG_SIZE pods."""

    gang: str


class Arrival(msgspec.Struct, frozen=True):
    """A task and its virtual time of arrival."""

    at_s: float
    task: Task


def manifest(task: Task, scheduler: str, namespace: str, workload: str) -> dict[str, Any]:
    """Return the Pod object of a task."""
    made = [_container(container) for container in task.containers if not container.init]
    first = [_container(container) for container in task.containers if container.init]
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": made,
    }
    if first:
        spec["initContainers"] = first
    metadata: dict[str, Any] = {
        "name": task.name,
        "namespace": namespace,
        "labels": {LABEL: workload},
        "annotations": {LIFETIME_ANNOTATION: f"{task.lifetime_s:g}"},
    }
    if isinstance(task, GangTask):
        metadata["annotations"] |= {KOORDINATOR_NAME: task.gang, KOORDINATOR_MIN: str(GANG_SIZE)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(container: TaskContainer) -> dict[str, Any]:
    amounts = {
        name: format_amount(name, amount) for name, amount in sorted(container.requests.items())
    }
    resources = (
        {"requests": amounts} if container.burst else {"requests": amounts, "limits": amounts}
    )
    return {"name": container.name, "image": "registry.example/pause:1", "resources": resources}


def poisson(tasks: Iterable[Task], rate_per_s: float, seed: int) -> Iterator[Arrival]:
    """Yield the tasks in order, at exponentially distributed intervals. A rate of 0 or less means
    all at once.
    """
    chance = random.Random(seed)
    at_s = 0.0
    for task in tasks:
        at_s += chance.expovariate(rate_per_s) if rate_per_s > 0 else 0.0
        yield Arrival(at_s, task)


def trace_node(node: TraceNode, policies: Policies) -> SimulatedNode:
    """Return a machine of the trace with the zones that the trace names, else with 2 from 32 CPUs
    on, else with 1.
    """
    zones = node.zones or (2 if node.cpus >= ZONES_FROM_CPUS else 1)
    devices = {name: count for name, count in ((GPU, node.gpus), (NIC, node.rdma)) if count}
    return lay_out(node.name, NodeShape(zones, node.cpus, node.memory_mib * MIB, devices), policies)


def trace_tasks(rows: tuple[TraceTask, ...]) -> Iterator[Task]:
    """Yield the trace's tasks without end. After the last task the list begins again, under new
    names.
    """
    for lap in numbers():
        for row in rows:
            yield _trace_task(row, row.name if lap == 0 else f"{row.name}-{lap}")


def _trace_task(row: TraceTask, name: str) -> Task:
    """Return a task with whole CPUs. A task without memory gets 1Mi, because a pod without a memory
    limit is not Guaranteed.
    """
    requests = {CPU: -(-row.cpu_milli // 1000) * 1000, MEMORY: max(1, row.memory_mib) * MIB}
    requests.update({name: count for name, count in ((GPU, row.gpus), (NIC, row.rdma)) if count})
    return Task(
        name, (TaskContainer("main", requests),), float(min(row.lifetime_s, MAX_LIFETIME_S))
    )


def trace_rate(nodes: Iterable[SimulatedNode], load: float) -> float:
    """Return how many tasks a second use the share `load` of the cluster's GPUs."""
    return load * sum(len(node.devices.get(GPU, ())) for node in nodes) / GPU_SECONDS_A_TASK


def scarce_rate(nodes: Iterable[SimulatedNode], tasks: Sequence[Task], load: float) -> float:
    """Return how many tasks a second use the share `load` of the resource that these tasks exhaust
    first.
    """
    offered: Amounts = {}
    for node in nodes:
        for name, amount in node.allocatable().items():
            offered[name] = offered.get(name, 0) + amount
    work: dict[str, float] = {}
    for task in tasks:
        for part in task.containers:
            for name, amount in part.requests.items() if not part.init else ():
                work[name] = work.get(name, 0.0) + amount * task.lifetime_s
    spans = [
        offered.get(name, 0) * len(tasks) / work_s for name, work_s in work.items() if work_s > 0
    ]
    return load * min(spans, default=0.0)


def demo_shape(zones: int) -> NodeShape:
    """Return the demo's node: each zone has 16 CPUs, 64 GiB with 2 GiB of hugepages, 4 GPUs and 2
    NICs.
    """
    per_zone = {GPU: 4, NIC: 2}
    devices = {name: count * zones for name, count in per_zone.items()}
    return NodeShape(zones, 16 * zones, 64 * GIB * zones, devices, {2 * MIB: 1024 * zones})


_Kind = Callable[[random.Random], tuple[TaskContainer, ...]]


def _plain(chance: random.Random) -> tuple[TaskContainer, ...]:
    cpus = chance.choice((1, 2, 4, 6))
    return (TaskContainer("main", {CPU: cpus * 1000, MEMORY: cpus * 2 * GIB}),)


def _gpu(chance: random.Random) -> tuple[TaskContainer, ...]:
    gpus = chance.choice((1, 1, 2))
    return (TaskContainer("train", {CPU: gpus * 3000, MEMORY: gpus * 8 * GIB, GPU: gpus}),)


def _packet(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (
        TaskContainer("packets", {CPU: 2000, MEMORY: 2 * GIB, NIC: 1, "hugepages-2Mi": 256 * MIB}),
    )


def _pair(chance: random.Random) -> tuple[TaskContainer, ...]:
    feeder = TaskContainer("feed", {CPU: 2000, MEMORY: 4 * GIB, NIC: 1})
    return (TaskContainer("train", {CPU: 4000, MEMORY: 8 * GIB, GPU: 1}), feeder)


def _with_init(chance: random.Random) -> tuple[TaskContainer, ...]:
    prepare = TaskContainer("prepare", {CPU: 4000, MEMORY: 4 * GIB}, init=True)
    return (prepare, TaskContainer("main", {CPU: 3000, MEMORY: 4 * GIB}))


def _fractional(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (TaskContainer("main", {CPU: 1500, MEMORY: 2 * GIB}),)


def _burstable(chance: random.Random) -> tuple[TaskContainer, ...]:
    return (TaskContainer("main", {CPU: 250, MEMORY: 256 * MIB}, burst=True),)


def _infeasible(chance: random.Random) -> tuple[TaskContainer, ...]:
    """More GPUs than a zone of the demo has."""
    return (TaskContainer("train", {CPU: 4000, MEMORY: 8 * GIB, GPU: 5}),)


_MIXTURE: tuple[tuple[_Kind, int], ...] = (
    (_plain, 30),
    (_gpu, 22),
    (_packet, 12),
    (_pair, 12),
    (_with_init, 8),
    (_fractional, 8),
    (_burstable, 8),
)
# One demo task in this many requests more than any zone has.
INFEASIBLE_EVERY = 25


def demo_tasks(seed: int) -> Iterator[Task]:
    """Yield the demo's tasks without end: a mixture of pods, lifetimes of 15 to 60 s, one in 25
    infeasible.
    """
    chance = random.Random(seed)
    kinds, weights = zip(*_MIXTURE, strict=True)
    for number in numbers(1):
        odd = number % INFEASIBLE_EVERY == 0
        kind = _infeasible if odd else chance.choices(kinds, weights)[0]
        name = f"demo-{number:04d}-{kind.__name__.strip('_').replace('_', '-')}"
        yield Task(name, kind(chance), chance.uniform(15, 60))


def gang_tasks(seed: int) -> Iterator[Task]:
    """Yield the feasible tasks of the demo, each as a gang of equal pods."""
    for task in demo_tasks(seed):
        for number in range(GANG_SIZE) if not task.name.endswith("infeasible") else ():
            name = f"{task.name}-{number}"
            yield GangTask(name, task.containers, task.lifetime_s, task.name)


def demo_rate(nodes: Iterable[SimulatedNode], load: float) -> float:
    """Return how many tasks a second use the share `load` of the cluster's CPUs, by the demo's
    means of CPUs and lifetime.
    """
    sample = [task for task, _ in zip(demo_tasks(0), range(500), strict=False)]
    work = sum(
        sum(c.requests[CPU] for c in task.containers) * task.lifetime_s for task in sample
    ) / len(sample)
    return load * sum(node.allocatable()[CPU] for node in nodes) / work
