"""The nodes of a simulated cluster as values: zones, CPUs, memory, devices and a kubelet
configuration.

All nodes have one layout. Everything is split evenly over the zones, and the remainder goes to the
first zones. Each zone is one socket with one uncore cache. CPUs 2k and 2k+1 are threads of one
core. Distances are 10 local and 21 remote. The first CPU of each zone is reserved, of a single zone
the first two. This module does not know the API server, files or the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Amounts
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.device_state import Device
from shared.kubelet.memory_state import hugepages_name
from shared.kubelet.topology import Cpu

LOCAL_DISTANCE = 10
REMOTE_DISTANCE = 21
# A zone's share for the system: the kubelet's Static memory policy requires more than nothing (its
# default eviction threshold is 100Mi).
RESERVED_MEMORY_BYTES = 100 * 2**20
EPHEMERAL_STORAGE_BYTES = 100 * 2**30
MAX_PODS = 110
DEFAULT_MAX_NUMA_NODES = 8
KUBELET, TOPOLOG = OWNERS = ("kubelet", "topolog")
GPU = "nvidia.com/gpu"
NIC = "topolog.dev/nic"


class NodeShape(msgspec.Struct, frozen=True):
    """A machine's totals. `devices` maps resource to count, `hugepages` page size in bytes to the
    number of pages.
    """

    zones: int = 2
    cpus: int = 32
    memory_bytes: int = 128 * 2**30
    devices: dict[str, int] = {}
    hugepages: dict[int, int] = {}


class Policies(msgspec.Struct, frozen=True):
    """How the kubelets of a cluster are configured, in the kubelet's words. With owner `topolog`
    they align nothing, and Topolog chooses zones by the policy."""

    topology_policy: str = SINGLE_NUMA_NODE
    topology_scope: str = "container"
    topology_options: dict[str, str] = {}
    cpu_options: dict[str, str] = {}
    owner: str = KUBELET


class SimulatedNode(msgspec.Struct, frozen=True):
    """One node: machine, kubelet, devices, and further labels of its Node object.

    `owned_policy` is the policy by which Topolog chooses its zones, empty if the kubelet does.
    `system_memory` is what the kubelet reserves of each zone's memory although it aligns none.
    """

    name: str
    machine: MachineConfig
    kubelet: KubeletConfig
    devices: dict[str, dict[str, Device]] = {}
    labels: dict[str, str] = {}
    max_pods: int = MAX_PODS
    owned_policy: str = ""
    system_memory: int = 0

    def capacity(self) -> Amounts:
        """Node totals in Topolog's units."""
        pages = _hugepages(self.machine)
        memory = sum(zone.memory_bytes for zone in self.machine.zones)
        counts = {name: len(devices) for name, devices in self.devices.items()}
        return {
            CPU: len(self.machine.cpus) * 1000,
            MEMORY: memory,
            **pages,
            **counts,
            **self._fixed(),
        }

    def allocatable(self) -> Amounts:
        """Return the Node object's allocatable: capacity without reservations and unhealthy
        devices, memory also without hugepages.
        """
        offered = self.capacity() | {
            name: sum(device.healthy for device in pool.values())
            for name, pool in self.devices.items()
        }
        offered[CPU] -= len(self.machine.zones) * 1000 if len(self.machine.zones) > 1 else 2000
        reserved = sum(amounts.get(MEMORY, 0) for amounts in self.kubelet.reserved_memory.values())
        reserved += self.system_memory * len(self.machine.zones)
        offered[MEMORY] -= reserved + sum(_hugepages(self.machine).values())
        return offered

    def _fixed(self) -> Amounts:
        return {PODS: self.max_pods, EPHEMERAL_STORAGE: EPHEMERAL_STORAGE_BYTES}


def _hugepages(machine: MachineConfig) -> Amounts:
    pages: Amounts = {}
    for zone in machine.zones:
        for name, size in zone_hugepages(zone).items():
            pages[name] = pages.get(name, 0) + size
    return pages


def zone_hugepages(zone: ZoneConfig) -> Amounts:
    """The zone's hugepage pools in bytes by resource name."""
    return {hugepages_name(size): size * count for size, count in sorted(zone.hugepages.items())}


def uniform(
    count: int, shape: NodeShape, policies: Policies, prefix: str = "node"
) -> tuple[SimulatedNode, ...]:
    """Return `count` equal nodes: node-000, node-001, ..."""
    width = max(3, len(str(count - 1)))
    return tuple(
        lay_out(f"{prefix}-{number:0{width}d}", shape, policies) for number in range(count)
    )


def lay_out(name: str, shape: NodeShape, policies: Policies) -> SimulatedNode:
    """Return one node of a shape. Raises ValueError if a zone would have no CPU for pods."""
    zones = range(shape.zones)
    cpus = split(shape.cpus, shape.zones)
    if min(cpus) < 2 or (shape.zones == 1 and shape.cpus < 3):
        raise ValueError(
            f"node {name}: {shape.cpus} CPUs on {shape.zones} zones leave a zone empty; give "
            "more CPUs"
        )
    layout = _cpus(cpus)
    firsts = (
        [next(cpu.id for cpu in layout if cpu.numa == zone) for zone in zones]
        if shape.zones > 1
        else [0, 1]
    )
    reserved = ",".join(map(str, firsts))
    machine = MachineConfig(_zones(shape), layout)
    devices = _devices(shape.devices, shape.zones)
    if policies.owner != KUBELET:
        aligning_nothing = KubeletConfig(reserved_cpus=reserved)
        return SimulatedNode(
            name,
            machine,
            aligning_nothing,
            devices,
            owned_policy=policies.topology_policy,
            system_memory=RESERVED_MEMORY_BYTES,
        )
    kubelet = KubeletConfig(
        topology_policy=policies.topology_policy,
        topology_scope=policies.topology_scope,
        topology_options=_topology_options(policies, shape.zones),
        cpu_policy="static",
        cpu_options=policies.cpu_options,
        reserved_cpus=reserved,
        memory_policy="Static",
        reserved_memory={zone: {MEMORY: RESERVED_MEMORY_BYTES} for zone in zones},
    )
    return SimulatedNode(name, machine, kubelet, devices)


def _topology_options(policies: Policies, zones: int) -> dict[str, str]:
    """Allow more than 8 zones, which a kubelet refuses otherwise under any policy but none."""
    if zones <= DEFAULT_MAX_NUMA_NODES or policies.topology_policy == NONE:
        return policies.topology_options
    return {"max-allowable-numa-nodes": str(zones), **policies.topology_options}


def split(total: int, parts: int) -> list[int]:
    """Return even shares. The remainder goes to the first ones."""
    share, rest = divmod(total, parts)
    return [share + (1 if part < rest else 0) for part in range(parts)]


def _zones(shape: NodeShape) -> tuple[ZoneConfig, ...]:
    mib = split(shape.memory_bytes // 2**20, shape.zones)
    pages = {size: split(total, shape.zones) for size, total in shape.hugepages.items()}
    return tuple(
        ZoneConfig(
            zone,
            mib[zone] * 2**20,
            {size: share[zone] for size, share in pages.items()},
            tuple(
                LOCAL_DISTANCE if other_zone == zone else REMOTE_DISTANCE
                for other_zone in range(shape.zones)
            ),
        )
        for zone in range(shape.zones)
    )


def _cpus(per_zone: list[int]) -> tuple[Cpu, ...]:
    """Return the CPUs, numbered zone after zone. Two neighbours are threads of one core."""
    layout = []
    for zone, count in enumerate(per_zone):
        start = sum(per_zone[:zone])
        layout += [Cpu(start + index, index // 2, zone, zone, zone) for index in range(count)]
    return tuple(layout)


def _devices(counts: Mapping[str, int], zones: int) -> dict[str, dict[str, Device]]:
    made = {}
    for resource in sorted(counts):
        stem = resource.rsplit("/", maxsplit=1)[-1]
        shares = enumerate(split(counts[resource], zones))
        ids = [(zone, number) for zone, share in shares for number in range(share)]
        made[resource] = {f"{stem}-{zone}-{number:02d}": Device(1 << zone) for zone, number in ids}
    return {resource: devices for resource, devices in made.items() if devices}
