"""Gangs against pod by pod: `python -m tests.bench gangs [--horizon 900] [--owner kubelet]`.

Jobs of two to eight pods work only while all of their pods run. The machines, delays and kubelets
are those of `tests.bench quality`, and each job comes twice: as a gang, and as pods that are placed
one by one. A JSON line for each has the jobs that began to work (`started`), how long jobs waited
for that (jobs that never began count until the horizon), and the CPU hours that pods held while
their job did not work (`idle_cpu_h`). `fragmented` is the mean share of places for pods of 6 CPUs
that the free CPUs would hold at best, but no zone does. `moves_per_pod` are evictions and
rejections by placed pod.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator

from services.comparison.cells import OWNERS, Cell, Owner
from services.comparison.measures import Measures
from services.comparison.row_ledger import LedgerRow
from services.comparison.simulation import Simulation
from services.comparison.truth import TrueNode
from services.comparison.workloads import SCHEDULER, PodTask, Workload
from services.scheduler.core import CoreConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.simulator.cluster import NodeShape, Policies, lay_out
from services.simulator.workload import Arrival
from shared.domain.gang import Gang
from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU, MEMORY
from shared.events.catalog import Event
from shared.events.scheduling_events import GangRolledBack, PodNominated

GIB = 2**30
NODES, ZONES, ZONE_CPUS = 12, 2, 12
SIZES, POD_CPUS, LIFETIME_S = (2, 4, 8), (3, 4, 6), (20.0, 60.0)


class Job:
    """A job of `size` pods: when it came and began to work, and when each pod was admitted."""

    def __init__(self, name: str, size: int, cpus: int, arrived_s: float, works_s: float) -> None:
        self.name, self.size, self.cpus = name, size, cpus
        self.arrived_s, self.works_s = arrived_s, works_s
        self.began_s = -1.0
        self.admitted: dict[str, float] = {}

    def pods(self, is_gang: bool) -> Iterator[Pod]:
        amounts = {CPU: self.cpus * 1000, MEMORY: self.cpus * GIB}
        container = Container("main", "app", amounts, amounts)
        gang = Gang(f"bench/{self.name}", self.size) if is_gang else None
        for number in range(self.size):
            name = f"{self.name}.{number}"
            yield Pod(
                f"{name}-uid", "bench", name, "Guaranteed", (container,),
                scheduler_name=SCHEDULER, gang=gang,
            )  # fmt: skip

    def idle_cpu_s(self, now_s: float) -> float:
        """Return the CPU seconds that its pods held before it worked, until now."""
        until_s = self.began_s if self.began_s >= 0 else now_s
        return sum(self.cpus * (until_s - at_s) for at_s in self.admitted.values())


class GangMeasures(Measures):
    """Notes when jobs begin; `simulation` ends their pods afterwards."""

    jobs: dict[str, Job]
    simulation: GangSimulation
    row: GangRow
    lost, places = 0, 0

    def sample(self) -> None:
        super().sample()
        free = [
            max(0, amounts.get(CPU, 0)) // 1000
            for node in self.row.nodes()
            for amounts in (node.owned.zones if node.owned else node.free_min).values()
        ]
        at_best = sum(free) // POD_CPUS[-1]
        self.places += at_best
        self.lost += at_best - sum(cpus // POD_CPUS[-1] for cpus in free)

    def admitted(self, uid: str, now_s: float) -> None:
        super().admitted(uid, now_s)
        job = self.jobs[uid.partition(".")[0]]
        job.admitted[uid] = now_s
        if len(job.admitted) == job.size and job.began_s < 0:
            job.began_s = now_s
            self.simulation.end_later(job)


class GangRow(LedgerRow):
    """Counts the pods that it would evict."""

    evictions = 0

    def nodes(self) -> Iterable[NodeInfo]:
        assert self.core.columns is not None
        return self.core.columns.nodes()

    def _append(self, stream: str, event: Event) -> int:
        if isinstance(event, PodNominated):
            self.evictions += len(event.victims)
        elif isinstance(event, GangRolledBack):
            self.evictions += len(event.uids)
        return super()._append(stream, event)


class GangSimulation(Simulation):
    """Its pods run until their job has worked."""

    def end_later(self, job: Job) -> None:
        for uid in job.admitted:
            placed = self._jobs[uid]
            self._after(job.works_s, lambda placed=placed: self._end_pod(placed))  # type: ignore[misc]


def jobs_of(seed: int, horizon_s: int, load: float) -> list[Job]:
    """Return jobs that offer this share of the CPUs."""
    chance = random.Random(seed)
    capacity = NODES * ZONES * ZONE_CPUS
    mean = 14 / 3 * 13 / 3 * sum(LIFETIME_S) / 2
    jobs, at_s = list[Job](), 0.0
    while at_s < horizon_s:
        size, cpus = chance.choice(SIZES), chance.choice(POD_CPUS)
        jobs.append(Job(f"job{len(jobs)}", size, cpus, at_s, chance.uniform(*LIFETIME_S)))
        at_s += chance.expovariate(load * capacity / mean)
    return jobs


def play(owner: Owner, is_gang: bool, seed: int, horizon_s: int, load: float) -> dict[str, object]:
    """Play the jobs and return the measurements."""
    cell = Cell(
        "gangs", NODES, ZONES, load, "change", "ledger, proof", horizon_s, seed, owner=owner
    )
    policies = Policies(cell.policy, owner=owner)
    shape = NodeShape(ZONES, ZONES * ZONE_CPUS, 64 * GIB * ZONES)
    machines = tuple(lay_out(f"n{number:02d}", shape, policies) for number in range(NODES))
    jobs = {job.name: job for job in jobs_of(seed, horizon_s, load)}
    arrivals = tuple(
        Arrival(job.arrived_s, PodTask(pod.name, (), 10.0 * horizon_s, pod))
        for job in jobs.values()
        for pod in job.pods(is_gang)
    )
    nodes = {node.name: TrueNode(node, True) for node in machines}
    row = GangRow(CoreConfig(SCHEDULER))
    measures = GangMeasures(cell, nodes, row)
    measures.row = row
    simulation = GangSimulation(
        cell, Workload(machines, (), arrivals, (), "KeepRoom", 0), nodes, row, measures
    )
    measures.jobs, measures.simulation = jobs, simulation
    simulation.run()
    waits = sorted(
        (job.began_s if job.began_s >= 0 else horizon_s) - job.arrived_s for job in jobs.values()
    )
    return {
        "owner": owner,
        "placed": "as gangs" if is_gang else "pod by pod",
        "jobs": len(jobs),
        "started": sum(job.began_s >= 0 for job in jobs.values()),
        "start_p50_s": round(waits[len(waits) // 2], 2),
        "start_p99_s": round(waits[int(len(waits) * 0.99)], 2),
        "idle_cpu_h": round(sum(job.idle_cpu_s(horizon_s) for job in jobs.values()) / 3600, 2),
        "fragmented": round(measures.lost / max(1, measures.places), 3),
        "rejected": (rejected := measures.so_far()[1]),
        "moves_per_pod": round((rejected + row.evictions) / max(1, measures.so_far()[0]), 4),
    }


def main(argv: list[str]) -> None:
    """Print a JSON line for each owner and way of placing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench gangs")
    parser.add_argument("--horizon", type=int, default=900, help="virtual seconds")
    parser.add_argument("--load", type=float, default=0.8, help="offered share of the CPUs")
    parser.add_argument("--seed", type=int, default=20230815)
    parser.add_argument("--owner", choices=OWNERS, action="append")
    options = parser.parse_args(argv)
    for owner in options.owner or OWNERS:
        for is_gang in (True, False):
            result = play(owner, is_gang, options.seed, options.horizon, options.load)
            print(json.dumps(result), flush=True)
