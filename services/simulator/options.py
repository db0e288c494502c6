"""The command line of a simulation. Every mistake is reported at once. This module does not know
how a simulation runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from services.simulator import traces, workload
from services.simulator.cluster import (
    KUBELET,
    OWNERS,
    Policies,
    SimulatedNode,
    lay_out,
    uniform,
)
from services.simulator.pace import Pace, parse_speed
from services.simulator.progress import ENDLESS
from services.simulator.workload import Arrival
from shared.domain.policies import POLICIES, SCOPES, SINGLE_NUMA_NODE

MAX_NODES = 5_000
MAX_ZONES = 16
DEMO, GANGS, NONE, OPENB = "demo", "gangs", "none", "openb:"


class OptionsError(ValueError):
    """One line for each option that is wrong."""


class Options(msgspec.Struct, frozen=True):
    """The options of a simulation."""

    data_dir: Path
    nodes: int = 8
    zones: int = 2
    workload: str = DEMO
    pods: int = 60
    load: float = 0.7
    seed: int = 1
    speed: str = "1"
    policy: str = SINGLE_NUMA_NODE
    scope: str = "container"
    owner: str = KUBELET
    scheduler: str = "topolog"
    namespace: str = "default"
    api_host: str = "127.0.0.1"
    api_port: int = 0
    shards: int = 1
    status_file: str = ""
    start_file: str = ""
    json: bool = False
    keep_finished: bool = False

    @property
    def policies(self) -> Policies:
        """How the kubelets are configured."""
        return Policies(self.policy, self.scope, owner=self.owner)

    @property
    def pace(self) -> Pace:
        """How fast virtual time runs."""
        return parse_speed(self.speed)

    @property
    def plays(self) -> bool:
        """False for `none`: a cluster without a workload."""
        return self.workload != NONE

    @property
    def workload_label(self) -> str:
        """The workload's name as a label value."""
        return "openb" if self.workload.startswith(OPENB) else self.workload

    def cluster(self) -> tuple[SimulatedNode, ...]:
        """The nodes. Raises TraceError or ValueError."""
        if self.workload.startswith(OPENB):
            return tuple(
                workload.trace_node(node, self.policies)
                for node in traces.read_nodes(self._folder(), self.nodes)
            )
        return uniform(self.nodes, workload.demo_shape(self.zones), self.policies)

    def arrivals(self, nodes: tuple[SimulatedNode, ...]) -> Iterator[Arrival]:
        """The workload's tasks with their virtual times, without end. Raises TraceError."""
        if not self.plays:
            return iter(())
        if self.workload.startswith(OPENB):
            tasks, rate = (
                workload.trace_tasks(traces.read_tasks(self._folder())),
                workload.trace_rate(nodes, self.load),
            )
        else:
            made = workload.gang_tasks if self.workload == GANGS else workload.demo_tasks
            tasks, rate = made(self.seed), workload.demo_rate(nodes, self.load)
        return workload.poisson(tasks, rate, self.seed)

    def _folder(self) -> Path:
        return Path(self.workload.removeprefix(OPENB))


def parse(argv: Sequence[str]) -> Options:
    """Return the options of a command line. Raises OptionsError with every problem."""
    given = vars(_parser().parse_args(list(argv)))
    given["data_dir"] = Path(given["data_dir"])
    options = Options(**given)
    problems = check(options)
    if problems:
        raise OptionsError("\n".join(problems))
    return options


def check(options: Options) -> list[str]:
    """Return every problem, one sentence each."""
    problems = [
        f"{flag} is {value}; give {low} to {high}"
        for flag, value, low, high in (
            ("--nodes", options.nodes, 1, MAX_NODES),
            ("--zones", options.zones, 1, MAX_ZONES),
            ("--pods", options.pods, ENDLESS, 1_000_000),
            ("--load", options.load, 0.01, 100.0),
            ("--api-port", options.api_port, 0, 65_535),
            ("--shards", options.shards, 1, 64),
        )
        if not low <= value <= high
    ]
    if options.workload not in (DEMO, GANGS, NONE) and not options.workload.startswith(OPENB):
        problems.append(f"--workload {options.workload!r}: give demo, gangs, openb:FOLDER or none")
    if options.workload == GANGS and options.pods > 0 and options.pods % workload.GANG_SIZE:
        problems.append(f"--pods is {options.pods}; give a multiple of {workload.GANG_SIZE}")
    for make in (lambda: options.pace, lambda: _read_inputs(options) if not problems else None):
        try:
            make()
        except ValueError as error:
            problems.append(str(error))
    return problems


def _read_inputs(options: Options) -> None:
    """Read the files that the workload needs, so that a wrong folder is reported at once."""
    if options.workload.startswith(OPENB):
        options.cluster()
        traces.read_tasks(Path(options.workload.removeprefix(OPENB)))
    else:
        lay_out("node", workload.demo_shape(options.zones), options.policies)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "topolog-simulator", description="A simulated cluster: API server, kubelets, workload."
    )
    parser.add_argument("--data-dir", required=True, help="where the cluster keeps its state")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--zones", type=int, default=2, help="NUMA zones of a demo node")
    parser.add_argument("--workload", default=DEMO, help="demo, gangs, openb:FOLDER or none")
    parser.add_argument("--pods", type=int, default=60, help=f"{ENDLESS}: without end")
    parser.add_argument(
        "--load", type=float, default=0.7, help="offered work as a share of the cluster"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--speed",
        default="1",
        help="max, or virtual seconds a real second (arrivals and lifetimes only)",
    )
    parser.add_argument(
        "--policy",
        default=SINGLE_NUMA_NODE,
        choices=POLICIES,
        help="the kubelets' Topology Manager policy",
    )
    parser.add_argument("--scope", default="container", choices=SCOPES)
    parser.add_argument(
        "--owner", default=KUBELET, choices=OWNERS, help="who chooses the zones of CPUs and memory"
    )
    parser.add_argument(
        "--scheduler", default="topolog", help="schedulerName of the workload's pods"
    )
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--api-host", default="127.0.0.1")
    parser.add_argument("--api-port", type=int, default=0, help="0: any free port")
    parser.add_argument(
        "--shards", type=int, default=1, help="how many exporter nodes files to write"
    )
    parser.add_argument("--status-file", default="", help="where to keep the newest status as JSON")
    parser.add_argument(
        "--start-file",
        default="",
        help="begin the workload when this file exists; default: at once",
    )
    parser.add_argument("--json", action="store_true", help="print a status line every second")
    parser.add_argument(
        "--keep-finished", action="store_true", help="leave finished pods in the API"
    )
    return parser
