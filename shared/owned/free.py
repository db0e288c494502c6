"""What the pods on a node leave free, by zone and by CPU.

A pod counts in every zone where it holds an amount or a CPU. A CPU set without a record of zones (a
pod that was placed while no policy was in force) takes its CPUs from the zones, too. This module
does not know requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from shared.domain.resources import CPU, Amounts
from shared.kubelet.cpuset import cpus_of, each_cpu
from shared.owned.cpu_choice import HeldCpus
from shared.owned.machine import CpuNesting
from shared.owned.values import NUMA_NODE_LEVEL, PCPU_LEVEL, CpuExclusive, Holding, OwnedNode

# Single: every chosen pod of the zone is in this zone only. Shared: some is in other zones, too.
ZoneUse = Literal["idle", "single", "shared"]


class Free(msgspec.Struct, frozen=True):
    """Free amounts and CPUs of a node. `zones` are the zone ids in ascending order, `listed` the
    resources that some zone has, `capacity` and `amounts` what each zone has and has free, `cpus`
    the CPUs that a CPU set may have.
    """

    zones: tuple[int, ...]
    listed: frozenset[str]
    capacity: Mapping[int, Amounts]
    amounts: Mapping[int, Amounts]
    cpus: int
    held: HeldCpus
    use: Mapping[int, ZoneUse]


def free_of(node: OwnedNode, holdings: Iterable[Holding]) -> Free:
    """Return what the holdings leave free. Later holdings decide the exclusive policy of a CPU
    that several pods share.
    """
    holdings = tuple(holdings)
    capacity = {zone.zone: _allocatable(node, zone.zone, zone.amounts) for zone in node.zones}
    amounts = {zone: dict(allocatable) for zone, allocatable in capacity.items()}
    use: dict[int, ZoneUse] = dict.fromkeys(capacity, "idle")
    holders: dict[int, int] = {}
    exclusive: dict[int, CpuExclusive] = {}
    for holding in holdings:
        used = _used(holding, node.cpus)
        for zone in used.keys() & amounts.keys():
            free = amounts[zone]
            for name, amount in used[zone].items():
                if name in free:
                    free[name] = max(0, free[name] - amount)
            if holding.is_chosen:
                use[zone] = "shared" if len(used) > 1 or use[zone] == "shared" else "single"
        for cpu in each_cpu(holding.cpus):
            holders[cpu] = holders.get(cpu, 0) + 1
            exclusive[cpu] = holding.cpu_exclusive
    full = cpus_of(cpu for cpu, count in holders.items() if count >= node.sharers)
    every = node.cpus.every if node.cpus is not None else 0
    return Free(
        zones=tuple(sorted(capacity)),
        listed=frozenset().union(*capacity.values()),
        capacity=capacity,
        amounts=amounts,
        cpus=every & ~full & ~node.reserved_cpus,
        held=_held(node, holders, exclusive),
        use=use,
    )


def less(free: Free, node: OwnedNode, holding: Holding) -> Free:
    """Return `free_of` after one more chosen holding, on a node where no CPU has several holders
    and no holding takes CPUs of another one.
    """
    amounts, use = dict(free.amounts), dict(free.use)
    used = _used(holding, node.cpus)
    for zone in used.keys() & amounts.keys():
        rest = amounts[zone] = dict(amounts[zone])
        for name, amount in used[zone].items():
            if name in rest:
                rest[name] = max(0, rest[name] - amount)
        use[zone] = "shared" if len(used) > 1 or use[zone] == "shared" else "single"
    exclusive = free.held
    if holding.cpu_exclusive and holding.cpus:
        more = _held(node, {}, dict.fromkeys(each_cpu(holding.cpus), holding.cpu_exclusive))
        exclusive = msgspec.structs.replace(
            exclusive,
            exclusive_cores=exclusive.exclusive_cores | more.exclusive_cores,
            exclusive_zones=exclusive.exclusive_zones | more.exclusive_zones,
        )
    cpus = free.cpus & ~holding.cpus
    return Free(free.zones, free.listed, free.capacity, amounts, cpus, exclusive, use)


def _allocatable(node: OwnedNode, zone: int, amounts: Mapping[str, int]) -> Amounts:
    """Return the amounts of a zone without its reserved CPUs."""
    allocatable = dict(amounts)
    if node.cpus is not None and CPU in allocatable:
        reserved = node.reserved_cpus & node.cpus.in_zone.get(zone, 0)
        allocatable[CPU] = max(0, allocatable[CPU] - 1000 * reserved.bit_count())
    return allocatable


def _used(holding: Holding, cpus: CpuNesting | None) -> dict[int, Amounts]:
    """Return what a pod takes from each zone."""
    used = {record.zone: dict(record.amounts) for record in holding.zones}
    if holding.cpus and cpus is not None:
        for zone, every in cpus.in_zone.items():
            count = (holding.cpus & every).bit_count()
            if count:
                amounts = used.setdefault(zone, {})
                amounts[CPU] = max(amounts.get(CPU, 0), 1000 * count)
    return used


def _held(
    node: OwnedNode, holders: Mapping[int, int], exclusive: Mapping[int, CpuExclusive]
) -> HeldCpus:
    machine = node.cpus
    if machine is None:
        return HeldCpus()
    cores = {machine.core_of.get(cpu) for cpu, kind in exclusive.items() if kind == PCPU_LEVEL}
    zones = {machine.zone_of.get(cpu) for cpu, kind in exclusive.items() if kind == NUMA_NODE_LEVEL}
    return HeldCpus(
        holders if node.sharers > 1 else {},
        frozenset(core for core in cores if core is not None),
        frozenset(zone for zone in zones if zone is not None),
    )
