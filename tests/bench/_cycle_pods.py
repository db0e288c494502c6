"""Rows of the bench `cycle` by kind of pod: what a decision costs with a constraint, with late
reports, or with preemption.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import msgspec

from services.scheduler.filter.constraints.registry import constrained
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.exclusions import Exclusion, shape_of
from shared.domain.constraints import REQUIRED
from shared.domain.fields import Json
from shared.domain.pod import Container, Pod
from shared.domain.report import Placement, Zone, ZonedAmount
from shared.events.cluster_events import PodObserved
from shared.events.report_events import NodeReported

if TYPE_CHECKING:
    from tests.bench.cycle import Bench

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
# Availability zones that nodes are labelled with by turns.
DOMAINS = 16
# Nodes are filled with unconfirmed pods of late reports.
LATE = 4
URGENT = 1000


def _affinity(kind: str, key: str, app: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {REQUIRED: [term]}}}


def _spread(app: str) -> Json:
    selector = {"matchLabels": {"app": app}}
    rule = {"topologyKey": ZONE, "maxSkew": 1, "labelSelector": selector}
    return {"topologySpreadConstraints": [{**rule, "whenUnsatisfiable": "DoNotSchedule"}]}


def _ports(app: str) -> Json:
    ports = [{"containerPort": 80, "hostPort": 1024 + int(app.removeprefix("app-")) % 60_000}]
    return {"containers": [{"name": "c0", "ports": ports}]}


# The part of the manifest that constraints read, by kind.
SPECS: dict[str, Any] = {
    "plain": lambda app: {},
    "spread": _spread,
    "affinity": lambda app: _affinity("podAffinity", ZONE, app),
    "anti-affinity": lambda app: _affinity("podAntiAffinity", HOST, app),
    "ports": _ports,
    "excluded": lambda app: {},
    "late": lambda app: {},
    "preempting": lambda app: {},
}


def labels(number: int) -> dict[str, str]:
    """Return the labels of a node."""
    return {HOST: f"n{number}", ZONE: f"zone-{number % DOMAINS}"}


def unconfirmed(kind: str, as_asked: int) -> int:
    """Return how many unconfirmed pods each node has."""
    return max(as_asked, LATE) if kind == "late" else as_asked


class PodsOfAKind:
    """Decisions about pods of one kind on a bench's cluster."""

    def __init__(self, bench: Bench, kind: str) -> None:
        self._bench, self._kind, self._cluster = bench, kind, bench.cluster
        if kind == "preempting":
            self._fill()

    def _fill(self) -> None:
        """Fill each zone of each node with a pod that may be evicted."""
        bench = self._bench
        for name, node in list(bench.ledger.nodes.items()):
            assert node.report is not None
            placements, zones = list[Placement](), list[Zone]()
            for zone in node.report.zones:
                victim, placement = _holding(bench.pod(0), zone)
                bench.fold(f"pod/{victim.uid}", PodObserved(victim, node=name, phase="Running"))
                self._cluster.follow(victim.uid, bench.ledger.pods[victim.uid])
                placements.append(placement)
                zones.append(_full(zone))
            report = msgspec.structs.replace(
                node.report,
                boot_time_ms=node.report.boot_time_ms + 1,
                zones=tuple(zones),
                placements=tuple(placements),
            )
            bench.fold(f"report/{name}", NodeReported(report))
            self._cluster.put_node(bench.ledger.nodes[name])

    def pod(self, number: int, app: int) -> Pod:
        """Return a pod of this kind and app. Apps are pod classes, too."""
        pod = self._bench.pod(number)
        pod = msgspec.structs.replace(
            pod,
            labels={"app": f"app-{app}"},
            priority=URGENT if self._kind == "preempting" else 0,
        )
        pod = constrained(pod, SPECS[self._kind](f"app-{app}"))
        if self._kind == "excluded":
            excluded = self._cluster.view.exclusions.nodes.setdefault("n0", {})
            excluded.setdefault(shape_of(pod), Exclusion("rejected", "detail", 1))
        return pod

    def decide(self, pod: Pod) -> bool:
        """Decide the pod as the core does; return whether it was placed."""
        placed = self._cluster.select(pod)
        if isinstance(placed, Placed):
            self._cluster.assume(placed, pod)
            return True
        if self._kind == "preempting":
            self._cluster.nominate(pod, self._bench.ledger.pods, (), None)
        return False

    def row(self, decisions: int) -> dict[str, object]:
        """Return the figures of this kind."""
        classes = self._bench.shapes
        new = [self._timed(self._new_class(number)) for number in range(classes)]
        for number in range(classes):
            self.decide(self.pod(number, number))
        pods = [self.pod(number, number % classes) for number in range(decisions)]
        known_s = [self._timed(pod) for pod in pods]
        seconds = [taken for taken, _ in known_s]
        return {
            "pods": self._kind,
            "new_class_ms": round(statistics.median(taken for taken, _ in new) * 1e3, 3),
            "known_us": round(statistics.fmean(seconds) * 1e6, 1),
            "known_p50_us": round(statistics.median(seconds) * 1e6, 1),
            "known_p99_us": round(statistics.quantiles(seconds, n=100)[98] * 1e6, 1),
            "placed": sum(placed for _, placed in known_s),
        }

    def _new_class(self, number: int) -> Pod:
        pod = self.pod(number, 1000 + number)
        first = pod.containers[0]
        asked = {**first.requests, "memory": first.requests["memory"] + 4096 * (number + 1)}
        changed = msgspec.structs.replace(first, requests=asked, limits=asked)
        return msgspec.structs.replace(pod, containers=(changed, *pod.containers[1:]))

    def _timed(self, pod: Pod) -> tuple[float, bool]:
        start = time.process_time()
        placed = self.decide(pod)
        return time.process_time() - start, placed


def _holding(pod: Pod, zone: Zone) -> tuple[Pod, Placement]:
    """Return the pod with all that is free in the zone, and its placement there."""
    free = {name: resource.available for name, resource in zone.resources.items()}
    container = Container("c0", "app", free, free)
    amounts = tuple(ZonedAmount(name, (zone.id,), amount) for name, amount in free.items())
    placement = Placement(pod.namespace, pod.name, "c0", amounts)
    return msgspec.structs.replace(pod, containers=(container,)), placement


def _full(zone: Zone) -> Zone:
    resources = {
        name: msgspec.structs.replace(resource, available=0)
        for name, resource in zone.resources.items()
    }
    return Zone(zone.id, resources)
