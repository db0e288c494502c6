"""The choice of CPU ids: which of the available CPUs a pod gets.

Source of the rules: Koordinator a7a1b76b, plugins/nodenumaresource/cpu_accumulator.go.

1. FullPCPUs takes whole free cores: of one zone if some zone has enough, else of one socket, else
   of whole sockets and then of the sockets with the fewest free cores. The rest is taken singly.

2. SpreadByPCPUs takes from one zone if some zone has enough CPUs, else from one socket, in turns
   over the cores, and else singly.

3. Zones and sockets are tried in the order of the strategy: the fewest free CPUs first
   (MostAllocated) or the most (LeastAllocated, DistributeEvenly).

4. An exclusive policy avoids cores (PCPULevel) or zones (NUMANodeLevel) that a pod holds under the
   same policy. It is best effort: a second pass does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import msgspec

from shared.kubelet.cpuset import cpus_of, each_cpu
from shared.owned.machine import CoreId, CpuNesting
from shared.owned.values import (
    FULL_PCPUS,
    MOST_ALLOCATED,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    BindPolicy,
    CpuExclusive,
    Strategy,
)

# Exclusive policies first, then without them.
_PASSES = (True, False)


class CpuRequest(msgspec.Struct, frozen=True):
    """The requested number of CPUs, and the policy by which they are chosen."""

    count: int
    bind: BindPolicy = ""
    exclusive: CpuExclusive = ""
    strategy: Strategy = "LeastAllocated"


class HeldCpus(msgspec.Struct, frozen=True):
    """What limits a choice apart from the available CPUs.

    `holders` counts the pods on each CPU, if several pods may share one. `exclusive_cores` and
    `exclusive_zones` are held under PCPULevel and NUMANodeLevel.
    """

    holders: Mapping[int, int] = {}
    exclusive_cores: frozenset[CoreId] = frozenset()
    exclusive_zones: frozenset[int] = frozenset()


def choose_cpus(
    machine: CpuNesting, available: int, request: CpuRequest, held: HeldCpus, first: int = 0
) -> int | None:
    """Return the chosen CPUs; None if there are too few. CPUs in `first` are taken first."""
    first &= available
    taken, rest = 0, request
    if first:
        count = min(request.count, first.bit_count())
        taken = _take(machine, first, msgspec.structs.replace(request, count=count), held)
        rest = msgspec.structs.replace(request, count=request.count - count)
    if rest.count > (available & ~first).bit_count():
        return None
    return taken | _take(machine, available & ~first, rest, held)


def _take(machine: CpuNesting, available: int, request: CpuRequest, held: HeldCpus) -> int:
    """Return `request.count` of the available CPUs. The caller has checked that there are
    enough.
    """
    if request.count < 1:
        return 0
    if not held.holders and request.exclusive not in (PCPU_LEVEL, NUMA_NODE_LEVEL):
        taken = _full_cores_of_a_zone(machine, available, request)
        if taken is not None:
            return taken
    return take_in_steps(machine, available, request, held)


def _full_cores_of_a_zone(machine: CpuNesting, available: int, request: CpuRequest) -> int | None:
    """Return what `take_in_steps`, the reference, takes if all available CPUs are of one zone and
    its whole free cores are enough; else None.
    """
    takes_full_cores = request.bind == FULL_PCPUS or machine.cpus_per_core == 1
    zone = machine.zone_of[available.bit_length() - 1]
    outside = available & ~machine.in_zone[zone]
    if outside or not takes_full_cores or request.count > machine.cpus_per_zone:
        return None
    taken, missing = 0, request.count
    for core in machine.cores_in_zone[zone]:
        if core & available != core or core.bit_count() != machine.cpus_per_core:
            continue
        if core.bit_count() > missing:
            core = cpus_of(islice(each_cpu(core), missing))
        taken, missing = taken | core, missing - core.bit_count()
        if not missing:
            return taken
    return None


def take_in_steps(machine: CpuNesting, available: int, request: CpuRequest, held: HeldCpus) -> int:
    """Return `request.count` of the available CPUs by the rules of this module."""
    choice = _Choice(machine, available, request, held)
    if request.bind == FULL_PCPUS or machine.cpus_per_core == 1:
        choice.take_full_cores()
    if request.bind != FULL_PCPUS and choice.missing:
        choice.take_spread()
    for avoids_exclusive in _PASSES:
        if choice.missing:
            choice.take(choice.single_cpus(avoids_exclusive)[: choice.missing])
    return choice.taken


class _Choice:
    """A choice in progress: the CPUs still available, and the taken ones."""

    def __init__(
        self, machine: CpuNesting, available: int, request: CpuRequest, held: HeldCpus
    ) -> None:
        self.machine, self.available, self.request = machine, available, request
        self.holders = held.holders
        self.exclusive_cores = set(held.exclusive_cores)
        self.exclusive_zones = set(held.exclusive_zones)
        self.taken, self.missing = 0, request.count

    def take(self, cpus: Iterable[int]) -> None:
        for cpu in cpus:
            self.taken |= 1 << cpu
            self.available &= ~(1 << cpu)
            self.missing -= 1
            if self.request.exclusive == PCPU_LEVEL:
                self.exclusive_cores.add(self.machine.core_of[cpu])
            elif self.request.exclusive == NUMA_NODE_LEVEL:
                self.exclusive_zones.add(self.machine.zone_of[cpu])

    def take_full_cores(self) -> None:
        """Take whole free cores as far as they go (FullPCPUs)."""
        size = self.machine.cpus_per_core
        for avoids_exclusive in _PASSES:
            if 0 < self.missing <= self.machine.cpus_per_zone:
                self._take_from_one(self._full_cores_by_zone(avoids_exclusive))
        if not self.missing:
            return
        by_socket = self._full_cores_by_socket()
        if self.missing <= self.machine.cpus_per_socket:
            self._take_from_one(by_socket)
        if not self.missing:
            return
        partly = []
        for cpus in sorted(by_socket, key=len, reverse=True):
            if len(cpus) <= self.missing:
                self.take(cpus)
            else:
                partly.append(cpus)
        for cpus in sorted(partly, key=len):
            self.take(cpus[: self.missing // size * size])

    def take_spread(self) -> None:
        """Take CPUs of one zone or one socket in turns over its cores (SpreadByPCPUs)."""
        for count, groups in (
            (self.machine.cpus_per_zone, self._free_by_zone),
            (self.machine.cpus_per_socket, self._free_by_socket),
        ):
            for avoids_exclusive in _PASSES:
                if 0 < self.missing <= count:
                    self._take_from_one(groups(avoids_exclusive), self._in_turns)

    def single_cpus(self, avoids_exclusive: bool) -> list[int]:
        """Return all free CPUs in turns over the cores: next to the taken ones first, then by the
        strategy, and partly used cores before free ones.
        """
        free = self._without_exclusive(avoids_exclusive, cores=True, zones=True)
        cores, zones, sockets = self._by_core(free), self._by_zone(free), self._by_socket(free)
        machine = self.machine

        def order(core: CoreId) -> tuple[int, ...]:
            first_cpu = cores[core][0]
            zone, socket = machine.zone_of[first_cpu], machine.socket_of[first_cpu]
            return (
                -(machine.in_socket[socket] & self.taken).bit_count(),
                self._ranked(sockets[socket].bit_count()),
                self._ranked(zones[zone].bit_count()),
                len(cores[core]),
                socket,
                self._holders_of(cores[core]),
                *core,
            )

        listed = sorted(cores, key=order)
        return self._in_turns([cpu for core in listed for cpu in self._by_holders(cores[core])])

    def _take_from_one(
        self, groups: list[list[int]], ordered: Callable[[list[int]], list[int]] = list
    ) -> None:
        """Take everything that is missing from the first group that has enough."""
        for cpus in groups:
            if 0 < self.missing <= len(cpus):
                self.take(ordered(cpus)[: self.missing])

    def _full_cores_by_zone(self, avoids_exclusive: bool) -> list[list[int]]:
        """Return the CPUs of the wholly free cores of each zone, zones in order of the strategy."""
        free = self._without_exclusive(avoids_exclusive, zones=True)
        sockets = self._by_socket(free)
        zones: dict[int, list[list[int]]] = {}
        for cpus in self._full_cores(free):
            zones.setdefault(self.machine.zone_of[cpus[0]], []).append(cpus)

        def order(zone: int) -> tuple[int, ...]:
            socket = self.machine.socket_of[zones[zone][0][0]]
            count = sum(map(len, zones[zone]))
            return self._ranked(count), self._ranked(sockets[socket].bit_count()), zone

        return [self._joined(zones[zone]) for zone in sorted(zones, key=order)]

    def _full_cores_by_socket(self) -> list[list[int]]:
        sockets: dict[int, list[list[int]]] = {}
        for cpus in self._full_cores(self.available):
            sockets.setdefault(self.machine.socket_of[cpus[0]], []).append(cpus)

        def order(socket: int) -> tuple[int, ...]:
            return self._ranked(sum(map(len, sockets[socket]))), socket

        return [self._joined(sockets[socket]) for socket in sorted(sockets, key=order)]

    def _full_cores(self, free: int) -> list[list[int]]:
        """Return the CPUs of each wholly free core, least shared cores first, then by core id."""
        size = self.machine.cpus_per_core
        cores = {core: cpus for core, cpus in self._by_core(free).items() if len(cpus) == size}
        return [
            cores[core] for core in sorted(cores, key=lambda c: (self._holders_of(cores[c]), c))
        ]

    @staticmethod
    def _joined(cores: list[list[int]]) -> list[int]:
        return [cpu for cpus in cores for cpu in cpus]

    def _free_by_zone(self, avoids_exclusive: bool) -> list[list[int]]:
        free = self._without_exclusive(avoids_exclusive, cores=True, zones=True)
        zones, sockets = self._by_zone(free), self._by_socket(free)

        def order(zone: int) -> tuple[int, ...]:
            lowest = (zones[zone] & -zones[zone]).bit_length() - 1
            socket = self.machine.socket_of[lowest]
            return (
                self._ranked(zones[zone].bit_count()),
                self._ranked(sockets[socket].bit_count()),
                zone,
            )

        listed = [self._by_holders(each_cpu(zones[zone])) for zone in sorted(zones, key=order)]
        return [self._one_a_core(cpus) for cpus in listed] if avoids_exclusive else listed

    def _free_by_socket(self, avoids_exclusive: bool) -> list[list[int]]:
        free = self._without_exclusive(avoids_exclusive, cores=True)
        by_socket = self._by_socket(free).items()
        sockets = {socket: self._by_holders(each_cpu(cpus)) for socket, cpus in by_socket}
        if avoids_exclusive:
            sockets = {socket: self._one_a_core(cpus) for socket, cpus in sockets.items()}
        order = sorted(sockets, key=lambda socket: (self._ranked(len(sockets[socket])), socket))
        return [sockets[socket] for socket in order]

    def _without_exclusive(
        self, avoids_exclusive: bool, cores: bool = False, zones: bool = False
    ) -> int:
        """Return the available CPUs without cores or zones that the exclusive policy avoids."""
        avoided = 0
        if avoids_exclusive and cores and self.request.exclusive == PCPU_LEVEL:
            for core in self.exclusive_cores:
                avoided |= self.machine.in_core[core]
        if avoids_exclusive and zones and self.request.exclusive == NUMA_NODE_LEVEL:
            for zone in self.exclusive_zones:
                avoided |= self.machine.in_zone[zone]
        return self.available & ~avoided

    def _ranked(self, count: int) -> int:
        """Return the sort key of a number of free CPUs under the strategy."""
        return count if self.request.strategy == MOST_ALLOCATED else -count

    def _by_core(self, cpus: int) -> dict[CoreId, list[int]]:
        cores: dict[CoreId, list[int]] = {}
        for cpu in each_cpu(cpus):
            cores.setdefault(self.machine.core_of[cpu], []).append(cpu)
        return cores

    def _by_zone(self, cpus: int) -> dict[int, int]:
        return {z: cpus & every for z, every in self.machine.in_zone.items() if cpus & every}

    def _by_socket(self, cpus: int) -> dict[int, int]:
        return {s: cpus & every for s, every in self.machine.in_socket.items() if cpus & every}

    def _holders_of(self, cpus: list[int]) -> int:
        return sum(self.holders.get(cpu, 0) for cpu in cpus) if self.holders else 0

    def _by_holders(self, cpus: Iterable[int]) -> list[int]:
        """Return the CPUs with the fewest holders first, then by id."""
        return sorted(cpus, key=lambda cpu: (self.holders.get(cpu, 0), cpu))

    def _one_a_core(self, cpus: list[int]) -> list[int]:
        """Return the first of the CPUs of each core."""
        firsts: dict[CoreId, int] = {}
        for cpu in cpus:
            firsts.setdefault(self.machine.core_of[cpu], cpu)
        return list(firsts.values())

    def _in_turns(self, cpus: list[int]) -> list[int]:
        """Return the CPUs one a core, then the second of each core, and so on."""
        if len(cpus) <= self.machine.cpus_per_core:
            return cpus
        turns: dict[CoreId, int] = {}
        turn_of: dict[int, int] = {}
        for cpu in cpus:
            core = self.machine.core_of[cpu]
            turn_of[cpu] = turns[core] = turns.get(core, -1) + 1
        return sorted(cpus, key=turn_of.__getitem__)


def whole_cores(machine: CpuNesting, cpus: int) -> int:
    """Return the CPUs of the set that belong to cores which are wholly in the set."""
    return _filtered(machine, cpus, lambda core: core if is_whole(machine, core) else 0)


def one_a_core(machine: CpuNesting, cpus: int) -> int:
    """Return the lowest CPU of each core in the set."""
    return _filtered(machine, cpus, lambda core: core & -core)


def is_whole(machine: CpuNesting, core: int) -> bool:
    return core.bit_count() == machine.cpus_per_core


def _filtered(machine: CpuNesting, cpus: int, part: Callable[[int], int]) -> int:
    kept = 0
    for core in machine.in_core.values():
        if cpus & core:
            kept |= part(cpus & core)
    return kept


def keeps_bind(machine: CpuNesting, cpus: int, bind: BindPolicy) -> bool:
    """Return whether a chosen set keeps a required bind policy: whole cores, or one CPU a core."""
    cores = sum(1 for core in machine.in_core.values() if cpus & core)
    size = machine.cpus_per_core if bind == FULL_PCPUS else 1
    return cores * size == cpus.bit_count()
