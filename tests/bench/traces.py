"""`python -m tests.bench traces FOLDER`: write made-up traces for the quality bench, a folder each,
always the same.

They are made to be hard for a ranking of nodes, each in another way. Strategies were tuned on
`gpus`, `rdma`, `cpus` and `whole`; `memory` and `mixed` are held out, to judge by. `python -m
tests.bench quality --trace FOLDER/rdma` plays one.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

NODES, TASKS = 140, 4000
SHORTEST_S, LONGEST_S = 30, 600
Chosen = TypeVar("Chosen")


class Machine(NamedTuple):
    """One node: CPUs, memory in GiB, GPUs, RDMA devices and zones."""

    cpus: int
    memory_gib: int
    gpus: int
    rdma: int
    zones: int


class Asked(NamedTuple):
    """The requests of one task."""

    cpus: int
    memory_gib: int
    gpus: int = 0
    rdma: int = 0


class Made(NamedTuple):
    """A trace: the distributions of its machines and tasks."""

    machine: Callable[[random.Random], Machine]
    task: Callable[[random.Random], Asked]


def main(argv: list[str]) -> None:
    """Write every trace."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench traces", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args(argv).folder
    for name, made in TRACES.items():
        write(folder / name, name, made)
        print(f"{folder / name}: {NODES} nodes, {TASKS} tasks")


def write(folder: Path, name: str, made: Made) -> None:
    """Write the two files of a trace, in the format that `services/simulator/traces.py` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(name)
    machines = [made.machine(chance) for _ in range(NODES)]
    tasks = [(made.task(chance), _lifetime_s(chance)) for _ in range(TASKS)]
    nodes = [
        (f"n{at:03d}", m.cpus * 1000, m.memory_gib * 1024, m.gpus, m.rdma, m.zones)
        for at, m in enumerate(machines)
    ]
    _table(folder / "nodes.csv", ("name", "cpu_milli", "memory_mib", "gpu", "rdma", "zones"), nodes)
    rows = [
        (f"t{at}", a.cpus * 1000, a.memory_gib * 1024, a.gpus, a.rdma, 0, life)
        for at, (a, life) in enumerate(tasks)
    ]
    columns = (
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "rdma",
        "creation_time",
        "deletion_time",
    )
    _table(folder / "tasks.csv", columns, rows)


def _table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        writer.writerows(rows)


def _lifetime_s(chance: random.Random) -> int:
    """Return a random lifetime; each order of magnitude is equally likely."""
    return int(math.exp(chance.uniform(math.log(SHORTEST_S), math.log(LONGEST_S))))


def _of(shares: dict[Chosen, int]) -> Callable[[random.Random], Chosen]:
    return lambda chance: chance.choices(list(shares), list(shares.values()))[0]


def _rdma_task(chance: random.Random) -> Asked:
    gpus = chance.choices((0, 1, 2, 4), (25, 30, 20, 10))[0]
    rdma = chance.choices((0, 1, 2), (50, 35, 15))[0] if gpus else 0
    cpus = max(1, gpus) * chance.choice((2, 4, 6, 8))
    return Asked(cpus, cpus * chance.choice((2, 4)), gpus, rdma)


def _mixed_task(chance: random.Random) -> Asked:
    if chance.random() < 0.3:
        gpus = chance.choice((1, 1, 1, 2))
        return Asked(
            gpus * chance.choice((3, 5)),
            gpus * chance.choice((12, 40)),
            gpus,
            chance.choice((0, 0, 1)),
        )
    cpus = chance.choice((1, 2, 3, 5, 7, 10, 14, 20))
    return Asked(cpus, cpus * chance.choice((1, 3, 6)))


TRACES: dict[str, Made] = {
    "gpus": Made(
        _of(
            {
                Machine(96, 384, 8, 0, 2): 4,
                Machine(64, 256, 4, 0, 2): 3,
                Machine(128, 768, 8, 0, 2): 3,
                Machine(64, 256, 0, 0, 2): 1,
            }
        ),
        _of(
            {
                Asked(4, 16, 1): 40,
                Asked(8, 32, 1): 15,
                Asked(12, 48, 2): 12,
                Asked(24, 96, 4): 8,
                Asked(4, 8): 15,
                Asked(8, 16): 5,
            }
        ),
    ),
    "rdma": Made(
        _of(
            {
                Machine(96, 512, 8, 4, 2): 4,
                Machine(128, 512, 8, 8, 4): 4,
                Machine(64, 256, 0, 0, 2): 2,
            }
        ),
        _rdma_task,
    ),
    "cpus": Made(
        _of(
            {
                Machine(64, 256, 4, 0, 2): 3,
                Machine(96, 384, 8, 0, 2): 2,
                Machine(64, 256, 0, 0, 2): 5,
            }
        ),
        _of(
            {
                Asked(2, 4): 30,
                Asked(4, 8): 25,
                Asked(8, 16): 18,
                Asked(16, 32): 10,
                Asked(28, 64): 6,
                Asked(4, 16, 1): 8,
                Asked(8, 32, 2): 3,
            }
        ),
    ),
    "memory": Made(
        _of(
            {
                Machine(64, 192, 0, 0, 2): 4,
                Machine(64, 384, 0, 0, 2): 3,
                Machine(96, 256, 4, 0, 2): 2,
            }
        ),
        _of(
            {
                Asked(2, 16): 20,
                Asked(4, 8): 25,
                Asked(8, 64): 12,
                Asked(16, 32): 10,
                Asked(4, 80): 6,
                Asked(12, 24): 10,
                Asked(8, 32, 1): 5,
            }
        ),
    ),
    "whole": Made(
        _of({Machine(64, 256, 8, 8, 4): 1, Machine(64, 256, 8, 8, 2): 1}),
        _of(
            {
                Asked(15, 56, 2, 2): 6,
                Asked(30, 100, 4, 4): 4,
                Asked(2, 4): 40,
                Asked(4, 8, 1): 25,
                Asked(6, 16, 1, 1): 15,
            }
        ),
    ),
    "mixed": Made(
        _of(
            {
                Machine(32, 128, 0, 0, 2): 4,
                Machine(48, 192, 2, 2, 2): 3,
                Machine(128, 1024, 8, 4, 4): 2,
                Machine(192, 768, 0, 0, 8): 1,
            }
        ),
        _mixed_task,
    ),
}
