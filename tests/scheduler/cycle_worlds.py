"""Small clusters for tests of the cycle: nodes, reports and pods in few words, folded by the real
ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Constraints, Container, ContainerKind, Pod
from shared.domain.report import Placement, Report, Zone, ZoneResource
from shared.domain.resources import Amounts
from shared.events.cluster_events import NodeObserved, PodObserved, Taint
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.ledger import fold
from shared.ledger.state import Ledger, LedgerNode

GPU = "example.com/gpu"
GIB = 1 << 30
ANYWHERE = Constraints()
DEFAULTS = CycleConfig()
ALLOCATABLE = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110, GPU: 8}


def amounts(cpu: float = 0, memory: float = 0, gpu: int = 0, **other: int) -> Amounts:
    """Return CPUs, GiB and GPUs as exact amounts, without zeros."""
    by_name = {"cpu": int(cpu * 1000), "memory": int(memory * GIB), GPU: gpu, **other}
    return {name: held for name, held in by_name.items() if held}


def container(name: str, requests: Amounts, kind: ContainerKind = "app") -> Container:
    """A container with limits equal to its requests."""
    return Container(name, kind, requests, requests)


def guaranteed(
    name: str, *containers: Container, constraints: Constraints = ANYWHERE, priority: int = 0
) -> Pod:
    """A Guaranteed pod; its uid is its name."""
    return Pod(
        uid=name,
        namespace="ns",
        name=name,
        qos="Guaranteed",
        containers=containers,
        constraints=constraints,
        priority=priority,
    )


def zone(number: int, free: Amounts, size: Amounts | None = None) -> Zone:
    """A zone with `free` of `size` (default: all of it) available."""
    size = size or free
    return Zone(
        number, {name: ZoneResource(size[name], size[name], free.get(name, 0)) for name in size}
    )


def report(
    node: str,
    zones: Sequence[Zone],
    policy: str = "single-numa-node",
    scope: str = "container",
    placements: Sequence[Placement] | None = (),
    time_ms: int = 1,
    options: Mapping[str, str] | None = None,
    tracked: Sequence[str] = ("cpu", "memory", GPU),
) -> Report:
    """A report of a node with managers that pin everything."""
    return Report(
        node=node,
        boot_id="boot",
        boot_time_ms=time_ms,
        policy=policy,
        scope=scope,
        tracked=tuple(tracked),
        zones=tuple(zones),
        placements=None if placements is None else tuple(placements),
        options=dict(options or {}),
    )


# What an own reservation changes of a node.
TAKEN_OVER = (
    "free_min", "free_max", "requested", "pending", "charged", "assumed", "totals",
    "grouped_zones", "unconfirmed", "allocatable", "claims", "ends",
)  # fmt: skip


class World:
    """A ledger that folds events, and a cluster that follows it."""

    def __init__(self, config: CycleConfig = DEFAULTS) -> None:
        self.ledger = Ledger()
        self.cluster = ColumnarPlacing(config)

    def fold(self, stream: str, event: Any) -> None:
        """Append one event and refresh the nodes it touched."""
        touched, uid = self.ledger_fold(stream, event), event.about.pod
        if uid:
            self.cluster.follow(uid, self.ledger.pods.get(uid))
        for name in touched:
            node = self.ledger.nodes.get(name)
            if node is not None and len(touched) == 1 and self.takes_over(node, event):
                pass
            elif node is None:
                self.cluster.drop_node(name)
            else:
                self.cluster.put_node(node)

    def takes_over(self, node: LedgerNode, event: Any) -> bool:
        """Whether an own reservation is taken over, as a comparison with the whole node allows."""
        if not self.cluster.take_over(event, self.ledger.nodes):
            return False
        node_info = self.cluster.node(node.name)
        assert node_info is not None
        assert node_info.is_current(node) or node_info.assumed
        fresh = NodeInfo(node.name, node_info.slot)
        fresh.update_from(node, self.cluster.config)
        if not node_info.assumed:
            for name in TAKEN_OVER:
                assert getattr(node_info, name) == getattr(fresh, name), name
        return True

    def ledger_fold(self, stream: str, event: object) -> Collection[str]:
        """Append one event; return the touched nodes, which the cluster has not refreshed yet."""
        position = self.ledger.position + 1
        envelope = Envelope(
            position, stream, position, type(event).__name__, 1, b"", 0, "test", 0, str(position)
        )
        return fold.evolve(self.ledger, envelope, event)  # type: ignore[arg-type]

    def node(
        self,
        name: str,
        *zones: Zone,
        policy: str = "single-numa-node",
        scope: str = "container",
        labels: Mapping[str, str] | None = None,
        allocatable: Amounts | None = None,
        taints: tuple[Taint, ...] = (),
        options: Mapping[str, str] | None = None,
        ready: bool = True,
        unschedulable: bool = False,
    ) -> None:
        """Observe a node and its report."""
        self.observe(name, labels, allocatable, taints, ready, unschedulable)
        self.report(report(name, zones, policy, scope, options=options))

    def observe(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        allocatable: Amounts | None = None,
        taints: tuple[Taint, ...] = (),
        ready: bool = True,
        unschedulable: bool = False,
        kubelet_version: str = "v1.36.2",
        unhealthy: Amounts | None = None,
    ) -> None:
        """Observe a node without a report."""
        seen = NodeObserved(
            name=name,
            uid=name,
            allocatable=ALLOCATABLE if allocatable is None else allocatable,
            labels=dict(labels or {}),
            taints=taints,
            ready=ready,
            unschedulable=unschedulable,
            kubelet_version=kubelet_version,
            unhealthy=unhealthy or {},
        )
        self.fold(f"node/{name}", seen)

    def report(self, new_report: Report) -> None:
        """Fold a report."""
        self.fold(f"report/{new_report.node}", NodeReported(new_report))

    def bound(self, pod: Pod, node: str) -> None:
        """Observe a pod as bound. No report lists it yet, so it is unconfirmed."""
        self.fold(f"pod/{pod.uid}", PodObserved(pod=pod, node=node))

    def running(self, pod: Pod, node: str) -> None:
        """Observe a pod as running."""
        self.fold(f"pod/{pod.uid}", PodObserved(pod=pod, node=node, phase="Running"))
