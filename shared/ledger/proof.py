"""Proof: does this report show where the kubelet put this pod?

A listing alone proves nothing (kubelet 1.36 lists a pod before and half-way through its admission):
a pod is proven when its placements cover its whole demand in every tracked resource, or when it
demands none. podresources knows no uid, so a name that another uid carried on this node proves
nothing until a report lacks it or shows other, complete placements. Ordinary init containers are
not listed: where only they demand anything no listing lacks any of it, and what is told by uid, or
that the kubelet runs the pod, proves it instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shared.domain.demand import ContainerDemand, kept_init_cpu, peak
from shared.domain.device_zones import between_zones
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Placement, Report
from shared.domain.resources import CPU, MEMORY, Amounts, is_device, is_memory
from shared.hints.cpu import by_socket
from shared.ledger.charge import REMEMBERED, apart
from shared.ledger.state import Charge, ZoneAmounts

_NOTHING: Amounts = {}


def covers(demand: Sequence[ContainerDemand], listed: Iterable[Placement]) -> bool:
    """True when every app and sidecar container's demand is held in full. Ordinary init containers
    are never listed.
    """
    held = {placement.container: _totals(placement) for placement in listed}
    for part in demand:
        if part.kind == "init":
            continue
        shown = held.get(part.name, _NOTHING)
        for name, amount in part.amounts.items():
            if shown.get(name, 0) < amount:
                return False
    return True


def is_seen(charge: Charge, listed: Iterable[Placement], report: Report) -> bool:
    """Whether the report was made with the pod: its kubelet had admitted it. A listing that holds
    something says so, and, where only init containers demand anything, a checkpoint that knows the
    uid."""
    return not has_only_inits(charge) or any(
        each.pod_uid == charge.uid for each in (*listed, *report.hidden)
    )


def has_only_inits(charge: Charge) -> bool:
    """Whether init containers alone demand anything, so that it matters for the proof whether the
    kubelet runs the pod.
    """
    init = _init_of(charge.demand)
    return init is not None and init.alone


def _totals(placement: Placement) -> Amounts:
    totals: Amounts = {}
    for item in placement.held:
        totals[item.resource] = totals.get(item.resource, 0) + item.amount
    return totals


def held_zones(listed: Iterable[Placement]) -> ZoneAmounts:
    """Zone -> amounts as listed. A memory block over several zones counts whole in each of them:
    the split is unknown.
    """
    zones: ZoneAmounts = {}
    for placement in listed:
        for item in placement.held:
            for zone in item.zones:
                amounts = zones.setdefault(zone, {})
                amounts[item.resource] = amounts.get(item.resource, 0) + item.amount
    return zones if len(zones) < 2 else {zone: zones[zone] for zone in sorted(zones)}


def alias_stands(charge: Charge, listed: Sequence[Placement], report: Report) -> bool:
    """Whether the listing may still be that of an earlier pod of the same name. Memory and nothing
    do not tell whose a listing is: two pods of one name may be listed alike. Then a checkpoint
    tells, by uid, that the kubelet gave this one all it asks."""
    alias = charge.alias
    if alias is None or not listed:
        return False
    if any(placement.pod_uid for placement in listed):
        return all(placement.pod_uid != charge.uid for placement in listed)
    told = [each for each in report.hidden if each.pod_uid == charge.uid]
    if told and covers(charge.demand, told):
        return False
    return alias.baseline is None or tuple(listed) == alias.baseline


def residual(charge: Charge, listed: Sequence[Placement], report: Report) -> ZoneAmounts:
    """What ordinary init containers may still hold of a proven pod, invisibly to podresources, for
    the pod's life.

    CPUs and devices count nothing when the listing shows the init containers themselves: a pod
    whose uid is known has all of them listed that hold something, as far as the checkpoints were
    read. Where its other containers hold nothing by which to know the pod, the checkpoints tell by
    uid what is to be counted beside the report. Each amount is held once, in whichever of its zones
    (`_stays`). Memory draws nobody: until the pod is known to run, which frees all of it (kubelet
    1.36: at the start of a later container), it may be in any zone, not reused by what is listed;
    where the Memory Manager's own figure is read, that has it already."""
    init = _init_of(charge.demand)
    if init is None:
        return {}
    kept, cpu = init.kept, init.cpu[apart(charge.possible)]
    if cpu and not init.names <= {placement.container for placement in listed}:
        kept = {CPU: cpu, **kept}
    told = (
        held_zones(each for each in report.hidden if each.pod_uid == charge.uid and not each.pod)
        if report.hidden
        else {}
    )
    memory = () if charge.is_admitted or "memory" in report.checkpoints else init.memory
    if not (kept or told or memory):
        return {}
    if told or any(placement.pod_uid == charge.uid for placement in listed):
        kept = {
            name: amount
            for name, amount in kept.items()
            if manager_of(name) not in report.checkpoints
        }
    between, anywhere = (
        dict(between_zones(report)),
        {zone for zones in charge.possible.values() for zone in zones},
    )
    near = set(held_zones(listed)) or anywhere
    zones = {
        zone: {name: held[name] for name in held if manager_of(name)} for zone, held in told.items()
    }
    for name, amount in kept.items():
        everywhere = between.get(name) or (
            near if _stays(name, charge.demand, report) else near | anywhere
        )
        for zone in everywhere:
            zones.setdefault(zone, {})[name] = amount
    for name, amount in memory:
        for zone in near | anywhere:
            zones.setdefault(zone, {})[name] = amount
    return {
        zone: {name: zones[zone][name] for name in sorted(zones[zone])} for zone in sorted(zones)
    }


class _Init(NamedTuple):
    """A pod's ordinary init containers: their `names`; the devices that they may keep beside those
    of the others; the millicpu that they may keep, where the pod's containers share a mask and
    where they may be `apart`; and (memory or hugepages, the most that they hold of it in one zone).
    `alone`: no other container demands anything."""

    names: frozenset[str]
    alone: bool
    kept: Amounts
    cpu: tuple[int, int]
    memory: tuple[tuple[str, int], ...]


def _init_of(demand: tuple[ContainerDemand, ...]) -> _Init | None:
    """Asked for every pod that a report tells of; pods of one kind share their demand."""
    known = _inits.get(id(demand))
    if known is None or known[0] is not demand:
        if len(_inits) >= REMEMBERED:
            _inits.clear()
        known = _inits[id(demand)] = demand, _init_parts(demand)
    return known[1]


def _init_parts(demand: tuple[ContainerDemand, ...]) -> _Init | None:
    init = [part for part in demand if part.kind == "init"]
    if not init:
        return None
    beside = peak([part for part in demand if part.kind != "init"])
    beyond = {name: amount - beside.get(name, 0) for name, amount in peak(demand).items()}
    one, several = (
        max(0, beyond.get(CPU, 0), kept_init_cpu(demand, differing)) for differing in (False, True)
    )
    kept = {name: amount for name, amount in beyond.items() if amount > 0 and is_device(name)}
    alone = not any(part.amounts for part in demand if part.kind != "init")
    return _Init(
        frozenset(part.name for part in init),
        alone,
        kept,
        (one, several),
        tuple(_init_memory(init)),
    )


_inits: dict[int, tuple[tuple[ContainerDemand, ...], _Init | None]] = {}


def _stays(name: str, demand: Sequence[ContainerDemand], report: Report) -> bool:
    """Whether what init containers hold of a resource is surely in the zones that are listed for
    the pod.

    In pod scope one mask holds all containers: under single-numa-node any listed zone is that mask,
    under restricted listed memory shows it whole. In container scope a *later* container's mask
    must hold every zone of what it may reuse (kubelet 1.36, CPU and device hints), and where only
    masks of the least size are admitted it then uses all of them. Whatever came before an init
    container says nothing about it, nor does a zone of CPUs where they come from all zones of its
    socket."""
    if report.policy not in (SINGLE_NUMA_NODE, RESTRICTED) or (name == CPU and by_socket(report)):
        return False
    if report.scope == "pod":
        return report.policy == SINGLE_NUMA_NODE or any(
            MEMORY in part.amounts for part in demand if part.kind != "init"
        )
    wants = [part.kind for part in demand if name in part.amounts]
    return wants[-1] != "init"


def manager_of(name: str) -> str:
    """Whose checkpoint says what containers hold of this resource, in the words of
    `Report.checkpoints`; memory's is no help here, as what it says of init containers changes
    without any fact."""
    return "cpu" if name == CPU else "devices" if is_device(name) else ""


def _init_memory(init: Sequence[ContainerDemand]) -> list[tuple[str, int]]:
    """(memory or hugepages, the most that init containers hold of it in one zone): they reuse each
    other's blocks there.
    """
    names = sorted({name for part in init for name in part.amounts if is_memory(name)})
    return [(name, max(part.amounts.get(name, 0) for part in init)) for name in names]
