"""Charging: in which zones a pod could land, and what the view must therefore subtract.

Every zone where the pod could land in any state between now and its proof. Computed from what
*could* be free (`free_max`), never from the pessimistic view, and from what hint providers say of
zones; only ever widened until the pod is proven. Kubelet 1.36 semantics: single-numa-node puts each
container (or, in pod scope, the pod) into one zone, or each container of a pod that asks for memory
alone (`may_be_split`); every other policy may spread over all of them. Of these only best-effort in
container scope gives containers of one pod different masks without refusing the pod: none has no
mask, pod scope one for all, and restricted admits only masks of the least size that hold an init
container's CPUs too. Devices that lie in several zones at once are charged in every zone of their
resource, wherever the pod lands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from shared.domain.demand import ContainerDemand, may_be_split, most, peak
from shared.domain.device_zones import Between, between_zones
from shared.domain.policies import NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts
from shared.hints.registry import amounts_are_all, beyond_amounts, zones_of
from shared.ledger.state import Charge, ZoneAmounts

WHOLE_POD = ""

Possible = dict[str, tuple[int, ...]]

REMEMBERED = 4096
"""Charges that are remembered (pods of one kind share their demand, and land in the same zones again and again); beyond
them all are forgotten and computed again, which changes nothing."""

_charged: dict[tuple[object, ...], tuple[tuple[ContainerDemand, ...], ZoneAmounts]] = {}


def listed_demand(demand: Sequence[ContainerDemand]) -> Amounts:
    """What podresources shows of the pod once it is admitted: ordinary init containers are not in
    it.
    """
    return peak([part for part in demand if part.kind != "init"])


def possible_zones(
    demand: Collection[ContainerDemand], report: Report, bound: Mapping[int, Amounts]
) -> Possible:
    """Container name (or WHOLE_POD) -> zones that could hold it by `bound`. A part that fits
    nowhere gets every zone: it is on the node against all expectation, so nothing is known about
    it."""
    zones = sorted(bound)
    if report.policy != SINGLE_NUMA_NODE:
        each = [part.name for part in demand] if _each_by_itself(demand, report) else []
        return dict.fromkeys([WHOLE_POD, *each], tuple(zones)) if demand else {}
    bound = _where_given(demand, report, bound)
    found: Possible = {}
    if report.scope == "pod":
        whole = peak(demand)
        found |= {WHOLE_POD: _holding(whole, zones, bound)} if whole else {}
        if not may_be_split(demand, report.policy, report.scope):
            return found
    amounts: Amounts = {}
    holding: tuple[int, ...] = ()
    for part in demand:
        if part.amounts != amounts:
            amounts, holding = part.amounts, _holding(part.amounts, zones, bound)
        found[part.name] = holding
    return found


def _where_given(
    demand: Collection[ContainerDemand], report: Report, bound: Mapping[int, Amounts]
) -> Mapping[int, Amounts]:
    """The bound without what a provider says that a zone can never give, whatever amounts the
    report shows there.
    """
    if amounts_are_all():
        return bound
    for name in sorted({name for part in demand for name in part.amounts if beyond_amounts(name)}):
        given = zones_of(report, name)
        if given is not None:
            bound = {
                zone: held if zone in given else {**held, name: 0} for zone, held in bound.items()
            }
    return bound


def _each_by_itself(demand: Collection[ContainerDemand], report: Report) -> bool:
    """Whether containers may get different masks, and it matters: later ones need not take over an
    init container's CPUs.
    """
    one_mask = report.policy in (NONE, RESTRICTED) or report.scope == "pod"
    return not one_mask and any(part.kind == "init" and CPU in part.amounts for part in demand)


def apart(possible: Mapping[str, tuple[int, ...]]) -> bool:
    """True where the pod is possible as a whole and container by container: each may stand
    anywhere, by itself.
    """
    return WHOLE_POD in possible and len(possible) > 1


def _holding(amounts: Amounts, zones: list[int], bound: Mapping[int, Amounts]) -> tuple[int, ...]:
    """Runs for every reservation, in the cycle and in the fold: plain loops, which cost half of the
    expressions.
    """
    wanted, fitting = tuple(amounts.items()), []
    for zone in zones:
        held = bound[zone]
        for name, amount in wanted:
            if held.get(name, 0) < amount:
                break
        else:
            fitting.append(zone)
    return tuple(fitting or zones)


def widen(old: Possible, new: Possible) -> Possible:
    """The union, part by part. A change between pod and container parts keeps both: each may have
    happened.
    """
    if not old:
        return new
    return {
        name: tuple(sorted({*old.get(name, ()), *new.get(name, ())}))
        for name in sorted({*old, *new})
    }


def narrow(possible: Possible, trusted: Mapping[str, tuple[int, ...]]) -> Possible:
    """The zones that a trusted prediction leaves of the possible ones; all of them where it says
    nothing, or names none.
    """
    if not trusted or any(name and name not in trusted for name in possible):
        return possible
    everywhere = {zone for zones in trusted.values() for zone in zones}
    left = {}
    for name, zones in possible.items():
        expected = set(trusted.get(name, ())) if name in trusted else everywhere
        left[name] = tuple(zone for zone in zones if zone in expected) or zones
    return left


def charge_zones(
    demand: tuple[ContainerDemand, ...], possible: Possible, zones: Sequence[int], report: Report
) -> ZoneAmounts:
    """Zone -> the most that the pod can hold there; read only, like charges share it. Zones that
    the report no longer has are left out."""
    between = between_zones(report)
    key = (id(demand), tuple(possible.items()), tuple(zones), between)
    known = _charged.get(key)
    if known is None or known[0] is not demand:
        if len(_charged) >= REMEMBERED:
            _charged.clear()
        known = _charged[key] = (
            demand,
            _with_between(_most_by_zone(demand, possible, zones), demand, zones, between),
        )
    return known[1]


def _most_by_zone(
    demand: tuple[ContainerDemand, ...], possible: Possible, zones: Sequence[int]
) -> ZoneAmounts:
    charged: ZoneAmounts = {}
    whole, scattered = possible.get(WHOLE_POD, ()), apart(possible)
    shared: dict[tuple[bool, ...], Amounts] = {}
    for zone in sorted(zones):
        present = tuple([zone in whole or zone in possible.get(part.name, ()) for part in demand])
        if True in present:
            amounts = shared.get(present)
            if amounts is None:
                amounts = shared[present] = most(
                    [part for part, there in zip(demand, present, strict=True) if there], scattered
                )
            charged[zone] = dict(amounts)
    return charged


def _with_between(
    charged: ZoneAmounts, demand: Sequence[ContainerDemand], zones: Sequence[int], between: Between
) -> ZoneAmounts:
    """What is taken in one zone of devices that lie in several is gone from the others, whatever
    else the pod takes there.
    """
    for name, lying in between:
        amount = most(demand).get(name, 0)
        for zone in lying if amount and charged else ():
            if zone in zones:
                charged.setdefault(zone, {})[name] = amount
    return {zone: charged[zone] for zone in sorted(charged)} if between else charged


def pending_zones(charge: Charge, report: Report) -> ZoneAmounts:
    """What an unproven charge subtracts under `report`: its last proven zones within one boot, else
    every possible one.
    """
    if charge.confirmed_zones and charge.confirmed_boot == report.boot_id:
        present = {zone.id for zone in report.zones}
        return {
            zone: amounts for zone, amounts in charge.confirmed_zones.items() if zone in present
        }
    return charge_zones(charge.demand, charge.possible, [zone.id for zone in report.zones], report)
