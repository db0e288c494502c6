"""The workload `wide`: pods of one GPU around pods of a zone, of two zones and of a whole node.

A node has four GPUs in each zone. Room for the larger pods is easily lost: one small pod on each
node is enough.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from services.comparison.cells import Cell
from services.simulator.cluster import GPU, NodeShape, Policies, SimulatedNode, uniform
from services.simulator.workload import Task, TaskContainer
from shared.domain.resources import CPU, MEMORY

GIB = 2**30
ZONE_GPUS = 4
ZONE_CPUS = 32
# A restricted kubelet admits a pod only if each of its resources needs equally many zones.
CPUS_A_GPU, GIB_A_GPU = 7, 14
# For each SMALL pods of one GPU there are LARGE pods of each larger size: all GPUs of a zone, of
# two zones, and of a node.
SMALL, LARGE = 24, 1
SHORTEST_S, LONGEST_S = 60, 180


def nodes(cell: Cell) -> tuple[SimulatedNode, ...]:
    """Return the cell's machines."""
    shape = NodeShape(
        cell.zones, ZONE_CPUS * cell.zones, 64 * GIB * cell.zones, {GPU: ZONE_GPUS * cell.zones}
    )
    return uniform(cell.nodes, shape, Policies(cell.policy, owner=cell.owner), "wide")


def rate(cell: Cell) -> float:
    """Return tasks per second that use the cell's share of all GPUs."""
    sizes = _sizes(cell)
    mean_gpus = sum(sizes) / len(sizes)
    offered = cell.load * cell.nodes * cell.zones * ZONE_GPUS
    return offered / (mean_gpus * (SHORTEST_S + LONGEST_S) / 2)


def tasks(cell: Cell, count: int) -> Iterator[Task]:
    """Return the cell's tasks in the order of their arrival."""
    chance, sizes = random.Random(cell.seed), _sizes(cell)
    for number in range(count):
        gpus = chance.choice(sizes)
        cpus, memory = CPUS_A_GPU * gpus, GIB_A_GPU * gpus
        amounts = {CPU: cpus * 1000, MEMORY: memory * GIB, GPU: gpus}
        lifetime_s = chance.uniform(SHORTEST_S, LONGEST_S)
        yield Task(f"gpus-{gpus}-{number}", (TaskContainer("main", amounts),), lifetime_s)


def _sizes(cell: Cell) -> list[int]:
    large = {ZONE_GPUS, 2 * ZONE_GPUS, cell.zones * ZONE_GPUS}
    return [1] * SMALL + sorted(large) * LARGE
