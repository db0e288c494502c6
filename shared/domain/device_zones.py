"""Devices with several NUMA nodes: a device plugin may report more than one for a device.

A device that a pod takes in one zone is gone from the other zones, too, so such zones are not
independent. Code that counts zone by zone asks here first. The case is rare, so it is only
detected, not counted exactly. This module does not know pods.
"""

from __future__ import annotations

from shared.domain.report import DeviceGroup, Report

# (resource, every zone that any of its devices belongs to), both ascending.
Between = tuple[tuple[str, tuple[int, ...]], ...]

# Reports whose answer is kept. Delta reports share the devices object, so identity is the key. If
# the cache is full, it is cleared.
REMEMBERED = 4096

_NOTHING: Between = ()
_known: dict[int, tuple[tuple[DeviceGroup, ...], Between]] = {}


def between_zones(report: Report) -> Between:
    """Return the resources with a device in several zones. Empty in nearly every report, and if the
    report lists no devices.
    """
    devices = report.devices
    if not devices:
        return _NOTHING
    cached = _known.get(id(devices))
    if cached is None or cached[0] is not devices:
        if len(_known) >= REMEMBERED:
            _known.clear()
        cached = _known[id(devices)] = devices, _between(devices)
    return cached[1]


def _between(devices: tuple[DeviceGroup, ...]) -> Between:
    names = sorted({group.resource for group in devices if len(group.zones) > 1})
    return tuple([(name, tuple(sorted(_lying(name, devices)))) for name in names])


def _lying(name: str, devices: tuple[DeviceGroup, ...]) -> set[int]:
    return {zone for group in devices if group.resource == name for zone in group.zones}
