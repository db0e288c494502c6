"""Builders for ledger tests: a pod, a report, a history that is folded event by event."""

from __future__ import annotations

from typing import Any

from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.report import Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.resources import CPU, Amounts
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.ledger.fold import evolve
from shared.ledger.state import Charge, Ledger, LedgerNode

GIB = 2**30
TRACKED = ("cpu", "hugepages-2Mi", "memory", "vendor.com/gpu")


def cpu(count: int) -> Amounts:
    """Return whole CPUs as millicpu."""
    return {CPU: count * 1000}


def container(
    name: str, cpus: int = 0, gpus: int = 0, memory: int = 0, kind: ContainerKind = "app"
) -> Container:
    amounts: Amounts = {}
    if cpus:
        amounts[CPU] = cpus * 1000
    if memory:
        amounts["memory"] = memory
    if gpus:
        amounts["vendor.com/gpu"] = gpus
    return Container(name, kind, amounts, amounts)


def pod(name: str, *containers: Container, uid: str = "", cpus: int = 0, **fields: Any) -> Pod:
    """Return a Guaranteed pod. With `cpus` it has one container called c."""
    parts = containers or (container("c", cpus),)
    return Pod(
        uid or f"uid-{name}", "ns", name, "Guaranteed", parts, scheduler_name="topolog", **fields
    )


def zone(
    zone_id: int, cpus: int, free: int | None = None, gpus: int = 0, free_gpus: int | None = None
) -> Zone:
    resources = {
        CPU: ZoneResource(cpus * 1000, cpus * 1000, (cpus if free is None else free) * 1000)
    }
    if gpus:
        resources["vendor.com/gpu"] = ZoneResource(
            gpus, gpus, gpus if free_gpus is None else free_gpus
        )
    return Zone(zone_id, resources, {})


def held(
    name: str, zone_id: int, cpus: int, gpus: int = 0, container_name: str = "c", uid: str = ""
) -> Placement:
    items = [ZonedAmount(CPU, (zone_id,), cpus * 1000)] if cpus else []
    if gpus:
        items.append(ZonedAmount("vendor.com/gpu", (zone_id,), gpus))
    return Placement("ns", name, container_name, tuple(items), uid)


def listed_empty(name: str, container_name: str = "c") -> Placement:
    """Return the placement of a listed container that is not admitted yet."""
    return Placement("ns", name, container_name)


def report(
    *zones: Zone,
    at: int = 1,
    boot: str = "boot-1",
    placements: tuple[Placement, ...] | None = (),
    **fields: object,
) -> Report:
    settings: dict[str, object] = {
        "policy": "single-numa-node",
        "scope": "container",
        "tracked": TRACKED,
        **fields,
    }
    exporter = str(settings.pop("exporter", "exporter-1"))
    return Report("n1", boot, at, exporter, zones=zones, placements=placements, **settings)  # type: ignore[arg-type]


class History:
    """A minimal log: every event gets the next position and version, and is folded at once.
    `touched` are the nodes that the newest event changed.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.told: list[tuple[Envelope, Event]] = []
        self.touched: tuple[str, ...] = ()
        self._versions: dict[str, int] = {}

    def tell(self, stream: str, event: Event) -> int:
        """Fold one event and return its position."""
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        position = self.ledger.position + 1
        envelope = Envelope(
            position, stream, version, type_of(event), 1, encode(event), 0, "test", 0, str(position)
        )
        self.told.append((envelope, event))
        self.touched = evolve(self.ledger, envelope, event)
        return position

    def report(self, *zones: Zone, **fields: object) -> int:
        node_report = report(*zones, **fields)  # type: ignore[arg-type]
        return self.tell(streams.report(node_report.node), NodeReported(node_report))

    def node(self, name: str = "n1", uid: str = "node-uid-1", **fields: object) -> int:
        return self.tell(streams.node(name), NodeObserved(name, uid, **fields))  # type: ignore[arg-type]

    def seen(self, made: Pod, node: str = "", **fields: object) -> int:
        return self.tell(streams.pod(made.uid), PodObserved(made, node=node, **fields))  # type: ignore[arg-type]

    def reserve(self, made: Pod, node: str = "n1") -> int:
        """Append that the pod is observed and reserved on the node."""
        if made.uid not in self.ledger.pods:
            self.seen(made)
        self.tell(streams.pod(made.uid), PodReserved(made.uid, node))
        return self.tell(streams.node(node), NodeCharged(node, made.uid))

    def end(self, made: Pod, cause: str = "deleted") -> int:
        return self.tell(streams.pod(made.uid), PodEnded(made.uid, cause))  # type: ignore[arg-type]

    @property
    def n1(self) -> LedgerNode:
        return self.ledger.nodes["n1"]

    def free(self, zone_id: int, name: str = CPU) -> int:
        """Return the guaranteed free amount, of CPUs in whole CPUs."""
        amount = self.n1.free_min[zone_id][name]
        return amount // 1000 if name == CPU else amount

    def at_best(self, zone_id: int, name: str = CPU) -> int:
        amount = self.n1.free_max[zone_id][name]
        return amount // 1000 if name == CPU else amount

    def charge(self, made: Pod) -> Charge:
        return self.n1.charges[made.uid]
