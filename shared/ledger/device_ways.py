"""Devices between zones that are told by zone alone: out of which groups of devices may they be?

A listing names groups. What init containers keep, what a pod held before and what a nominee claims
is known zone by zone, and a device of several zones counts in each of them. Must not know pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from shared.domain.device_zones import between_zones
from shared.domain.idlist import parse_ids
from shared.domain.report import DeviceGroup, Report, ZonedAmount
from shared.hints.splits import MOST, TooManyChoicesError
from shared.ledger.state import ZoneAmounts

Held = tuple[ZonedAmount, ...]


def parted(zones: ZoneAmounts, report: Report) -> tuple[ZoneAmounts, ZoneAmounts]:
    """The amounts without those of devices between zones, and these."""
    between = {name for name, _ in between_zones(report)}
    if not between:
        return zones, {}
    return _only(zones, between, False), _only(zones, between, True)


def _only(zones: ZoneAmounts, names: set[str], wanted: bool) -> ZoneAmounts:
    left = {
        zone: {name: held for name, held in each.items() if (name in names) is wanted}
        for zone, each in zones.items()
    }
    return {zone: amounts for zone, amounts in left.items() if amounts}


def ways_out_of_groups(zones: ZoneAmounts, report: Report) -> list[tuple[Held, ...]]:
    """Resource by resource, every way to hold devices of which no zone sees more than these
    amounts, none at all among them. Raises TooManyChoicesError."""
    return [
        _ways(name, zones, report.devices or ())
        for name in sorted({name for each in zones.values() for name in each})
    ]


def _ways(name: str, zones: ZoneAmounts, devices: Iterable[DeviceGroup]) -> tuple[Held, ...]:
    limits = {zone: amounts.get(name, 0) for zone, amounts in zones.items()}
    groups = [group for group in devices if group.resource == name and group.zones]
    rooms = [
        min([_size(group), *[limits.get(zone, 0) for zone in group.zones]]) for group in groups
    ]
    if prod(room + 1 for room in rooms) > MOST:
        raise TooManyChoicesError
    found: list[Held] = []
    for counts in product(*[range(room + 1) for room in rooms]):
        held = tuple(
            [
                ZonedAmount(name, group.zones, count)
                for group, count in zip(groups, counts, strict=True)
                if count
            ]
        )
        if all(
            sum(item.amount for item in held if zone in item.zones) <= limit
            for zone, limit in limits.items()
        ):
            found.append(held)
    return tuple(found)


def _size(group: DeviceGroup) -> int:
    return len(parse_ids(group.ids)) + len(parse_ids(group.unhealthy))
