"""Resources that pods may or may not hold, because the report does not show it.

An open holding is a tuple of alternatives ("ways"). Each way has the amounts that are held in that
case; an empty way holds nothing, and a negative amount is given back. Devices between zones
(`device_zones`) are only known by zone, and a device of several zones counts in each of them. So
the group that such devices come from is open, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from shared.domain.device_zones import between_zones
from shared.domain.idlist import parse_ids
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED
from shared.domain.report import DeviceGroup, Report, ZonedAmount
from shared.domain.resources import CPU, is_memory
from shared.hints.cpu import by_socket
from shared.hints.splits import MOST, TooManyChoicesError, ways
from shared.ledger.state import Freed, ZoneAmounts

# The most states of one node before any pod is admitted.
MOST_STATES = 256

# Why a state is open.
HIDDEN = "hidden init resources"
ENDED = "ended pods still held"

Held = tuple[ZonedAmount, ...]
Ways = tuple[Held, ...]


def kept_by_inits(zones: ZoneAmounts, report: Report, bounds: set[str]) -> list[Ways]:
    """Return what init containers may keep: in one zone, or in several if the policy lets a
    container take from several. Raises TooManyChoicesError."""
    zones, between = _without_between(zones, report)
    bounds.update([HIDDEN] if between else [])
    names = {name for amounts in zones.values() for name in amounts}
    spread = [name for name in sorted(names) if not is_memory(name)]
    spread = [name for name in spread if _may_spread(name, zones, report)]
    single = {}
    for zone, amounts in zones.items():
        rest = {name: amount for name, amount in amounts.items() if name not in spread}
        if rest:
            single[zone] = rest
    bounds.update([HIDDEN] if spread else [])
    holdings = [_out_of_several(name, zones, report) for name in spread]
    holdings += _in_one_zone(single, HIDDEN, bounds)
    return holdings + _out_of_groups(between, report)


def freed_or_not(freed: Iterable[Freed], bounds: set[str]) -> list[Ways]:
    """Return what ended pods gave back since a report without placements was confirmed. The report
    may count it as used, or not."""
    holdings: list[Ways] = []
    for end in freed:
        for open_ways in _in_one_zone(end.zones, ENDED, bounds):
            holdings.append(tuple([negative(way) for way in open_ways]))
    return holdings


def held_or_not(possibly_held: Iterable[ZoneAmounts], report: Report) -> list[Ways]:
    """Return for each of many holdings two ways, held or not; of devices between zones any part may
    be held. Raises TooManyChoicesError.

    The claims of nominated pods are such holdings: no kubelet knows of them, so a new pod must be
    admitted either way."""
    pairs = [_without_between(zones, report) for zones in possibly_held]
    plain = []
    for zones, _ in pairs:
        for zone, amounts in zones.items():
            plain += [ZonedAmount(name, (zone,), amount) for name, amount in amounts.items()]
    holdings: list[Ways] = [((), tuple(plain))] if plain else []
    for _, between in pairs:
        holdings += _out_of_groups(between, report)
    return holdings


def negative(held: Held) -> Held:
    return tuple([ZonedAmount(item.resource, item.zones, -item.amount) for item in held])


def _may_spread(name: str, zones: ZoneAmounts, report: Report) -> bool:
    """Return whether a container may take the resource from several zones. Under restricted it may
    if it requests more than an empty zone has (unhealthy devices and reserved CPUs included), and
    CPUs by socket always may."""
    if report.policy == RESTRICTED and not (name == CPU and by_socket(report)):
        capacities = [
            zone.resources[name].capacity for zone in report.zones if name in zone.resources
        ]
        largest = max(capacities, default=0)
        return any(amounts.get(name, 0) > largest for amounts in zones.values())
    return report.policy in (NONE, BEST_EFFORT, RESTRICTED)


def _out_of_several(name: str, zones: ZoneAmounts, report: Report) -> Ways:
    """Return the ways to hold any part of the amount, which the report counts as available."""
    step = 1000 if name == CPU else 1
    available = {
        zone.id: zone.resources[name].available for zone in report.zones if name in zone.resources
    }
    rooms = [
        min(amounts.get(name, 0), available.get(zone, 0)) // step for zone, amounts in zones.items()
    ]
    most = max(amounts.get(name, 0) for amounts in zones.values()) // step
    open_ways: list[Held] = []
    for total in range(min(most, sum(rooms)) + 1):
        for split in ways(total, rooms):
            shares = [(zone, share) for zone, share in zip(zones, split, strict=True) if share]
            open_ways.append(
                tuple([ZonedAmount(name, (zone,), share * step) for zone, share in shares])
            )
        if len(open_ways) > MOST_STATES:
            raise TooManyChoicesError
    return tuple(open_ways)


def _in_one_zone(zones: ZoneAmounts, why: str, bounds: set[str]) -> list[Ways]:
    """Return for each resource the ways to hold any part of its amount in one of the zones, or
    nothing."""
    if zones:
        bounds.add(why)
    holdings: list[Ways] = []
    for name in sorted({name for amounts in zones.values() for name in amounts}):
        open_ways: list[Held] = [()]
        for zone, amounts in zones.items():
            for amount in _parts(name, amounts.get(name, 0)):
                open_ways.append((ZonedAmount(name, (zone,), amount),))
        holdings.append(tuple(open_ways))
    return holdings


def _parts(name: str, amount: int) -> list[int]:
    """Return the amounts that may be held: CPUs and devices in every number, memory as a whole,
    because the reused part of it is listed."""
    if is_memory(name):
        return [amount] if amount else []
    step = 1000 if name == CPU else 1
    return list(range(step, amount + 1, step))


def _without_between(zones: ZoneAmounts, report: Report) -> tuple[ZoneAmounts, ZoneAmounts]:
    """Return the amounts without those of devices between zones, and these."""
    names = {name for name, _ in between_zones(report)}
    if not names:
        return zones, {}
    return _only(zones, names, False), _only(zones, names, True)


def _only(zones: ZoneAmounts, names: set[str], wanted: bool) -> ZoneAmounts:
    selected = {}
    for zone, amounts in zones.items():
        some = {name: amount for name, amount in amounts.items() if (name in names) is wanted}
        if some:
            selected[zone] = some
    return selected


def _out_of_groups(zones: ZoneAmounts, report: Report) -> list[Ways]:
    """Return by resource every way to hold at most this many devices of each zone, and the way to
    hold none. Raises TooManyChoicesError."""
    names = sorted({name for amounts in zones.values() for name in amounts})
    return [_ways_out_of_groups(name, zones, report.devices or ()) for name in names]


def _ways_out_of_groups(name: str, zones: ZoneAmounts, devices: Iterable[DeviceGroup]) -> Ways:
    limits = {zone: amounts.get(name, 0) for zone, amounts in zones.items()}
    groups = [group for group in devices if group.resource == name and group.zones]
    rooms = [
        min([_size(group), *[limits.get(zone, 0) for zone in group.zones]]) for group in groups
    ]
    if prod(room + 1 for room in rooms) > MOST:
        raise TooManyChoicesError
    open_ways: list[Held] = []
    for counts in product(*[range(room + 1) for room in rooms]):
        pairs = zip(groups, counts, strict=True)
        way = tuple([ZonedAmount(name, group.zones, count) for group, count in pairs if count])
        if all(_sum_in(way, zone) <= limit for zone, limit in limits.items()):
            open_ways.append(way)
    return tuple(open_ways)


def _sum_in(held: Held, zone: int) -> int:
    return sum(item.amount for item in held if zone in item.zones)


def _size(group: DeviceGroup) -> int:
    return len(parse_ids(group.ids)) + len(parse_ids(group.unhealthy))
