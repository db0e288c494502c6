"""Nodes whose zones Topolog chooses, in a history that the scheduler's core folds and extends."""

from __future__ import annotations

from typing import Any

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.cpus import CpuLayout
from shared.domain.pod import Container, Pod
from shared.domain.policies import Policy
from shared.domain.report import Report, Zone, ZoneResource
from shared.domain.resources import CPU, MEMORY
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodReserved
from shared.events.surroundings_events import NodeDevicesObserved
from shared.owned.devices import Device, VirtualFunctions

GIB, GPU = 2**30, "example.com/gpu"
ZONE = {CPU: 15_000, MEMORY: 62 * GIB}


CARD = {
    "koordinator.sh/gpu-core": 100,
    "koordinator.sh/gpu-memory": 80 * GIB,
    "koordinator.sh/gpu-memory-ratio": 100,
}
BOARD = (
    *(Device("gpu", n, CARD, n // 2, str(n // 2), id=f"GPU-{n}") for n in range(4)),
    *(
        Device(
            "rdma", n, {"koordinator.sh/rdma": 100}, n, str(n),
            functions=(VirtualFunctions({}, {f"0000:0{n}:00.1": 3}),), id=f"0000:0{n}:00.0",
        )
        for n in range(2)
    ),
)  # fmt: skip


def layout(zones: int = 2, cpus: int = 16) -> CpuLayout:
    """Return a layout in which neighbouring CPUs are one core."""
    every = range(zones * cpus)
    of_zone = ",".join(f"{zone}x{cpus}" for zone in range(zones))
    cores = ",".join(f"{cpu // 2 * 2}" for cpu in every)
    return CpuLayout(f"0-{zones * cpus - 1}", of_zone, of_zone, cores)


def owned_report(node: str, zones: int = 2, gpus: int = 0, **fields: Any) -> Report:
    """A kubelet that aligns nothing, with an agent; the first CPU of each zone is reserved, and
    each zone has so many GPUs.
    """
    devices = {GPU: ZoneResource(gpus, gpus, gpus)} if gpus else {}
    bounds = {CPU: 16_000, MEMORY: 62 * GIB}
    settings: dict[str, Any] = {
        "policy": "none",
        "cpu_policy": "none",
        "memory_policy": "None",
        "placements": (),
        "cpus": layout(zones),
        "reserved_cpus": ",".join(str(zone * 16) for zone in range(zones)),
        "enforcer": "topolog",
        "enforced": (),
        "tracked": tuple(devices),
        **fields,
    }
    made = tuple(Zone(zone, devices, {}, bounds, ZONE) for zone in range(zones))
    return Report(node, "boot-1", 1, "exporter-1", zones=made, **settings)


def share(name: str, cpu_milli: int, memory_gib: int = 0, **fields: Any) -> Pod:
    """A Burstable pod, which shares the CPUs of its zones."""
    amounts = {CPU: cpu_milli, MEMORY: memory_gib * GIB}
    parts = (Container("c", "app", {n: a for n, a in amounts.items() if a}, {}),)
    fields = {"scheduler_name": "topolog", **fields}
    return Pod(f"uid-{name}", "ns", name, "Burstable", parts, **fields)


def exclusive(name: str, cpus: int, memory_gib: int = 1, gpus: int = 0, **fields: Any) -> Pod:
    """A Guaranteed pod with whole CPUs."""
    amounts = {CPU: cpus * 1000, MEMORY: memory_gib * GIB, **({GPU: gpus} if gpus else {})}
    parts = (Container("c", "app", amounts, amounts),)
    fields = {"scheduler_name": "topolog", **fields}
    return Pod(f"uid-{name}", "ns", name, "Guaranteed", parts, **fields)


class OwnedWorld:
    """A log and a scheduler on it. `place` decides and appends; `again` is a scheduler that reads
    the same log from the start."""

    def __init__(self, policy: Policy = "single-numa-node", **cycle: Any) -> None:
        self.config = CoreConfig(cycle=CycleConfig(default_policy=policy, **cycle))
        self.core, self.log = SchedulerCore(self.config), list[tuple[Envelope, Event]]()
        self._versions: dict[str, int] = {}

    def tell(self, stream: str, event: Event) -> None:
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        position = len(self.log) + 1
        envelope = Envelope(
            position, stream, version, type_of(event), 1, encode(event), 0, "test", 0, str(position)
        )
        self.log.append((envelope, event))
        self.core.evolve(envelope, event)

    def node(
        self,
        name: str = "n1",
        zones: int = 2,
        gpus: int = 0,
        labels: Any = None,
        allocatable: dict[str, int] | None = None,
        **fields: Any,
    ) -> None:
        offers = {CPU: zones * 15_000, MEMORY: zones * 62 * GIB, "pods": 110} | (allocatable or {})
        offers |= {GPU: gpus * zones} if gpus else {}
        observed = NodeObserved(name, f"uid-{name}", allocatable=offers, labels=labels or {})
        self.tell(streams.node(name), observed)
        self.tell(streams.report(name), NodeReported(owned_report(name, zones, gpus, **fields)))

    def devices(self, name: str = "n1", **fields: Any) -> None:
        """The node's Device object: two GPUs and a network card in each zone, by default."""
        fields = {"devices": BOARD, **fields}
        self.tell(f"devices/{name}", NodeDevicesObserved(name, **fields))

    def seen(self, pod: Pod, node: str = "") -> None:
        self.tell(streams.pod(pod.uid), PodObserved(pod, node=node))

    def turn(self) -> list[Event]:
        """Decide once, and append the proposals."""
        events = [draft for made in self.core.decide(100) for draft in made.drafts]
        for draft in events:
            self.tell(draft.stream, draft.event)
        return [draft.event for draft in events]

    def place(self, *pods: Pod) -> dict[str, PodReserved]:
        """Return the reservations by pod name, after one turn."""
        for pod in pods:
            self.seen(pod)
        names = {pod.uid: pod.name for pod in pods}
        return {
            names[event.uid]: event
            for event in self.turn()
            if isinstance(event, PodReserved) and event.uid in names
        }

    def again(self) -> SchedulerCore:
        core = SchedulerCore(self.config)
        for envelope, event in self.log:
            core.evolve(envelope, event)
        return core
