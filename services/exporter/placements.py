"""Zones of each listed container's resources: podresources answers against the machine's CPU map.

1. An answer in the middle of an admission (CPUs listed, memory not yet) is kept as it is.
2. A pod is named once for what its containers hold together with their names; a container that
   holds nothing has no entry, except the first one of a pod that holds nothing at all.
3. CPUs and devices of init containers that the checkpoints know become entries of only what no
   listed container holds. So the sum of a pod's entries counts nothing twice.
4. A pod with a pool (PodLevelResourceManagers on, scope pod) has one entry, because containers
   share it: the pool and the devices of its containers. The checkpoints have the pool, and
   podresources from kubelet 1.37.

Must not know capacity, fingerprints or the source of the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from services.exporter.answers import DeviceGroup, ListedContainer, ListedPod, MemoryBlock
from services.exporter.checkpoints import Checkpoints
from shared.domain.idlist import format_ids
from shared.domain.report import POD_LEVEL, Placement, ZonedAmount
from shared.domain.resources import CPU
from shared.kubelet.cpuset import format_cpus

MILLI = 1000
# Containers whose derived values are cached: few containers of a node change between scans.
CACHED = 512
NO_ZONE = -1
NOTHING: tuple[object, ...] = ()


class Placed(msgspec.Struct, frozen=True):
    """Placements of the listed pods, and what the checkpoints have beyond them.

    See `shared.domain.report.Report` for both.
    """

    placements: tuple[Placement, ...]
    hidden: tuple[Placement, ...]


def place(
    pods: Iterable[ListedPod], zone_of_cpu: Mapping[int, int], checkpoints: Checkpoints
) -> Placed:
    """Return the placements in listed order, each pod's extra entries after its containers."""
    uids = _uids_by_holdings(checkpoints)
    placements: list[Placement] = []
    hidden: list[Placement] = []
    matched = set()
    for pod in pods:
        listed_pool = ListedContainer(POD_LEVEL, pod.cpus, pod.memory)
        uid = _uid_of((*pod.containers, listed_pool), uids)
        matched.add(uid)
        holdings = checkpoints.holdings.get(uid, {})
        pool = holdings.get(POD_LEVEL) or listed_pool
        if pool.cpus or pool.memory:
            placements.append(_pooled(pod, uid, pool, zone_of_cpu))
            continue
        placements += _listed(pod, uid, zone_of_cpu)
        inits = _unlisted(pod, holdings)
        placements += _init_entries(pod, uid, zone_of_cpu, inits)
        hidden += _init_memory(pod, uid, inits)
    hidden += _unmatched(checkpoints, matched, zone_of_cpu)
    return Placed(tuple(placements), tuple(hidden))


def _listed(pod: ListedPod, uid: str, zone_of_cpu: Mapping[int, int]) -> list[Placement]:
    entries = []
    for container in pod.containers:
        amounts, claims = held_amounts(container, zone_of_cpu), container.claims
        if amounts or claims:
            entries.append(Placement(pod.namespace, pod.name, container.name, amounts, uid, claims))
    if not entries and pod.containers:
        entries.append(Placement(pod.namespace, pod.name, pod.containers[0].name, (), uid))
    return entries


def held_amounts(
    container: ListedContainer, zone_of_cpu: Mapping[int, int]
) -> tuple[ZonedAmount, ...]:
    """Return CPUs by zone in millicpu, memory blocks in bytes, devices by their set of zones.

    A block of size 0 belongs to later containers now, and still ties its zones together.
    """
    return (
        *_cpus(container.cpus, zone_of_cpu),
        *_memory(container.memory),
        *_devices(container.devices),
    )


def _cpus(cpus: Iterable[int], zone_of_cpu: Mapping[int, int]) -> list[ZonedAmount]:
    """Group CPUs by zone; a CPU that sysfs does not know counts in no zone."""
    sets: dict[int, int] = {}
    for cpu in cpus:
        zone = zone_of_cpu.get(cpu, NO_ZONE)
        sets[zone] = sets.get(zone, 0) | 1 << cpu
    amounts = []
    for zone, cpu_set in sorted(sets.items()):
        zones = () if zone == NO_ZONE else (zone,)
        millis = cpu_set.bit_count() * MILLI
        amounts.append(ZonedAmount(CPU, zones, millis, format_cpus(cpu_set)))
    return amounts


def _memory(blocks: Iterable[MemoryBlock]) -> list[ZonedAmount]:
    return [ZonedAmount(block.resource, block.zones, block.size) for block in blocks]


def _devices(groups: Sequence[DeviceGroup]) -> list[ZonedAmount]:
    """Group devices by zones; a device listed once per zone is one device in all of them."""
    if not groups:
        return []
    if len(groups) == 1 and len(groups[0].ids) == 1:
        return [ZonedAmount(groups[0].resource, groups[0].zones, 1, format_ids(groups[0].ids))]
    zones_of: dict[tuple[str, str], set[int]] = {}
    for group in groups:
        for device in group.ids:
            zones_of.setdefault((group.resource, device), set()).update(group.zones)
    ids: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (resource, device), zones in sorted(zones_of.items()):
        ids.setdefault((resource, tuple(sorted(zones))), []).append(device)
    return [
        ZonedAmount(resource, zones, len(devices), format_ids(devices))
        for (resource, zones), devices in sorted(ids.items())
    ]


def _pooled(
    pod: ListedPod, uid: str, pool: ListedContainer, zone_of_cpu: Mapping[int, int]
) -> Placement:
    """Return the pool with the devices of all containers. If only the checkpoint with its CPUs was
    read, the containers' memory counts as often as it is listed."""
    memory = pool.memory or [block for part in pod.containers for block in part.memory]
    devices = [group for part in (pool, *pod.containers) for group in part.devices]
    amounts = (*_cpus(pool.cpus, zone_of_cpu), *_memory(memory), *_devices(devices))
    claims = tuple([claim for part in pod.containers for claim in part.claims])
    return Placement(pod.namespace, pod.name, POD_LEVEL, amounts, uid, claims)


def _unlisted(pod: ListedPod, holdings: Mapping[str, ListedContainer]) -> list[ListedContainer]:
    """Return the pod's ordinary init containers: the managers know them, podresources does not."""
    listed = {container.name for container in pod.containers}
    return [holdings[name] for name in sorted(holdings) if name not in listed]


def _init_entries(
    pod: ListedPod, uid: str, zone_of_cpu: Mapping[int, int], inits: Sequence[ListedContainer]
) -> list[Placement]:
    """Return the CPUs and devices that each init container keeps for itself.

    An entry without amounts says that later containers took over all of them.
    """
    if not inits:
        return []
    counted_cpus: set[int] = set()
    counted_devices: set[tuple[str, str]] = set()
    for container in pod.containers:
        counted_cpus.update(container.cpus)
        for group in container.devices:
            counted_devices.update((group.resource, device) for device in group.ids)
    entries = []
    for container in inits:
        cpus = sorted(set(container.cpus) - counted_cpus)
        groups = [_without(group, counted_devices) for group in container.devices]
        counted_cpus.update(cpus)
        for group in groups:
            counted_devices.update((group.resource, device) for device in group.ids)
        kept = (*_cpus(cpus, zone_of_cpu), *_devices(groups))
        entries.append(Placement(pod.namespace, pod.name, container.name, kept, uid))
    return entries


def _without(group: DeviceGroup, counted: set[tuple[str, str]]) -> DeviceGroup:
    ids = tuple(device for device in group.ids if (group.resource, device) not in counted)
    return DeviceGroup(group.resource, ids, group.zones)


def _init_memory(pod: ListedPod, uid: str, inits: Iterable[ListedContainer]) -> list[Placement]:
    return [
        Placement(pod.namespace, pod.name, container.name, tuple(_memory(container.memory)), uid)
        for container in inits
        if container.memory
    ]


def _unmatched(
    checkpoints: Checkpoints, matched: set[str], zone_of_cpu: Mapping[int, int]
) -> list[Placement]:
    return [
        Placement("", "", name, held_amounts(containers[name], zone_of_cpu), uid)
        for uid, containers in sorted(checkpoints.holdings.items())
        if uid not in matched
        for name in sorted(containers if POD_LEVEL not in containers else (POD_LEVEL,))
    ]


def _uids_by_holdings(checkpoints: Checkpoints) -> dict[tuple[object, ...], str]:
    """Return signature -> pod uid.

    podresources has no uids. CPUs and devices belong to one pod alone, so a container's name with
    its CPUs or devices identifies the pod.
    """
    uids = {}
    for uid, containers in sorted(checkpoints.holdings.items()):
        for container in containers.values():
            uids.update(dict.fromkeys(_signatures(container), uid))
    return uids


def _uid_of(containers: Iterable[ListedContainer], uids: Mapping[tuple[object, ...], str]) -> str:
    for container in containers:
        for sign in _signatures(container):
            if sign in uids:
                return uids[sign]
    return ""


def agree(pods: Iterable[ListedPod], checkpoints: Checkpoints) -> bool:
    """Return True if podresources and the checkpoints have the same containers and holdings.

    They differ while a change has reached only one of them, if podresources hides init containers,
    and while the kubelet keeps what ended pods held.
    """
    listed = Counter(_holding(container) for pod in pods for container in pod.containers)
    stored: Counter[tuple[object, ...]] = Counter()
    for containers in checkpoints.holdings.values():
        stored.update(_holding(part) for name, part in containers.items() if name != POD_LEVEL)
    listed.pop(NOTHING, None)
    stored.pop(NOTHING, None)
    return listed == stored


@lru_cache(maxsize=CACHED)
def _holding(container: ListedContainer) -> tuple[object, ...]:
    """Return name, CPUs, memory and devices of a container, or NOTHING if it holds nothing."""
    devices = frozenset(
        (group.resource, device) for group in container.devices for device in group.ids
    )
    memory = tuple(sorted((block.resource, block.zones, block.size) for block in container.memory))
    if not (container.cpus or memory or devices):
        return NOTHING
    return container.name, container.cpus, memory, devices


@lru_cache(maxsize=CACHED)
def _signatures(container: ListedContainer) -> tuple[tuple[object, ...], ...]:
    """Return (container, its CPUs), and (container, resource, its devices) for each resource."""
    devices: dict[str, set[str]] = {}
    for group in container.devices:
        devices.setdefault(group.resource, set()).update(group.ids)
    signatures = tuple(
        (container.name, resource, frozenset(ids)) for resource, ids in devices.items() if ids
    )
    return ((container.name, container.cpus), *signatures) if container.cpus else signatures
