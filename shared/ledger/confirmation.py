"""Confirmation: does a report show where the kubelet put a pod?

1. A listing alone confirms nothing, because the kubelet lists a pod before and during its
   admission (1.36). A pod is confirmed if its placements cover its whole demand in every tracked
   resource, or if it demands none.

2. podresources has no uid. If another uid had the name on this node, a listing of the name
   confirms nothing until a report lacks it or shows other, complete placements (`Alias`).

3. Ordinary init containers are not listed. If only they demand anything, an empty listing covers
   the demand; then a checkpoint that names the uid confirms the pod, or that its kubelet runs it.

4. Of a confirmed pod, init containers may still hold something that no listing shows: the
   residual. So do resources that the source never lists (`Report.unlisted`). A pod that demands
   nothing else is confirmed as soon as its kubelet is known to run it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from shared.domain.demand import ContainerDemand, kept_init_cpu, most, peak
from shared.domain.device_zones import between_zones
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import POD_LEVEL, Placement, Report
from shared.domain.resources import CPU, MEMORY, Amounts, is_device, is_memory
from shared.hints.cpu import by_socket
from shared.ledger.charge import REMEMBERED, apart
from shared.ledger.state import Charge, LedgerNode, ZoneAmounts

_NOTHING: Amounts = {}


def covers(
    demand: Sequence[ContainerDemand],
    listed: Iterable[Placement],
    unlisted: Collection[str] = (),
) -> bool:
    """Return True if the placements hold the demand of every app and sidecar container in full,
    apart from `unlisted` resources."""
    by_container = {placement.container: _totals(placement) for placement in listed}
    if by_container.keys() == {POD_LEVEL}:
        # One entry with the pod's sums: koordlet lists every pod so, a report at its size limit
        # some pods.
        return _covers_sum(demand, by_container[POD_LEVEL], unlisted)
    for part in demand:
        if part.kind == "init":
            continue
        shown = by_container.get(part.name, _NOTHING)
        for name, amount in part.amounts.items():
            if shown.get(name, 0) < amount and name not in unlisted:
                return False
    return True


def _covers_sum(
    demand: Sequence[ContainerDemand], held: Amounts, unlisted: Collection[str]
) -> bool:
    wanted: Amounts = {}
    for part in demand:
        for name, amount in part.amounts.items() if part.kind != "init" else ():
            wanted[name] = wanted.get(name, 0) + amount
    return all(
        held.get(name, 0) >= amount for name, amount in wanted.items() if name not in unlisted
    )


def is_confirmed(charge: Charge, listed: Sequence[Placement], report: Report) -> bool:
    """Return True if this listing shows where the pod is."""
    if charge.alias is not None or not covers(charge.demand, listed, report.unlisted):
        return False
    if charge.is_admitted:
        return True
    if report.unlisted and not listed:
        return False
    return is_included(charge, listed, report)


def _unlisted_amounts(charge: Charge, listed: Sequence[Placement], report: Report) -> ZoneAmounts:
    """Return by zone the most that a confirmed pod may hold there of resources that no source
    lists. Under single-numa-node they are in the zone of the CPUs that share their mask."""
    if not report.unlisted:
        return {}
    amounts = most(charge.demand)
    amounts = {name: amounts[name] for name in report.unlisted if name in amounts}
    zones = tuple(held_zones(listed))
    is_shared = report.scope == "pod" or all(CPU in part.amounts for part in charge.demand)
    if report.policy != SINGLE_NUMA_NODE or len(zones) != 1 or not is_shared:
        zones = tuple([zone.id for zone in report.zones])
    return dict.fromkeys(zones, amounts) if amounts else {}


def is_confirmed_by_match(node: LedgerNode, charge: Charge) -> bool:
    """Return whether the fingerprint of a report without placements matched with this pod, so that
    the node's basis includes it.
    """
    return 0 < charge.charged_at <= node.confirmed_to


def is_included(charge: Charge, listed: Iterable[Placement], report: Report) -> bool:
    """Return True if the kubelet had admitted the pod when the report was made. A listing with
    amounts says so; if only init containers demand anything, a checkpoint that names the uid."""
    if not has_only_inits(charge):
        return True
    return any(placement.pod_uid == charge.uid for placement in (*listed, *report.hidden))


def has_only_inits(charge: Charge) -> bool:
    """Return True if only init containers demand anything: that its kubelet runs the pod then
    confirms it."""
    init = _inits_of(charge.demand)
    return init is not None and init.alone


def _totals(placement: Placement) -> Amounts:
    totals: Amounts = {}
    for item in placement.held:
        totals[item.resource] = totals.get(item.resource, 0) + item.amount
    return totals


def held_zones(listed: Iterable[Placement]) -> ZoneAmounts:
    """Return by zone the listed amounts. A memory block over several zones counts in full in each
    of them, because its split is unknown."""
    zones: ZoneAmounts = {}
    for placement in listed:
        for item in placement.held:
            for zone in item.zones:
                amounts = zones.setdefault(zone, {})
                amounts[item.resource] = amounts.get(item.resource, 0) + item.amount
    return zones if len(zones) < 2 else {zone: zones[zone] for zone in sorted(zones)}


def alias_stays(charge: Charge, listed: Sequence[Placement], report: Report) -> bool:
    """Return True if the listing may still be that of an earlier pod of the same name.

    Two pods of one name may be listed alike, for example with memory only. A checkpoint that shows
    the whole demand under this uid decides."""
    alias = charge.alias
    if alias is None or not listed:
        return False
    if any(placement.pod_uid for placement in listed):
        return all(placement.pod_uid != charge.uid for placement in listed)
    in_checkpoint = [hidden for hidden in report.hidden if hidden.pod_uid == charge.uid]
    if in_checkpoint and covers(charge.demand, in_checkpoint):
        return False
    return alias.baseline is None or tuple(listed) == alias.baseline


def residual(charge: Charge, listed: Sequence[Placement], report: Report) -> ZoneAmounts:
    """Return by zone what a confirmed pod may hold although no listing shows it."""
    zones = _kept_by_inits(charge, listed, report)
    for zone, amounts in _unlisted_amounts(charge, listed, report).items():
        zones[zone] = {**zones.get(zone, {}), **amounts}
    return zones


def _kept_by_inits(charge: Charge, listed: Sequence[Placement], report: Report) -> ZoneAmounts:
    """Return by zone what ordinary init containers of a confirmed pod may still hold, although
    podresources does not list it, for the pod's life.

    CPUs and devices count nothing if the listing has the init containers themselves: if a pod's uid
    is known, all of its containers that hold something are listed, as far as checkpoints were read.
    If the other containers hold nothing by which to recognize the pod, the checkpoints say by uid
    what to count besides the report. Each amount is held once, in any of its zones (`_stays`).

    Memory counts until the pod is known to run, which frees all of it (1.36: at the start of a
    later container). Until then it may be in any zone, and listed containers may not reuse it. If
    the Memory Manager's own figure is read, that includes it already."""
    init = _inits_of(charge.demand)
    if init is None:
        return {}
    kept, cpu = init.kept, init.cpu[apart(charge.possible)]
    if cpu and not init.names <= {placement.container for placement in listed}:
        kept = {CPU: cpu, **kept}
    hidden: ZoneAmounts = {}
    if report.hidden:
        hidden = held_zones(p for p in report.hidden if p.pod_uid == charge.uid and not p.pod)
    memory = () if charge.is_admitted or "memory" in report.checkpoints else init.memory
    if not (kept or hidden or memory):
        return {}
    if hidden or any(placement.pod_uid == charge.uid for placement in listed):
        kept = {
            name: amount
            for name, amount in kept.items()
            if manager_of(name) not in report.checkpoints
        }
    between = dict(between_zones(report))
    anywhere = {zone for zones in charge.possible.values() for zone in zones}
    listed_zones = set(held_zones(listed)) or anywhere
    zones = {
        zone: {name: amount for name, amount in amounts.items() if manager_of(name)}
        for zone, amounts in hidden.items()
    }
    for name, amount in kept.items():
        near = listed_zones
        if not _stays(name, charge.demand, report):
            near = listed_zones | anywhere
        for zone in between.get(name) or near:
            zones.setdefault(zone, {})[name] = amount
    for name, amount in memory:
        for zone in listed_zones | anywhere:
            zones.setdefault(zone, {})[name] = amount
    return {
        zone: {name: zones[zone][name] for name in sorted(zones[zone])} for zone in sorted(zones)
    }


class _Inits(NamedTuple):
    """A pod's ordinary init containers.

    `alone`: no other container demands anything. `kept`: devices that they may keep beyond those of
    the other containers. `cpu`: millicpu that they may keep, if the pod's containers share a mask
    and if they may have different ones (`apart`). `memory`: (memory or hugepages, the most of it
    that they hold in one zone)."""

    names: frozenset[str]
    alone: bool
    kept: Amounts
    cpu: tuple[int, int]
    memory: tuple[tuple[str, int], ...]


_inits: dict[int, tuple[tuple[ContainerDemand, ...], _Inits | None]] = {}


def _inits_of(demand: tuple[ContainerDemand, ...]) -> _Inits | None:
    """Remembered, because this is asked for every pod in a report."""
    remembered = _inits.get(id(demand))
    if remembered is None or remembered[0] is not demand:
        if len(_inits) >= REMEMBERED:
            _inits.clear()
        remembered = _inits[id(demand)] = demand, _init_parts(demand)
    return remembered[1]


def _init_parts(demand: tuple[ContainerDemand, ...]) -> _Inits | None:
    inits = [part for part in demand if part.kind == "init"]
    if not inits:
        return None
    others = [part for part in demand if part.kind != "init"]
    others_peak = peak(others)
    beyond = {name: amount - others_peak.get(name, 0) for name, amount in peak(demand).items()}
    one_mask, several_masks = (
        max(0, beyond.get(CPU, 0), kept_init_cpu(demand, differing)) for differing in (False, True)
    )
    return _Inits(
        names=frozenset(part.name for part in inits),
        alone=not any(part.amounts for part in others),
        kept={name: amount for name, amount in beyond.items() if amount > 0 and is_device(name)},
        cpu=(one_mask, several_masks),
        memory=_init_memory(inits),
    )


def _init_memory(inits: Sequence[ContainerDemand]) -> tuple[tuple[str, int], ...]:
    """Init containers reuse each other's blocks in a zone, so the largest amount counts."""
    names = sorted({name for part in inits for name in part.amounts if is_memory(name)})
    return tuple([(name, max(part.amounts.get(name, 0) for part in inits)) for name in names])


def _stays(name: str, demand: Sequence[ContainerDemand], report: Report) -> bool:
    """Return True if what init containers hold of a resource is surely in the zones that are listed
    for the pod.

    In pod scope one mask holds all containers: under single-numa-node any listed zone is that mask,
    and under restricted listed memory shows it whole. In container scope the mask of a later
    container contains every zone that it may reuse (1.36, hints of CPUs and devices), and if
    only masks of the least size are admitted it uses all of them. A container before the init
    container shows nothing, nor does a zone of CPUs under align-by-socket."""
    if report.policy not in (SINGLE_NUMA_NODE, RESTRICTED) or (name == CPU and by_socket(report)):
        return False
    if report.scope == "pod":
        if report.policy == SINGLE_NUMA_NODE:
            return True
        return any(MEMORY in part.amounts for part in demand if part.kind != "init")
    kinds = [part.kind for part in demand if name in part.amounts]
    return kinds[-1] != "init"


def manager_of(name: str) -> str:
    """Return which checkpoint (`Report.checkpoints`) shows what containers hold of this resource.

    "" for memory: what its checkpoint shows of init containers changes without any event."""
    if name == CPU:
        return "cpu"
    return "devices" if is_device(name) else ""
