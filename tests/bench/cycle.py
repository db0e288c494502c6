"""Bench of deciding: pods of several shapes on many nodes, with the ledger folded and the events
built, no I/O.

A JSON line for each number of nodes, in CPU time: one thread, so that on an idle core it is what a
clock shows, and on a shared machine nearly so. `cold_shape_ms`: the first decision of a shape that
was never seen (median over shapes). `warm_pod_us`: one decision with its reservation, pods of all
shapes in turn (mean; `warm_p50_us`, `warm_p99_us`). `by_bound`, `by_search`, `over_budget`: shares
of these decisions for which no kubelet was imagined, one was, or a search met its budget.
`decided_pods_per_s`: the same with the commit's events built, folded into the ledger and taken over
by the columns. `rss_mb`: the whole process. `--against COMMIT`: see `_against`.

`--pods KIND,...` prints a line for each number of nodes and kind of pod instead. `new_class_ms`:
the first decision of a pod class (median over classes). `known_us`: a decision with its
reservation, or with its nomination if the pod preempts (mean; `known_p50_us`, `known_p99_us`).
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from typing import Any

import msgspec
import psutil

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.filter.topology.kubelet_search import KubeletSearch
from services.scheduler.reserve.proposals import reservation
from services.scheduler.score.demand import weighed
from services.scheduler.score.runner import STRATEGIES
from services.scheduler.select import evaluate
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.cpus import CpuLayout
from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.report import Report, Zone, ZoneResource
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodAllocationFound
from shared.events.surroundings_events import NodeDevicesObserved
from shared.ledger import fold
from shared.ledger.alike import share
from shared.ledger.state import Ledger
from shared.owned.devices import Device
from tests.bench._against import compare
from tests.bench._cycle_pods import SPECS, PodsOfAKind, labels, unconfirmed

GIB = 1 << 30
SIZES: Amounts = {
    "cpu": 32_000,
    "memory": 128 * GIB,
    "hugepages-2Mi": 16 * GIB,
    "example.com/gpu": 8,
    "example.com/nic": 16,
}
GROWTH = (100, 1000, 5000, 20_000)
# The same with `--pods`.
FIGURES_OF_KINDS = {"new_class_ms": False, "known_us": False, "known_p50_us": False}
# The figures that `--against` compares, and whether more is better.
FIGURES = {
    "cold_shape_ms": False,
    "warm_pod_us": False,
    "decided_pods_per_s": True,
    "rss_mb": False,
}


def main(argv: list[str]) -> None:
    options = _parser().parse_args(argv)
    if options.against:
        figures = FIGURES_OF_KINDS if options.pods else FIGURES
        compare("cycle", argv, options.against, figures)
    sizes = {options.nodes} if options.no_growth else {options.nodes, *GROWTH}
    for nodes in sorted(sizes):
        for kind in options.pods:
            print(json.dumps(measure_kind(nodes, kind, options)), flush=True)
        if not options.pods:
            print(json.dumps(measure(nodes, options)), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench cycle", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--zones", type=int, default=8)
    parser.add_argument("--shapes", type=int, default=16)
    parser.add_argument("--policy", default="single-numa-node")
    parser.add_argument("--scope", default="container")
    parser.add_argument(
        "--owner",
        choices=("kubelet", "topolog"),
        help="who chooses zones; pods then request CPUs, memory and hugepages only",
    )
    parser.add_argument(
        "--devices",
        action="store_true",
        help="with --owner: nodes have 8 GPUs and 8 RDMA cards, two of each on a switch, some in "
        "use; pods request 1 or 2 GPUs, every second class an RDMA card, too",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default=CycleConfig().strategy)
    parser.add_argument("--off", action="store_true", help="do not rank nodes by zones first")
    parser.add_argument(
        "--unsettled", type=int, default=0, help="unproven pods charged to each node"
    )
    parser.add_argument(
        "--unhealthy",
        type=float,
        default=0.0,
        help="share of nodes that count a GPU which they do not offer",
    )
    parser.add_argument(
        "--no-growth", action="store_true", help="only --nodes, not 100 to 20,000 as well"
    )
    parser.add_argument("--decisions", type=int, default=2000, help="pods decided for each figure")
    parser.add_argument(
        "--against", metavar="COMMIT", default="", help="compare with that commit, in paired runs"
    )
    parser.add_argument(
        "--pods",
        type=_kinds,
        default=(),
        metavar="KIND,...",
        help=f"a line for each kind of pod: {', '.join(SPECS)}",
    )
    return parser


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    unknown = sorted(set(kinds) - SPECS.keys())
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown kinds of pods: {', '.join(unknown)}")
    return kinds


def measure_kind(nodes: int, kind: str, options: argparse.Namespace) -> dict[str, object]:
    """Return the result line of one kind of pod."""
    given = argparse.Namespace(**vars(options))
    given.unsettled = unconfirmed(kind, options.unsettled)
    row = PodsOfAKind(Bench(nodes, given), kind).row(options.decisions)
    return {"nodes": nodes, "zones": options.zones, "strategy": options.strategy, **row}


def measure(nodes: int, options: argparse.Namespace) -> dict[str, object]:
    """Return one result line."""
    bench = Bench(nodes, options)
    cold = bench.cold(options.shapes)
    warm, ways = bench.warm(options.decisions)
    decided, refused = bench.decided(options.decisions)
    return {
        "nodes": nodes,
        "zones": options.zones,
        "shapes": options.shapes,
        "policy": options.policy,
        "scope": options.scope,
        "strategy": options.strategy,
        "unsettled": options.unsettled,
        "unhealthy": options.unhealthy,
        "cold_shape_ms": round(statistics.median(cold) * 1e3, 3),
        "cold_shape_ms_worst": round(max(cold) * 1e3, 3),
        "warm_pod_us": round(statistics.fmean(warm) * 1e6, 1),
        "warm_p50_us": round(statistics.median(warm) * 1e6, 1),
        "warm_p99_us": round(statistics.quantiles(warm, n=100)[98] * 1e6, 1),
        **ways.shares(),
        "decided_pods_per_s": round(decided),
        "refused": refused,
        "rss_mb": round(psutil.Process().memory_info().rss / 1e6, 1),
    }


class Ways:
    """Counts of decisions: with a search, without one, and with a node that a search left undecided
    because it exceeded its budget.
    """

    def __init__(self) -> None:
        self._search, self._evaluate = KubeletSearch.refuses_when_full, evaluate.evaluate_node
        self.found: list[str] = []
        note, search = self._note, self._search

        def noted(kubelet_search: KubeletSearch, *arguments: Any, **named: Any) -> bool:
            note("by_search")
            return search(kubelet_search, *arguments, **named)

        setattr(KubeletSearch, "refuses_when_full", noted)  # noqa: B010
        setattr(evaluate, "evaluate_node", self._evaluated)  # noqa: B010

    def _evaluated(self, *arguments: Any) -> int:
        rank = self._evaluate(*arguments)
        if rank == evaluate.UNDECIDED:
            self._note("over_budget")
        return rank

    def _note(self, way: str) -> None:
        if self.found and self.found[-1] != "over_budget":
            self.found[-1] = way

    def shares(self) -> dict[str, float]:
        """Return the shares of all decisions."""
        setattr(KubeletSearch, "refuses_when_full", self._search)  # noqa: B010
        setattr(evaluate, "evaluate_node", self._evaluate)  # noqa: B010
        return {
            way: round(self.found.count(way) / len(self.found), 4)
            for way in ("by_bound", "by_search", "over_budget")
        }


class Bench:
    """A ledger and a cluster whose nodes are half full at random."""

    def __init__(self, nodes: int, options: argparse.Namespace) -> None:
        self.random = random.Random(7)
        self.ledger, self.cluster = (
            Ledger(),
            ColumnarPlacing(
                CycleConfig(
                    strategy=options.strategy,
                    rank_by_zones=not options.off,
                    default_policy=options.policy if options.owner == "topolog" else "none",
                )
            ),
        )
        self.sizes = {
            name: size
            for name, size in SIZES.items()
            if options.owner is None or not name.startswith("example.com/")
        }
        self.shapes, self.zones, self.has_devices = options.shapes, options.zones, options.devices
        self.serial = 0
        for number in range(nodes):
            self._node(f"n{number}", options, number < options.unhealthy * nodes)
        asked = {
            tuple(sorted(self.pod(at).containers[0].requests.items())): 1
            for at in range(options.shapes)
        }
        if self.cluster.evaluator.strategy.ranks_by_demand:
            self.cluster.rank_by(weighed(asked, {}, self.cluster.places))
        self.cluster.place(self.pod(0))
        gc.collect()
        gc.freeze()  # as the service does once it has caught up with the log

    def _node(self, name: str, options: argparse.Namespace, sick: bool) -> None:
        sizes = self.sizes
        allocatable = {each: held * options.zones for each, held in sizes.items()} | {"pods": 250}
        allocatable |= {"nvidia.com/gpu": 8} if options.devices else {}
        unhealthy = {"example.com/gpu": 1} if sick else {}
        self.fold(
            f"node/{name}",
            NodeObserved(
                name=name,
                uid=name,
                allocatable=allocatable,
                kubelet_version="v1.36.2",
                unhealthy=unhealthy,
                labels=labels(int(name.removeprefix("n"))),
            ),
        )
        zones = tuple(Zone(at, self._resources()) for at in range(options.zones))
        report = Report(
            name,
            "boot",
            1,
            policy=options.policy,
            scope=options.scope,
            tracked=tuple(sizes),
            zones=zones,
            placements=(),
        )
        if options.owner == "topolog":
            report = _owned(report)
        self.fold(f"report/{name}", NodeReported(report))
        if options.devices:
            self.fold(f"devices/{name}", NodeDevicesObserved(name, devices=_cards(options.zones)))
            held_cards = [card for card in _cards(options.zones)[:8] if self.random.random() < 0.25]
            for card in held_cards:
                self._holder(name, card)
        for _ in range(options.unsettled):
            pod = self.pod(self.serial)
            self.fold(f"pod/{pod.uid}", PodObserved(pod=pod, node=name))
        self.cluster.put_node(self.ledger.nodes[name])

    def _holder(self, node: str, card: Device) -> None:
        """Let a pod hold the card."""
        self.serial += 1
        uid, gpu = f"pod-{self.serial}", {"nvidia.com/gpu": 1}
        pod = Pod(uid, "ns", uid, "Burstable", (Container("c0", "app", gpu, gpu),))
        self.fold(f"pod/{uid}", PodObserved(pod, node=node))
        allocation = ZoneAllocation(devices=(DeviceHolding(card.type, card.minor, card.resources),))
        self.fold(f"pod/{uid}", PodAllocationFound(uid, node, allocation, "annotation"))

    def _resources(self) -> dict[str, ZoneResource]:
        used = self.random.random() * 0.6
        totals = {}
        for name, size in self.sizes.items():
            free = size - int(size * used) // (1000 if name == "cpu" else 1) * (
                1000 if name == "cpu" else 1
            )
            totals[name] = ZoneResource(size, size, free)
        return totals

    def pod(self, at: int) -> Pod:
        """Return a Guaranteed pod of pod class `at % shapes`. Every second class has three
        containers.
        """
        self.serial += 1
        size = 1 + at % self.shapes
        amounts: Amounts = {
            "cpu": 1000 * (1 + size % 4),
            "memory": (1 + size) * GIB,
            "hugepages-2Mi": (size % 3 + 1) * GIB // 2,
            "example.com/gpu": 1,
            "example.com/nic": 1 + size % 2,
        }
        amounts = {name: amount for name, amount in amounts.items() if name in self.sizes}
        count = 3 if at % 2 else 1
        kinds: list[ContainerKind] = ["app"] * count
        containers = tuple(
            Container(f"c{i}", kind, amounts, amounts) for i, kind in enumerate(kinds)
        )
        if self.has_devices:
            first = {**amounts, "nvidia.com/gpu": 1 + (self.zones < 8 and size // 2 % 2)}
            first |= {"koordinator.sh/rdma": 10} if size % 2 else {}
            containers = (Container("c0", "app", first, first), *containers[1:])
        uid = f"pod-{self.serial}"
        pod = Pod(uid=uid, namespace="ns", name=uid, qos="Guaranteed", containers=containers)
        share((pod,))  # as the fold of `PodObserved` does
        return pod

    def fold(self, stream: str, event: Event) -> tuple[str, ...]:
        """Fold one event into the ledger."""
        position = self.ledger.position + 1
        return fold.evolve(
            self.ledger,
            Envelope(position, stream, position, type(event).__name__, 1, b"", 0, "bench", 0, ""),
            event,
        )

    def cold(self, shapes: int) -> list[float]:
        """Return the seconds of the first decision for each of this many new pod classes."""
        taken = []
        for number in range(shapes):
            pod = self.pod(number)
            first = pod.containers[0]
            variant = {**first.requests, "memory": first.requests["memory"] + 4096 * (number + 1)}
            pod = Pod(
                uid=pod.uid,
                namespace="ns",
                name=pod.name,
                qos="Guaranteed",
                containers=(Container("c0", "app", variant, variant), *pod.containers[1:]),
            )
            start = time.process_time()
            self.cluster.place(pod)
            taken.append(time.process_time() - start)
        return taken

    def warm(self, count: int) -> tuple[list[float], Ways]:
        """Return the seconds of each decision with its reservation, and how the decisions were
        made.
        """
        pods = [self.pod(at) for at in range(count)]
        for pod in pods[: self.shapes]:
            self.cluster.place(pod)
        taken, ways = [], Ways()
        for pod in pods:
            ways.found.append("by_bound")
            start = time.process_time()
            placed = self.cluster.place(pod)
            if isinstance(placed, Placed):
                self.cluster.assume(placed, pod)
            taken.append(time.process_time() - start)
        for node in self.ledger.nodes.values():
            self.cluster.put_node(node)
        for pod in pods[: self.shapes]:
            self.cluster.place(pod)
        return taken, ways

    def decided(self, count: int) -> tuple[float, int]:
        """Return pods per second and the number of refused pods. The time covers the decision,
        building and folding the events, and updating the columns.
        """
        pods = [self.pod(at) for at in range(count)]
        for pod in pods:
            self.fold(f"pod/{pod.uid}", PodObserved(pod=pod))
        refused, takes_over = 0, getattr(self.cluster, "take_over", None)  # older commits lack it
        start = time.process_time()
        for order, pod in enumerate(pods):
            placed = self.cluster.place(pod)
            if not isinstance(placed, Placed):
                refused += 1
                continue
            zones = self.cluster.assume(placed, pod)
            proposal = reservation(pod, placed, zones, order, self.ledger.position, 1, order)
            for draft in proposal.drafts:
                for name in self.fold(draft.stream, draft.event):
                    node = self.ledger.nodes[name]
                    if not (takes_over and takes_over(draft.event, self.ledger.nodes)):
                        self.cluster.put_node(node)
        return count / (time.process_time() - start), refused


def _cards(zones: int) -> tuple[Device, ...]:
    """Return eight GPUs and eight RDMA cards, two of each on a switch."""
    sizes = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    gpus = [
        Device("gpu", minor, sizes, minor * zones // 8, str(minor // 2), id=f"GPU-{minor}")
        for minor in range(8)
    ]
    cards = [
        Device("rdma", minor, {"koordinator.sh/rdma": 100}, minor * zones // 8, str(minor // 2))
        for minor in range(8)
    ]
    return (*gpus, *cards)


def _owned(report: Report) -> Report:
    """Return the report of a kubelet that aligns nothing, next to an agent; its zones offer what is
    available in them.
    """
    cpus = SIZES["cpu"] // 1000
    by_zone = ",".join(f"{zone.id}x{cpus}" for zone in report.zones)
    cores = ",".join(f"{cpu // 2 * 2}" for cpu in range(cpus * len(report.zones)))
    zones = []
    for zone in report.zones:
        offered = {name: resource.available for name, resource in zone.resources.items()}
        zones.append(Zone(zone.id, bounds=offered, offered=offered))
    return msgspec.structs.replace(
        report,
        policy="none",
        tracked=(),
        zones=tuple(zones),
        cpu_policy="none",
        memory_policy="None",
        cpus=CpuLayout(f"0-{cpus * len(zones) - 1}", by_zone, by_zone, cores),
        enforcer="topolog",
        enforced=(),
    )
