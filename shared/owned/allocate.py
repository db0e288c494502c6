"""Allocation under a mask of zones: amounts by zone, then CPU ids.

Hints try it for every mask, and the reservation takes its result, so that a hint never promises
what cannot be allocated. Source of the rules: Koordinator a7a1b76b, plugins/nodenumaresource
(resource_manager.go). There, zones are ordered by the free amounts of other zones, because
positions in a list are read as zone ids; here by their own, and equal ones by id.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.refusal import Refusal
from shared.domain.resources import CPU, Amounts
from shared.kubelet.masks import nodes_of
from shared.owned import refusals
from shared.owned.cpu_choice import CpuRequest, choose_cpus, keeps_bind, one_a_core, whole_cores
from shared.owned.free import Free
from shared.owned.machine import CpuNesting
from shared.owned.values import (
    DISTRIBUTE_EVENLY,
    FULL_PCPUS,
    BindPolicy,
    Holding,
    OwnedNode,
    OwnedRequest,
    ZoneAmounts,
)


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """The resource that a mask cannot give. Of CPUs, the ids may be too few although the amount is
    enough.
    """

    resource: str
    is_of_ids: bool = False


class Trial(msgspec.Struct, frozen=True):
    """A pod on a node, ready to be allocated under any mask.

    `machine` is set if the pod gets a CPU set (None: a share), and `usable` are the CPUs that it
    may have. `amounts` are the free amounts by zone, CPUs capped at the usable ones if the bind
    policy is required.
    """

    node: OwnedNode
    free: Free
    request: OwnedRequest
    amounts: Mapping[int, Amounts]
    machine: CpuNesting | None = None
    bind: BindPolicy = ""
    bind_is_required: bool = False
    usable: int = 0


def trial_of(node: OwnedNode, free: Free, request: OwnedRequest) -> Trial | Refusal:
    """Return the trial for a pod on a node, or why the node can give it no CPU set."""
    asked, machine = request.amounts.get(CPU, 0), node.cpus
    required = request.bind if asked and request.bind_is_required else ""
    bind = required or node.forced_bind or request.bind
    is_required = bool(required or node.forced_bind)
    usable, amounts = free.cpus, free.amounts
    if is_required and machine is not None:
        usable = _usable(machine, free.cpus, bind)
        amounts = _capped(machine, free.amounts, usable)
    if not asked or not (request.takes_cpu_set or node.forced_bind):
        return Trial(node, free, request, amounts)
    if asked % 1000:
        return refusals.not_whole_cpus(node, request)
    if machine is None:
        return refusals.no_cpu_layout(node, request)
    if required and node.forced_bind and required != node.forced_bind:
        return refusals.bind_conflict(node, request)
    if is_required and bind == FULL_PCPUS and asked // 1000 % machine.cpus_per_core:
        return refusals.no_full_cores(node, request)
    return Trial(node, free, request, amounts, machine, bind, is_required, usable)


def _usable(machine: CpuNesting, cpus: int, required: BindPolicy) -> int:
    """Return the CPUs that a required bind policy can use."""
    return (whole_cores if required == FULL_PCPUS else one_a_core)(machine, cpus)


def _capped(machine: CpuNesting, amounts: Mapping[int, Amounts], usable: int) -> dict[int, Amounts]:
    capped = {}
    for zone, free in amounts.items():
        most = 1000 * (usable & machine.in_zone.get(zone, 0)).bit_count()
        capped[zone] = {**free, CPU: min(free[CPU], most)} if CPU in free else free
    return capped


def allocate(trial: Trial, mask: int | None) -> Holding | Shortage:
    """Return what the pod would hold under the mask (None: no zones are chosen), or the missing
    resource.
    """
    zones: tuple[ZoneAmounts, ...] = ()
    if mask is not None:
        split = split_amounts(trial, nodes_of(mask))
        if isinstance(split, str):
            return Shortage(split)
        zones = split
    if trial.machine is None:
        return Holding(zones=zones)
    cpus = _cpu_ids(trial, trial.machine, zones)
    if cpus is None:
        return Shortage(CPU, is_of_ids=True)
    return Holding(cpus, trial.request.cpu_exclusive, zones)


def is_possible(trial: Trial, mask: int) -> bool:
    """Return whether `allocate` finds a holding. CPUs are counted without choosing them, because
    any will do unless the bind policy is required.
    """
    machine, chosen = trial.machine, nodes_of(mask)
    is_zoned = machine is None or (CPU in trial.free.listed and not trial.bind_is_required)
    if len(chosen) == 1 and is_zoned:
        return _fits_zone(trial, chosen[0])
    zones = split_amounts(trial, chosen)
    if isinstance(zones, str):
        return False
    if machine is None:
        return True
    if trial.bind_is_required or not zones:
        return _cpu_ids(trial, machine, zones) is not None
    count = 0
    for record in zones:
        available = (trial.usable & machine.in_zone.get(record.zone, 0)).bit_count()
        count += min(record.amounts.get(CPU, 0) // 1000, available)
    return count == trial.request.amounts[CPU] // 1000


def _fits_zone(trial: Trial, zone: int) -> bool:
    """Return whether one zone has enough of all, and enough CPU ids."""
    free, machine, amounts = trial.amounts[zone], trial.machine, trial.request.amounts
    for name, asked in amounts.items():
        if free.get(name, 0) < asked and name in trial.free.listed:
            return False
    if machine is None:
        return True
    return (trial.usable & machine.in_zone.get(zone, 0)).bit_count() * 1000 >= amounts[CPU]


def split_amounts(trial: Trial, mask: tuple[int, ...]) -> tuple[ZoneAmounts, ...] | str:
    """Return the amounts by zone, as even as the free amounts allow, or the resource that does not
    fit. A resource that no zone of the node has is left out.

    The zone with the least free amount comes first and gives at most its even share, so that the
    last, the roomiest, gives the rest.
    """
    given: dict[int, dict[str, int]] = {}
    for resource, asked in trial.request.amounts.items():
        if resource not in trial.free.listed:
            continue
        missing, unit = asked, _unit(trial, resource)
        if len(mask) == 1:
            if trial.amounts[mask[0]].get(resource, 0) < asked or asked % unit:
                return resource
            if asked:
                given.setdefault(mask[0], {})[resource] = asked
            continue
        free = {zone: amounts.get(resource, 0) for zone, amounts in trial.amounts.items()}
        for index, zone in enumerate(roomiest_last(mask, free)):
            part = min(free[zone], missing // unit // (len(mask) - index) * unit)
            if part:
                given.setdefault(zone, {})[resource] = part
                missing -= part
        if missing:
            return resource
    return tuple(ZoneAmounts(zone, given[zone]) for zone in sorted(given))


def roomiest_last(mask: tuple[int, ...], free: Mapping[int, int]) -> list[int]:
    return sorted(mask, key=lambda zone: (free[zone], zone))


def _unit(trial: Trial, resource: str) -> int:
    """Return the unit in which the resource is split: a CPU or a core for a CPU set."""
    if resource != CPU or trial.machine is None:
        return 1
    full = trial.bind_is_required and trial.bind == FULL_PCPUS
    return 1000 * (trial.machine.cpus_per_core if full else 1)


def _cpu_ids(trial: Trial, machine: CpuNesting, zones: tuple[ZoneAmounts, ...]) -> int | None:
    """Return the CPU ids, in each zone as many as its amount; None if there are too few."""
    count = trial.request.amounts[CPU] // 1000
    if trial.usable.bit_count() < count:
        return None
    shares = {record.zone: record.amounts.get(CPU, 0) // 1000 for record in zones}
    if not zones and trial.node.cpu_strategy == DISTRIBUTE_EVENLY:
        shares = _even_shares(
            machine, trial.usable, count, machine.cpus_per_core if trial.bind == FULL_PCPUS else 1
        )
    if not shares:
        return _checked(trial, machine, _chosen(trial, machine, trial.usable, count))
    taken = 0
    for zone, share in shares.items():
        available = trial.usable & machine.in_zone.get(zone, 0)
        chosen = _chosen(trial, machine, available, min(share, available.bit_count()))
        taken |= chosen or 0
    return _checked(trial, machine, taken) if taken.bit_count() == count else None


def _chosen(trial: Trial, machine: CpuNesting, available: int, count: int) -> int | None:
    strategy = trial.node.cpu_strategy
    wanted = CpuRequest(count, trial.bind, trial.request.cpu_exclusive, strategy)
    return choose_cpus(machine, available, wanted, trial.free.held)


def _checked(trial: Trial, machine: CpuNesting, cpus: int | None) -> int | None:
    if cpus is None or not trial.bind_is_required:
        return cpus
    return cpus if keeps_bind(machine, cpus, trial.bind) else None


def _even_shares(machine: CpuNesting, usable: int, count: int, unit: int) -> dict[int, int]:
    """Return equal numbers of CPUs by zone in parts of `unit`, over the fewest zones that can give
    them; empty if one zone suffices or no number of zones can (DistributeEvenly, as the kubelet's
    distribute-cpus-across-numa).
    """
    unit = 1 if count % unit else unit
    by_zone = {zone: (usable & every).bit_count() for zone, every in machine.in_zone.items()}
    order = sorted(by_zone, key=lambda zone: (-by_zone[zone], zone))
    for width in range(1, len(order) + 1):
        share, rest = divmod(count // unit, width)
        shares = {zone: unit * (share + (index < rest)) for index, zone in enumerate(order[:width])}
        if all(by_zone[zone] >= number for zone, number in shares.items()):
            return dict(sorted(shares.items())) if width > 1 else {}
    return {}
