"""The zones of a node in which a pod may be, and its charge there.

1. A pod is charged in every zone where it could be in any state between now and its confirmation.
   That is computed from what could be free (`free_max`), never from the guaranteed amounts, and
   from the zones that hint providers name. Until the confirmation it only widens.

2. Under single-numa-node (kubelet 1.36) each container is in one zone, or, in pod scope, the
   whole pod, except for pods that request memory alone (`may_be_split`). Every other policy may
   spread a pod over all zones.

3. Only best-effort in container scope may give the containers of one pod different masks without
   rejecting the pod. None has no mask, pod scope has one for all, and restricted admits only
   masks of the least size, which contain an init container's CPUs, too.

4. Devices that are in several zones at once are charged in every zone of their resource.

5. The scheduler computes a landing before it reserves a pod, and every fold computes it again, so
   results are cached. These are caches of pure functions: dropping them changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shared.domain.demand import ContainerDemand, may_be_split, most, peak
from shared.domain.device_zones import Between, between_zones
from shared.domain.policies import NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts
from shared.hints.registry import amounts_are_all, beyond_amounts, zones_of
from shared.ledger.alike import shared_zones
from shared.ledger.state import Charge, ZoneAmounts

WHOLE_POD = ""

# More than any zone has.
UNLIMITED = 1 << 62

# Container name, or WHOLE_POD, -> zones.
Possible = dict[str, tuple[int, ...]]

# The most entries of each cache. Pods of one kind share their demand and land in the same zones
# again and again. A full cache is emptied.
REMEMBERED = 4096


class Landing(NamedTuple):
    """The zones where a pod could land (`possible_zones`), and their charge (`charge_zones`)."""

    possible: Possible
    zones: ZoneAmounts


class _RememberedLanding(NamedTuple):
    """A landing and the objects that it was computed from, which are never changed in place."""

    demand: tuple[ContainerDemand, ...]
    report: Report
    free_max: ZoneAmounts
    landing: Landing


_landings: dict[tuple[int, int], _RememberedLanding] = {}
_charged: dict[tuple[object, ...], tuple[tuple[ContainerDemand, ...], ZoneAmounts]] = {}


def landing(demand: tuple[ContainerDemand, ...], report: Report, free_max: ZoneAmounts) -> Landing:
    """Return the landing of a pod with this demand. It is valid as long as the node's `free_max`,
    which reservations do not change."""
    key = id(demand), id(free_max)
    remembered = _landings.get(key)
    if (
        remembered is not None
        and remembered.demand is demand
        and remembered.free_max is free_max
        and remembered.report is report
    ):
        return remembered.landing
    possible = possible_zones(demand, report, free_max)
    fresh = landing_in(possible, demand, tuple(free_max), report)
    remember(demand, report, free_max, fresh)
    return fresh


def landing_in(
    possible: Possible, demand: tuple[ContainerDemand, ...], zones: Sequence[int], report: Report
) -> Landing:
    """Return the landing in zones that the caller has found, with its charge."""
    possible = shared_zones(possible)
    return Landing(possible, charge_zones(demand, possible, zones, report))


def remember(
    demand: tuple[ContainerDemand, ...], report: Report, free_max: ZoneAmounts, computed: Landing
) -> None:
    """Remember a landing that the caller has computed faster."""
    if len(_landings) >= REMEMBERED:
        _landings.clear()
    _landings[id(demand), id(free_max)] = _RememberedLanding(demand, report, free_max, computed)


def listed_demand(demand: Sequence[ContainerDemand]) -> Amounts:
    """Return what podresources lists for an admitted pod: no ordinary init containers."""
    return peak([part for part in demand if part.kind != "init"])


def possible_zones(
    demand: Collection[ContainerDemand], report: Report, bound: Mapping[int, Amounts]
) -> Possible:
    """Return the zones that could hold each part of the pod by `bound`.

    A part that fits nowhere gets every zone, because the pod is on the node all the same, and its
    zone is unknown."""
    zones = sorted(bound)
    if report.policy != SINGLE_NUMA_NODE:
        separate = [part.name for part in demand] if _masks_may_differ(demand, report) else []
        return dict.fromkeys([WHOLE_POD, *separate], tuple(zones)) if demand else {}
    bound = _limited_by_providers(demand, report, bound)
    if report.unlisted:  # they may not limit the pod at all
        open_amounts = dict.fromkeys(report.unlisted, UNLIMITED)
        bound = {zone: {**amounts, **open_amounts} for zone, amounts in bound.items()}
    possible: Possible = {}
    if report.scope == "pod":
        pod_peak = peak(demand)
        if pod_peak:
            possible[WHOLE_POD] = _zones_with_room(pod_peak, zones, bound)
        if not may_be_split(demand, report.policy, report.scope):
            return possible
    amounts: Amounts = {}
    with_room: tuple[int, ...] = ()
    for part in demand:
        if part.amounts != amounts:
            amounts, with_room = part.amounts, _zones_with_room(part.amounts, zones, bound)
        possible[part.name] = with_room
    return possible


def _limited_by_providers(
    demand: Collection[ContainerDemand], report: Report, bound: Mapping[int, Amounts]
) -> Mapping[int, Amounts]:
    """Return the bound with 0 of a resource in zones from which its provider never gives it,
    whatever the report shows there."""
    if amounts_are_all():
        return bound
    for name in sorted({name for part in demand for name in part.amounts if beyond_amounts(name)}):
        giving = zones_of(report, name)
        if giving is not None:
            bound = {
                zone: amounts if zone in giving else {**amounts, name: 0}
                for zone, amounts in bound.items()
            }
    return bound


def _masks_may_differ(demand: Collection[ContainerDemand], report: Report) -> bool:
    """Return whether containers may get different masks, so that a later container need not reuse
    the CPUs of an init container."""
    one_mask = report.policy in (NONE, RESTRICTED) or report.scope == "pod"
    return not one_mask and any(part.kind == "init" and CPU in part.amounts for part in demand)


def apart(possible: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether the possible zones are known both for the pod as a whole and by container, so
    that each container may be anywhere by itself."""
    return WHOLE_POD in possible and len(possible) > 1


def _zones_with_room(
    amounts: Amounts, zones: list[int], bound: Mapping[int, Amounts]
) -> tuple[int, ...]:
    """Plain loops, because this runs for every reservation: expressions cost twice as much."""
    wanted, fitting = tuple(amounts.items()), []
    for zone in zones:
        free = bound[zone]
        for name, amount in wanted:
            if free.get(name, 0) < amount:
                break
        else:
            fitting.append(zone)
    return tuple(fitting or zones)


def widen(old: Possible, new: Possible) -> Possible:
    """Return the union of both by part. If the parts change from the whole pod to containers, both
    stay, because either may be true."""
    if not old:
        return new
    return {
        name: tuple(sorted({*old.get(name, ()), *new.get(name, ())}))
        for name in sorted({*old, *new})
    }


def narrow(possible: Possible, trusted: Mapping[str, tuple[int, ...]]) -> Possible:
    """Return the possible zones in a trusted prediction; all of a part if there are none."""
    if not trusted or any(name and name not in trusted for name in possible):
        return possible
    everywhere = {zone for zones in trusted.values() for zone in zones}
    narrowed = {}
    for name, zones in possible.items():
        expected = set(trusted[name]) if name in trusted else everywhere
        narrowed[name] = tuple(zone for zone in zones if zone in expected) or zones
    return narrowed


def charge_zones(
    demand: tuple[ContainerDemand, ...], possible: Possible, zones: Sequence[int], report: Report
) -> ZoneAmounts:
    """Return by zone the most that the pod can hold there. Read only, because charges share it.
    Zones that the report no longer has are left out."""
    between = between_zones(report)
    key = (id(demand), tuple(possible.items()), tuple(zones), between)
    remembered = _charged.get(key)
    if remembered is None or remembered[0] is not demand:
        if len(_charged) >= REMEMBERED:
            _charged.clear()
        charged = _most_by_zone(demand, possible, zones)
        charged = _with_between(charged, demand, zones, between)
        remembered = _charged[key] = demand, charged
    return remembered[1]


def _most_by_zone(
    demand: tuple[ContainerDemand, ...], possible: Possible, zones: Sequence[int]
) -> ZoneAmounts:
    charged: ZoneAmounts = {}
    whole, scattered = possible.get(WHOLE_POD, ()), apart(possible)
    by_presence: dict[tuple[bool, ...], Amounts] = {}
    for zone in sorted(zones):
        presence = tuple([zone in whole or zone in possible.get(part.name, ()) for part in demand])
        if True not in presence:
            continue
        amounts = by_presence.get(presence)
        if amounts is None:
            present = [part for part, is_in in zip(demand, presence, strict=True) if is_in]
            amounts = by_presence[presence] = most(present, scattered)
        charged[zone] = dict(amounts)
    return charged


def _with_between(
    charged: ZoneAmounts, demand: Sequence[ContainerDemand], zones: Sequence[int], between: Between
) -> ZoneAmounts:
    """Add devices that are in several zones: a device taken in one zone is taken in all of them."""
    if not between:
        return charged
    for name, device_zones in between:
        amount = most(demand).get(name, 0)
        for zone in device_zones if amount and charged else ():
            if zone in zones:
                charged.setdefault(zone, {})[name] = amount
    return {zone: charged[zone] for zone in sorted(charged)}


def pending_zones(charge: Charge, report: Report) -> ZoneAmounts:
    """Return what an unconfirmed charge subtracts under `report`: the zones in which it was last
    confirmed if that was in this boot, else every possible one."""
    zones = [zone.id for zone in report.zones]
    if charge.confirmed_zones:
        present = set(zones)
        last = charge.confirmed_zones.items()
        return {zone: amounts for zone, amounts in last if zone in present}
    return charge_zones(charge.demand, charge.possible, zones, report)
