"""Which zones each listed container's resources lie in: podresources answers against the machine's CPU map.

A torn answer (CPUs there, memory not yet) keeps exactly what it says. Pod-level fields (kubelet 1.37) and CPUs of init
containers known from the CPU manager's checkpoint become entries that hold only what no listed container holds, so
that summing a pod's entries counts nothing twice. Must not know capacity, fingerprints or how answers were obtained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from services.exporter.answers import DeviceGroup, ListedContainer, ListedPod, MemoryBlock
from shared.domain.report import Placement, ZonedAmount
from shared.domain.resources import CPU

CpuEntries = Mapping[str, Mapping[str, tuple[int, ...]]]
"""The CPU manager's assignments: pod uid -> container -> CPU ids."""

MILLI = 1000
POD_LEVEL = ""
"""Container name of the entry for what a pod holds at pod level beyond its containers."""


def place(pods: Iterable[ListedPod], zone_of_cpu: Mapping[int, int], checkpoint: CpuEntries) -> tuple[Placement, ...]:
    """One placement a listed container, in listed order, and the extra entries of each pod behind its containers."""
    uid_of_cpus = _uids_by_cpus(checkpoint)
    return tuple(entry for pod in pods for entry in _place_pod(pod, zone_of_cpu, checkpoint, uid_of_cpus))


def _place_pod(
    pod: ListedPod, zone_of_cpu: Mapping[int, int], checkpoint: CpuEntries, uids: Mapping[tuple[str, tuple[int, ...]], str]
) -> list[Placement]:
    uid = next((uids[c.name, c.cpus] for c in pod.containers if (c.name, c.cpus) in uids), "")
    entries = [
        Placement(pod.namespace, pod.name, container.name, held(container, zone_of_cpu), uid) for container in pod.containers
    ]
    extra = _pod_level_extra(pod, zone_of_cpu)
    if extra:
        entries.append(Placement(pod.namespace, pod.name, POD_LEVEL, extra, uid))
    return entries + _init_entries(pod, uid, zone_of_cpu, checkpoint.get(uid, {}))


def held(container: ListedContainer, zone_of_cpu: Mapping[int, int]) -> tuple[ZonedAmount, ...]:
    """What one container holds: CPUs by zone in millicpu, memory blocks in bytes, devices by their set of zones."""
    return (*_cpus(container.cpus, zone_of_cpu), *_memory(container.memory), *_devices(container.devices))


def _cpus(cpus: Iterable[int], zone_of_cpu: Mapping[int, int]) -> list[ZonedAmount]:
    """A CPU that sysfs does not know keeps its amount, in no zone."""
    counted = Counter(zone_of_cpu.get(cpu) for cpu in cpus)
    ordered = sorted(counted.items(), key=lambda item: -1 if item[0] is None else item[0])
    return [ZonedAmount(CPU, () if zone is None else (zone,), count * MILLI) for zone, count in ordered]


def _memory(blocks: Iterable[MemoryBlock]) -> list[ZonedAmount]:
    return [ZonedAmount(block.resource, block.zones, block.size) for block in blocks if block.size > 0]


def _devices(groups: Iterable[DeviceGroup]) -> list[ZonedAmount]:
    """A device listed once per zone is one device in several zones."""
    zones_of: dict[tuple[str, str], set[int]] = {}
    for group in groups:
        for device in group.ids:
            zones_of.setdefault((group.resource, device), set()).update(group.zones)
    counted = Counter((resource, tuple(sorted(zones))) for (resource, _), zones in zones_of.items())
    return [ZonedAmount(resource, zones, counted[resource, zones]) for resource, zones in sorted(counted)]


def _pod_level_extra(pod: ListedPod, zone_of_cpu: Mapping[int, int]) -> tuple[ZonedAmount, ...]:
    """The pod-level sets hold the containers' parts too: only the difference is left to count (KEP-5526)."""
    owned = {cpu for container in pod.containers for cpu in container.cpus}
    blocks: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for block in pod.memory:
        blocks[block.resource, block.zones] += block.size
    for block in (block for container in pod.containers for block in container.memory):
        blocks[block.resource, block.zones] -= block.size
    memory = [MemoryBlock(resource, zones, size) for (resource, zones), size in sorted(blocks.items())]
    return (*_cpus(sorted(set(pod.cpus) - owned), zone_of_cpu), *_memory(memory))


def _init_entries(
    pod: ListedPod, uid: str, zone_of_cpu: Mapping[int, int], assigned: Mapping[str, tuple[int, ...]]
) -> list[Placement]:
    """Containers of the pod that the CPU manager knows and podresources hides: ordinary init containers."""
    listed = {container.name for container in pod.containers}
    counted = {*pod.cpus, *(cpu for container in pod.containers for cpu in container.cpus)}
    entries = []
    for name in sorted(set(assigned) - listed):
        rest = sorted(set(assigned[name]) - counted)
        counted.update(rest)
        entries.append(Placement(pod.namespace, pod.name, name, tuple(_cpus(rest, zone_of_cpu)), uid))
    return [entry for entry in entries if entry.held]


def _uids_by_cpus(checkpoint: CpuEntries) -> dict[tuple[str, tuple[int, ...]], str]:
    """Exclusive CPUs belong to one pod, so container name and CPU set identify the pod's uid; podresources has none."""
    return {
        (container, tuple(sorted(cpus))): uid for uid in sorted(checkpoint) for container, cpus in checkpoint[uid].items() if cpus
    }
