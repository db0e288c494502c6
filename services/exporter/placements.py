"""Which zones each listed container's resources lie in: podresources answers against the machine's
CPU map.

A torn answer (CPUs there, memory not yet) keeps exactly what it says. Pod-level fields (kubelet
1.37), and CPUs and devices of init containers known from the kubelet's checkpoints, become entries
that hold only what no listed container holds, so that summing a pod's entries counts nothing twice.
Must not know capacity, fingerprints or how answers were obtained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from services.exporter.answers import DeviceGroup, ListedContainer, ListedPod, MemoryBlock
from services.exporter.checkpoints import Checkpoints
from shared.domain.idlist import format_ids
from shared.domain.report import Placement, ZonedAmount
from shared.domain.resources import CPU
from shared.kubelet.cpuset import format_cpus

MILLI = 1000
KEPT = 512
"""Containers whose derived values are kept: on one node hardly any changes from scan to scan."""
NO_ZONE = -1
NOTHING: tuple[object, ...] = ()
POD_LEVEL = ""
"""Container name of the entry for what a pod holds at pod level beyond its containers."""


class Placed(msgspec.Struct, frozen=True):
    """What the listed pods hold, and what the checkpoints say beyond that (see
    `shared.domain.report.Report`).
    """

    placements: tuple[Placement, ...]
    hidden: tuple[Placement, ...]


def place(
    pods: Iterable[ListedPod], zone_of_cpu: Mapping[int, int], checkpoints: Checkpoints
) -> Placed:
    """One placement a listed container, in listed order, and the extra entries of each pod behind
    its containers.
    """
    uids = _uids_by_holdings(checkpoints)
    placements: list[Placement] = []
    hidden: list[Placement] = []
    known = set()
    for pod in pods:
        uid = next((uid for each in pod.containers for uid in _uids_of(each, uids)), "")
        known.add(uid)
        placements += _listed(pod, uid, zone_of_cpu)
        unseen = _unseen(pod, checkpoints.holdings.get(uid, {}))
        placements += _init_entries(pod, uid, zone_of_cpu, unseen)
        hidden += _init_memory(pod, uid, unseen)
    hidden += _unmatched(checkpoints, known, zone_of_cpu)
    return Placed(tuple(placements), tuple(hidden))


def _listed(pod: ListedPod, uid: str, zone_of_cpu: Mapping[int, int]) -> list[Placement]:
    entries = [
        Placement(
            pod.namespace,
            pod.name,
            container.name,
            held(container, zone_of_cpu),
            uid,
            container.claims,
        )
        for container in pod.containers
    ]
    extra = _pod_level_extra(pod, zone_of_cpu)
    return (
        [*entries, Placement(pod.namespace, pod.name, POD_LEVEL, extra, uid)] if extra else entries
    )


def held(container: ListedContainer, zone_of_cpu: Mapping[int, int]) -> tuple[ZonedAmount, ...]:
    """What one container holds: CPUs by zone in millicpu, memory blocks in bytes, devices by their
    set of zones. A block of nothing is one that later containers took over: it still ties its zones
    together."""
    return (
        *_cpus(container.cpus, zone_of_cpu),
        *_memory(container.memory),
        *_devices(container.devices),
    )


def _cpus(cpus: Iterable[int], zone_of_cpu: Mapping[int, int]) -> list[ZonedAmount]:
    """A CPU that sysfs does not know keeps its amount, in no zone."""
    sets: dict[int, int] = {}
    for cpu in cpus:
        zone = zone_of_cpu.get(cpu, NO_ZONE)
        sets[zone] = sets.get(zone, 0) | 1 << cpu
    return [
        ZonedAmount(
            CPU,
            () if zone == NO_ZONE else (zone,),
            sets[zone].bit_count() * MILLI,
            format_cpus(sets[zone]),
        )
        for zone in sorted(sets)
    ]


def _memory(blocks: Iterable[MemoryBlock]) -> list[ZonedAmount]:
    return [ZonedAmount(block.resource, block.zones, block.size) for block in blocks]


def _devices(groups: Sequence[DeviceGroup]) -> list[ZonedAmount]:
    """A device listed once per zone is one device in several zones."""
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
        ZonedAmount(resource, zones, len(ids[resource, zones]), format_ids(ids[resource, zones]))
        for resource, zones in sorted(ids)
    ]


def _pod_level_extra(pod: ListedPod, zone_of_cpu: Mapping[int, int]) -> tuple[ZonedAmount, ...]:
    """The pod-level sets hold the containers' parts too: only the difference is left to count
    (KEP-5526).
    """
    if not (pod.cpus or pod.memory):
        return ()
    owned = {cpu for container in pod.containers for cpu in container.cpus}
    blocks: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for block in pod.memory:
        blocks[block.resource, block.zones] += block.size
    for block in (block for container in pod.containers for block in container.memory):
        blocks[block.resource, block.zones] -= block.size
    memory = [
        MemoryBlock(resource, zones, size)
        for (resource, zones), size in sorted(blocks.items())
        if size > 0
    ]
    return (*_cpus(sorted(set(pod.cpus) - owned), zone_of_cpu), *_memory(memory))


def _unseen(pod: ListedPod, holdings: Mapping[str, ListedContainer]) -> list[ListedContainer]:
    """The pod's containers that the managers know and podresources hides: ordinary init containers."""
    listed = {container.name for container in pod.containers}
    return [holdings[name] for name in sorted(holdings) if name not in listed]


def _init_entries(
    pod: ListedPod, uid: str, zone_of_cpu: Mapping[int, int], unseen: Sequence[ListedContainer]
) -> list[Placement]:
    """What each of them still keeps for itself; one whose CPUs and devices were all taken over is
    told as keeping nothing.
    """
    if not unseen:
        return []
    cpus = {*pod.cpus, *(cpu for container in pod.containers for cpu in container.cpus)}
    devices = {
        (group.resource, each)
        for container in pod.containers
        for group in container.devices
        for each in group.ids
    }
    entries = []
    for container in unseen:
        own = sorted(set(container.cpus) - cpus)
        groups = [_without(group, devices) for group in container.devices]
        cpus.update(own)
        devices.update((group.resource, each) for group in groups for each in group.ids)
        kept = (*_cpus(own, zone_of_cpu), *_devices(groups))
        entries.append(Placement(pod.namespace, pod.name, container.name, kept, uid))
    return entries


def _without(group: DeviceGroup, counted: set[tuple[str, str]]) -> DeviceGroup:
    return DeviceGroup(
        group.resource,
        tuple(each for each in group.ids if (group.resource, each) not in counted),
        group.zones,
    )


def _init_memory(pod: ListedPod, uid: str, unseen: Iterable[ListedContainer]) -> list[Placement]:
    entries = [
        Placement(pod.namespace, pod.name, each.name, tuple(_memory(each.memory)), uid)
        for each in unseen
    ]
    return [entry for entry in entries if entry.held]


def _unmatched(
    checkpoints: Checkpoints, known: set[str], zone_of_cpu: Mapping[int, int]
) -> list[Placement]:
    return [
        Placement("", "", name, held(containers[name], zone_of_cpu), uid)
        for uid, containers in sorted(checkpoints.holdings.items())
        if uid not in known
        for name in sorted(containers)
    ]


def _uids_by_holdings(checkpoints: Checkpoints) -> dict[tuple[object, ...], str]:
    """CPUs and devices belong to one pod alone, so a container's name and what it holds of them
    identify the pod's uid; podresources has none."""
    found = {}
    for uid, containers in sorted(checkpoints.holdings.items()):
        for container in containers.values():
            found.update(dict.fromkeys(_signs(container), uid))
    return found


def _uids_of(container: ListedContainer, uids: Mapping[tuple[object, ...], str]) -> list[str]:
    return [uids[sign] for sign in _signs(container) if sign in uids]


def agree(pods: Iterable[ListedPod], checkpoints: Checkpoints) -> bool:
    """Do podresources and the checkpoints know the same containers, holding the same? Not while a
    change has reached one of them only, nor where podresources hides init containers, or the
    kubelet still keeps what ended pods held."""
    listed = Counter(_holding(container) for pod in pods for container in pod.containers)
    stored = Counter(
        _holding(container)
        for containers in checkpoints.holdings.values()
        for container in containers.values()
    )
    listed.pop(NOTHING, None)
    stored.pop(NOTHING, None)
    return listed == stored


@lru_cache(maxsize=KEPT)
def _holding(container: ListedContainer) -> tuple[object, ...]:
    """Name, CPUs, memory and devices of a container, NOTHING of one without any."""
    devices = frozenset(
        (group.resource, device) for group in container.devices for device in group.ids
    )
    memory = tuple(sorted((block.resource, block.zones, block.size) for block in container.memory))
    held = container.cpus or memory or devices
    return (container.name, container.cpus, memory, devices) if held else NOTHING


@lru_cache(maxsize=KEPT)
def _signs(container: ListedContainer) -> tuple[tuple[object, ...], ...]:
    """(container, its CPUs), and (container, resource, its devices) for each resource."""
    devices: dict[str, set[str]] = {}
    for group in container.devices:
        devices.setdefault(group.resource, set()).update(group.ids)
    signs = tuple(
        (container.name, resource, frozenset(ids)) for resource, ids in devices.items() if ids
    )
    return ((container.name, container.cpus), *signs) if container.cpus else signs
