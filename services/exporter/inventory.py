"""Reserved CPUs, manager policies and devices of a kubelet, from its own answers.

The configuration file may have changed after the kubelet started, so the answers decide first. Must
not know pods, files or the accounting of reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from services.exporter.answers import Allocatable, DeviceGroup, ListedContainer
from services.exporter.kubelet_config import KubeletSettings
from services.exporter.sysfs import Machine
from shared.domain import report
from shared.domain.idlist import format_ids
from shared.kubelet.cpuset import cpus_of, format_cpus, parse_cpus

# (resource, zones) -> device ids.
Devices = dict[tuple[str, tuple[int, ...]], set[str]]


def cpu_policy(allocatable: Allocatable, settings: KubeletSettings) -> str:
    """Return `static` or `none`: without the static CPU Manager no CPU is listed by id."""
    return "static" if allocatable.cpus else settings.cpu_policy or "none"


def memory_policy(allocatable: Allocatable, settings: KubeletSettings) -> str:
    """Return `Static` or `None`: without the Static Memory Manager no block is listed."""
    return "Static" if allocatable.memory else settings.memory_policy or "None"


def reserved_cpus(machine: Machine, allocatable: Allocatable, settings: KubeletSettings) -> str:
    """Return the CPUs that the static CPU Manager never hands out, without that policy those of
    reservedSystemCPUs."""
    if not allocatable.cpus:
        listed = parse_cpus(settings.reserved.cpus) if settings.reserved is not None else 0
        return format_cpus(listed & cpus_of(machine.zone_of_cpu))
    return format_cpus(cpus_of(set(machine.zone_of_cpu) - set(allocatable.cpus)))


def devices(
    allocatable: Allocatable, holders: Iterable[ListedContainer]
) -> tuple[report.DeviceGroup, ...]:
    """Return every allocatable or held device, grouped by resource and zones."""
    healthy, healthy_groups = _healthy(allocatable.devices)
    held_groups = [group for container in holders for group in container.devices]
    unhealthy = [group for group in held_groups if not healthy.issuperset(_keys(group))]
    groups = dict(healthy_groups)
    for key, ids in _by_zones(unhealthy).items():
        lost = format_ids(device for device in ids if (key[0], device) not in healthy)
        known_group = groups.get(key, report.DeviceGroup(*key))
        groups[key] = msgspec.structs.replace(known_group, unhealthy=lost)
    return tuple(groups[key] for key in sorted(groups))


def _keys(group: DeviceGroup) -> list[tuple[str, str]]:
    return [(group.resource, device) for device in group.ids]


@lru_cache(maxsize=64)
def _healthy(
    groups: tuple[DeviceGroup, ...],
) -> tuple[frozenset[tuple[str, str]], dict[tuple[str, tuple[int, ...]], report.DeviceGroup]]:
    """Return the allocatable devices as (resource, id) and in groups; cached between scans."""
    ordered = sorted(_by_zones(groups).items())
    healthy = frozenset((resource, device) for (resource, _), ids in ordered for device in ids)
    return healthy, {key: report.DeviceGroup(*key, format_ids(ids)) for key, ids in ordered}


def _by_zones(groups: Iterable[DeviceGroup]) -> Devices:
    """Group devices by zones; a device listed once per zone is one device in all of them."""
    zones_of: dict[tuple[str, str], set[int]] = {}
    for group in groups:
        for device in group.ids:
            zones_of.setdefault((group.resource, device), set()).update(group.zones)
    by_zones: Devices = {}
    for (resource, device), zones in zones_of.items():
        by_zones.setdefault((resource, tuple(sorted(zones))), set()).add(device)
    return by_zones
