"""What a kubelet has to give away, by id: its reserved CPUs and its devices with their zones.

From the kubelet's own answers, since its configuration may have changed after it started. Must not
know pods, files or reports' accounting.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from services.exporter.answers import Allocatable, DeviceGroup, ListedContainer
from services.exporter.kubelet_config import KubeletFacts
from services.exporter.sysfs import Machine
from shared.domain import report
from shared.domain.idlist import format_ids
from shared.kubelet.cpuset import cpus_of, format_cpus

Devices = dict[tuple[str, tuple[int, ...]], set[str]]
"""(resource, zones) -> device ids."""


def cpu_policy(allocatable: Allocatable, facts: KubeletFacts) -> str:
    """`static` or `none`: a kubelet without the static CPU Manager offers no CPU by id."""
    return "static" if allocatable.cpus else facts.cpu_policy or "none"


def memory_policy(allocatable: Allocatable, facts: KubeletFacts) -> str:
    """`Static` or `None`: a kubelet without the Static Memory Manager offers no block."""
    return "Static" if allocatable.memory else facts.memory_policy or "None"


def reserved_cpus(machine: Machine, allocatable: Allocatable) -> str:
    """The CPUs that the static CPU Manager never gives away, as a Linux list; empty without it."""
    return (
        format_cpus(cpus_of(set(machine.zone_of_cpu) - set(allocatable.cpus)))
        if allocatable.cpus
        else ""
    )


def devices(
    allocatable: Allocatable, holders: Iterable[ListedContainer]
) -> tuple[report.DeviceGroup, ...]:
    """Every device that may be handed out or is held, grouped by resource and zones."""
    healthy, groups = _healthy(allocatable.devices)
    lost = [
        group
        for each in holders
        for group in each.devices
        if not healthy.issuperset((group.resource, one) for one in group.ids)
    ]
    if not lost:
        return tuple(groups.values())
    found = dict(groups)
    for (resource, zones), ids in _by_zones(lost).items():
        known = found.get((resource, zones), report.DeviceGroup(resource, zones))
        ill = format_ids(one for one in ids if (resource, one) not in healthy)
        found[resource, zones] = msgspec.structs.replace(known, unhealthy=ill)
    return tuple(found[key] for key in sorted(found))


@lru_cache(maxsize=64)
def _healthy(
    groups: tuple[DeviceGroup, ...],
) -> tuple[frozenset[tuple[str, str]], dict[tuple[str, tuple[int, ...]], report.DeviceGroup]]:
    """What may be handed out, as (resource, id) and in groups: the same from scan to scan."""
    ordered = sorted(_by_zones(groups).items())
    healthy = frozenset((resource, one) for (resource, _), ids in ordered for one in ids)
    return healthy, {key: report.DeviceGroup(*key, format_ids(ids)) for key, ids in ordered}


def _by_zones(groups: Iterable[DeviceGroup]) -> Devices:
    """A device listed once per zone is one device in several zones."""
    zones_of: dict[tuple[str, str], set[int]] = {}
    for group in groups:
        for each in group.ids:
            zones_of.setdefault((group.resource, each), set()).update(group.zones)
    found: Devices = {}
    for (resource, each), zones in zones_of.items():
        found.setdefault((resource, tuple(sorted(zones))), set()).add(each)
    return found
