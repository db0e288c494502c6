"""The CPU Manager, static policy, by CPU ids: exact if the report has the machine's layout and
lists the CPUs of each pod.

A state is the set of free CPUs as a bit set, without the reserved ones. The functions are those of
the kubelet model (kubelet 1.36, cpumanager), so that whole cores and packing over several zones,
sockets and caches come out as on the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from shared.domain.cpus import CpuLayout, parse_runs
from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU
from shared.hints.provider import NO_OPINION, RequestedAmounts, ResourceManager, Reusable
from shared.kubelet.cpu_manager import CpuManager, hints, take, take_aligned, too_few_whole_cores
from shared.kubelet.cpu_options import parse_cpu_options
from shared.kubelet.cpu_policy import STATIC
from shared.kubelet.cpuset import each_cpu, parse_cpus
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import Cpu, CpuTopology, cpu_topology

# CPUs are requested in thousandths; exclusive ones are whole.
MILLI = 1000


def cpus_requested(requested: RequestedAmounts) -> int:
    """Return how many whole CPUs a container asks for."""
    return requested[0][1] // MILLI if requested else 0


class CpuIdManager(ResourceManager):
    """`pooled` means Topology Manager policy none, which asks for no hints."""

    def __init__(self, manager: CpuManager, pooled: bool) -> None:
        self.manager, self.pooled = manager, pooled
        self._masks = [(1 << zone, cpus) for zone, cpus in manager.topology.numas]
        self._largest = max(cpus.bit_count() for _, cpus in self._masks)

    def single(self, state: int, reusable: Reusable, requested: RequestedAmounts) -> int:
        """Return the zones for the request, 0 if no zone could ever hold it alone: wider masks are
        then preferred."""
        count = cpus_requested(requested)
        if not count or self.pooled:
            return NO_OPINION
        if count > self._largest:
            return 0
        kept = _cpus(reusable)
        short, preferred = count - kept.bit_count(), 0
        for bit, cpus in self._masks:
            if (state & cpus).bit_count() >= short and not kept & ~cpus:
                preferred |= bit
        return preferred

    def hints(self, state: int, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        count = cpus_requested(requested)
        return {CPU: hints(self.manager, state, _cpus(reusable), count)} if count else None

    def allocate(
        self,
        state: int,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[int, Reusable]]:
        """Allocate in the only way: the kubelet's choice of CPUs is deterministic."""
        count = cpus_requested(requested)
        if not count:
            return ((state, reusable),)
        if too_few_whole_cores(self.manager, state | self.manager.reserved, count):
            return ()
        kept = _cpus(reusable)
        taken = take_aligned(self.manager, state | kept, count, hint.mask)
        if isinstance(taken, str):
            return ()
        kept = kept | taken if kind == "init" else kept & ~taken
        return ((state & ~taken, kept or None),)

    def release(self, state: int, held: Sequence[ZonedAmount]) -> int:
        for item in held:
            state |= ids_of(item.ids) if item.resource == CPU else 0
        return state & ~self.manager.reserved

    def hold(self, state: int, held: Sequence[ZonedAmount]) -> int:
        """Take CPUs of which only the amount is known: the kubelet's own order is assumed."""
        for item in held:
            if item.resource != CPU:
                continue
            zone = self.manager.topology.numa_mask.get(item.zones[0], 0) if item.zones else 0
            free = state & zone
            taken = take(self.manager, free, min(item.amount // MILLI, free.bit_count()))
            state &= ~taken if isinstance(taken, int) else -1
        return state

    def taken(self, before: int, after: int) -> int:
        """Return the ids of taken CPUs, including those that init containers keep for the pod's
        life."""
        return before & ~after

    def zones_taken(
        self, before: int, after: int, left: Reusable, left_after: Reusable
    ) -> int | None:
        taken = before & ~after | _cpus(left) & ~_cpus(left_after)
        return sum([bit for bit, cpus in self._masks if taken & cpus])

    def given_back(self, state: int, taken: int) -> int:
        return state | taken


def _cpus(reusable: Reusable) -> int:
    return reusable if isinstance(reusable, int) else 0


def by_ids(
    report: Report, placements: Sequence[Placement], pooled: bool
) -> tuple[CpuIdManager, int] | None:
    """Return the manager and the free CPUs, None if the report lacks the layout or an id."""
    layout = report.cpus
    if layout is None or not (layout.zones and layout.sockets and layout.cores):
        return None
    options = tuple(sorted(report.options.items()))
    zones = tuple(sorted(zone.id for zone in report.zones))
    manager = _manager(layout, report.reserved_cpus, options, zones, pooled)
    if manager is None:
        return None
    taken = manager.manager.reserved
    for placement in placements:
        for item in placement.held:
            if item.resource == CPU:
                if not item.ids:
                    return None
                taken |= ids_of(item.ids)
    return manager, manager.manager.topology.every & ~taken


@lru_cache(maxsize=1 << 16)
def ids_of(text: str) -> int:
    """Return the set of a Linux list (`0-3,8`)."""
    return parse_cpus(text)


@lru_cache(maxsize=1024)
def _manager(
    layout: CpuLayout,
    reserved: str,
    options: tuple[tuple[str, str], ...],
    zones: tuple[int, ...],
    pooled: bool,
) -> CpuIdManager | None:
    """Nodes of one kind share their manager. None for a layout that does not fit the zones."""
    supported = {
        name: value
        for name, value in options
        if not isinstance(parse_cpu_options({name: value}, alpha=True), ConfigError)
    }
    parsed = parse_cpu_options(supported, alpha=True)
    topology = topology_of(layout)
    if topology is None or isinstance(parsed, ConfigError):
        return None
    if not set(topology.numa_nodes) <= set(zones):
        return None
    reserved_cpus = parse_cpus(reserved) & topology.every
    cores = sum(cpus for _, cpus in topology.cores if cpus & reserved_cpus)
    return CpuIdManager(CpuManager(STATIC, topology, parsed, reserved_cpus, cores), pooled)


@lru_cache(maxsize=1024)
def topology_of(layout: CpuLayout) -> CpuTopology | None:
    """Return the machine's CPUs as the kubelet sees them, None for columns of different lengths.
    Without caches, a zone counts as one cache."""
    try:
        ids = tuple(each_cpu(parse_cpus(layout.ids)))
        columns = (layout.zones, layout.sockets, layout.cores)
        zones, sockets, cores = (parse_runs(column) for column in columns)
        caches = parse_runs(layout.caches) if layout.caches else zones
        rows = zip(ids, cores, sockets, zones, caches, strict=True)
        return cpu_topology([Cpu(*row) for row in rows])
    except ValueError:
        return None
