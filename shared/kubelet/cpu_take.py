"""The CPUs that a request gets when packed: whole upper units first, then lower ones,
emptiest-but-sufficient first.

Every level is sorted by (free CPUs ascending, id ascending) inside its sorted upper level. Source:
kubelet 1.36, cm/cpumanager/cpu_assignment.go. This module does not know pods, hints or the shared
pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shared.kubelet.cpuset import each_cpu
from shared.kubelet.topology import Child, CpuTopology, Group


def too_few(requested: int, available: int) -> str:
    """Return the kubelet's error text for a request that exceeds the free CPUs."""
    return (
        f"not enough cpus available to satisfy request: requested={requested}, "
        f"available={available}"
    )


def take_packed(
    topology: CpuTopology,
    available: int,
    count: int,
    *,
    spread_cores: bool = False,
    align_uncore: bool = False,
    rounds_up: bool = True,
) -> int | str:
    """Return `count` CPUs of the set `available`, or the kubelet's error text. `rounds_up`: see
    `KubeletRules.uncore_rounds_up`.
    """
    if count <= 0:
        return 0
    if available.bit_count() < count:
        return too_few(count, available.bit_count())
    take = _Taking(topology, available, count)
    take.whole_upper_units()
    if align_uncore:
        take.uncore_caches(rounds_up)
    if take.need and not spread_cores:
        take.whole_cores()
    if take.need:
        take.single_cpus(spread_cores)
    return take.taken if not take.need else "failed to allocate cpus"


def numa_order(topology: CpuTopology, free: int) -> list[int]:
    """Return the ids of the NUMA nodes with free CPUs, in the order in which they are tried."""
    return [numa for _, numa, _ in _numas(topology, free)]


def _by_free(groups: Iterable[Group], free: int) -> list[tuple[int, int, int]]:
    return sorted(
        [((free & cpus).bit_count(), group, cpus) for group, cpus in groups if free & cpus]
    )


def _children(groups: Iterable[Child], free: int) -> list[tuple[int, int, int]]:
    return sorted(
        [
            ((free & cpus).bit_count(), group, cpus)
            for group, cpus, inside in groups
            if free & inside
        ]
    )


def _numas(topology: CpuTopology, free: int) -> list[tuple[int, int, int]]:
    if not topology.sockets_first:
        return _by_free(topology.numas, free)
    sockets = _by_free(topology.sockets, free)
    return [
        node
        for _, socket, _ in sockets
        for node in _children(topology.numas_in_socket[socket], free)
    ]


def _sockets(topology: CpuTopology, free: int) -> list[tuple[int, int, int]]:
    if topology.sockets_first:
        return _by_free(topology.sockets, free)
    numas = _by_free(topology.numas, free)
    return [
        socket for _, numa, _ in numas for socket in _children(topology.sockets_in_numa[numa], free)
    ]


def _cores(topology: CpuTopology, free: int) -> Iterator[tuple[int, int, int]]:
    """Yield lazily, because most requests need only the first few. `free` is the set at the start
    of the walk.
    """
    if topology.sockets_first:
        uppers, nested = _numas(topology, free), topology.cores_in_numa
    else:
        uppers, nested = _sockets(topology, free), topology.cores_in_socket
    for _, upper, _ in uppers:
        yield from _children(nested[upper], free)


def _uncores(topology: CpuTopology, free: int) -> list[tuple[int, int, int]]:
    numas = _numas(topology, free)
    return [
        cache for _, numa, _ in numas for cache in _children(topology.uncores_in_numa[numa], free)
    ]


class _Taking:
    """A request in progress: CPUs still free, still needed, already taken (the kubelet's
    cpuAccumulator).
    """

    def __init__(self, topology: CpuTopology, free: int, need: int) -> None:
        self.topology, self.free, self.need, self.taken = topology, free, need, 0

    def _take(self, cpus: int) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    def _take_fitting(self, units: Iterable[int]) -> None:
        for cpus in units:
            if self.need >= cpus.bit_count():
                self._take(cpus)

    def whole_upper_units(self) -> None:
        """Take whole NUMA nodes and sockets, the upper level of this machine's hierarchy first."""
        if self.topology.sockets_first:
            self._whole_sockets()
            self._whole_numas()
        else:
            self._whole_numas()
            self._whole_sockets()

    def _whole_numas(self) -> None:
        if self.need >= self.topology.smallest_numa:
            numas = _numas(self.topology, self.free)
            self._take_fitting([cpus for count, _, cpus in numas if count == cpus.bit_count()])

    def _whole_sockets(self) -> None:
        """Take whole sockets. A socket counts as whole by the machine's average size, as in the
        kubelet.
        """
        if self.need >= self.topology.smallest_socket:
            sockets = _sockets(self.topology, self.free)
            self._take_fitting(
                [cpus for count, _, cpus in sockets if count == self.topology.cpus_per_socket]
            )

    def uncore_caches(self, rounds_up: bool) -> None:
        """Take whole caches while at least an average cache is needed, else one cache that fits the
        rest exactly.
        """
        for _, cache, _ in _uncores(self.topology, self.free):
            if not self.need:
                return
            if self.need >= self.topology.cpus_per_uncore:
                caches = _uncores(self.topology, self.free)
                self._take_fitting([cpus for count, _, cpus in caches if count == cpus.bit_count()])
            if self.need:
                self._partial_uncore(cache, rounds_up)

    def _partial_uncore(self, cache: int, rounds_up: bool) -> None:
        per_core = self.topology.cpus_per_core
        wanted = -(-self.need // per_core) if rounds_up else self.need // per_core
        usable = [
            cpus for _, cpus, inside in self.topology.cores_in_uncore[cache] if self.free & inside
        ]
        cpus = 0
        for core in usable[:wanted]:
            cpus |= core & self.free
        if self.need % 2 and per_core > 1 and cpus.bit_count() > self.need:
            cpus ^= 1 << cpus.bit_length() - 1
        if cpus.bit_count() == self.need:
            self._take(cpus)

    def whole_cores(self) -> None:
        """Take whole cores. A core counts as whole by the machine's average threads per core, as in
        the kubelet.
        """
        whole = self.topology.cpus_per_core
        for count, _, cpus in _cores(self.topology, self.free):
            if not self.need:
                return
            if count == whole and self.need >= cpus.bit_count():
                self._take(cpus)

    def single_cpus(self, by_socket: bool) -> None:
        """Take single CPUs, core by core; socket by socket in CPU order under
        distribute-cpus-across-cores.
        """
        groups = (
            _sockets(self.topology, self.free) if by_socket else _cores(self.topology, self.free)
        )
        for _, _, cpus in groups:
            for cpu in each_cpu(cpus & self.free):
                if not self.need:
                    return
                self._take(1 << cpu)
