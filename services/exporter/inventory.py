"""What a kubelet has to give away, by id: its reserved CPUs and its devices with their zones.

From the kubelet's own answers, since its configuration may have changed after it started. Must not know pods, files or reports'
accounting.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    return format_cpus(cpus_of(set(machine.zone_of_cpu()) - set(allocatable.cpus))) if allocatable.cpus else ""


def devices(allocatable: Allocatable, holders: Iterable[ListedContainer]) -> tuple[report.DeviceGroup, ...]:
    """Every device that may be handed out or is held, grouped by resource and zones."""
    offered, held = _by_zones(allocatable.devices), _by_zones(group for each in holders for group in each.devices)
    healthy = {(resource, each) for (resource, _), ids in offered.items() for each in ids}
    return tuple(
        report.DeviceGroup(
            resource,
            zones,
            format_ids(offered.get((resource, zones), ())),
            format_ids(each for each in held.get((resource, zones), ()) if (resource, each) not in healthy),
        )
        for resource, zones in sorted({*offered, *(key for key in held if _lost(held[key], key[0], healthy))})
    )


def _lost(ids: Iterable[str], resource: str, healthy: set[tuple[str, str]]) -> bool:
    return any((resource, each) not in healthy for each in ids)


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
