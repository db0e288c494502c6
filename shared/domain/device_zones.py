"""Devices that lie in several zones at once (device plugins may name more than one NUMA node for a
device).

What a pod takes of them in one zone is gone from the others too: zones that give such a resource
are not independent of each other. Whoever counts zone by zone asks here first. Rare, so that nobody
counts them any better; must not know pods.
"""

from __future__ import annotations

from shared.domain.report import DeviceGroup, Report

Between = tuple[tuple[str, tuple[int, ...]], ...]
"""(resource, every zone that any of its devices lies in), both ascending."""

REMEMBERED = 4096
"""Reports whose answer is remembered: deltas leave a report's devices the same object. Beyond them all are forgotten and looked
at again, which changes nothing."""

_NOTHING: Between = ()
_known: dict[int, tuple[tuple[DeviceGroup, ...], Between]] = {}


def between_zones(report: Report) -> Between:
    """The resources of which some device lies in several zones; empty nearly always, and where no
    report tells of devices.
    """
    devices = report.devices
    if not devices:
        return _NOTHING
    known = _known.get(id(devices))
    if known is None or known[0] is not devices:
        if len(_known) >= REMEMBERED:
            _known.clear()
        known = _known[id(devices)] = devices, _between(devices)
    return known[1]


def _between(devices: tuple[DeviceGroup, ...]) -> Between:
    names = sorted({group.resource for group in devices if len(group.zones) > 1})
    return tuple([(name, tuple(sorted(_lying(name, devices)))) for name in names])


def _lying(name: str, devices: tuple[DeviceGroup, ...]) -> set[int]:
    return {zone for group in devices if group.resource == name for zone in group.zones}
