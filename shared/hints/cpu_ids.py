"""The CPU Manager, static policy, by CPU ids: exact where the report tells the machine's CPUs and
who holds which.

The kubelet model's own functions over sets of CPUs (kubelet 1.36, cpumanager): whole cores, packing
over several zones, sockets and caches come out as they do on the node. A state is the set of free
CPUs, without the reserved ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from shared.domain.cpus import CpuLayout, parse_runs
from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU
from shared.hints.provider import NO_OPINION, RequestedAmounts, Reusable
from shared.kubelet.cpu_manager import CpuManager, hints, take, take_aligned, too_few_whole_cores
from shared.kubelet.cpu_options import parse_cpu_options
from shared.kubelet.cpu_policy import STATIC
from shared.kubelet.cpuset import each_cpu, parse_cpus
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import Cpu, CpuTopology, cpu_topology

MILLI = 1000


class CpuIdManager:
    """`pooled`: under Topology Manager policy none nobody asks for hints."""

    def __init__(self, manager: CpuManager, pooled: bool) -> None:
        self.manager, self.pooled = manager, pooled
        self._masks = [(1 << zone, cpus) for zone, cpus in manager.topology.numas]
        self._largest = max(cpus.bit_count() for _, cpus in self._masks)

    def single(self, state: int, own: Reusable, asked: RequestedAmounts) -> int:
        """Zones with enough free beside what must be reused; none when no zone could ever hold it
        alone.
        """
        count = _count(asked)
        if not count or self.pooled:
            return NO_OPINION
        if count > self._largest:
            return 0
        left = own if isinstance(own, int) else 0
        short, found = count - left.bit_count(), 0
        for bit, cpus in self._masks:
            if (state & cpus).bit_count() >= short and not left & ~cpus:
                found |= bit
        return found

    def hints(self, state: int, own: Reusable, asked: RequestedAmounts) -> Hints:
        """As the kubelet makes them."""
        count = _count(asked)
        return (
            {CPU: hints(self.manager, state, own if isinstance(own, int) else 0, count)}
            if count
            else None
        )

    def allocate(
        self, state: int, own: Reusable, asked: RequestedAmounts, kind: ContainerKind, hint: Hint
    ) -> Sequence[tuple[int, Reusable]]:
        """One way only: the kubelet's choice of CPUs is determined."""
        count = _count(asked)
        if not count:
            return ((state, own),)
        if too_few_whole_cores(self.manager, state | self.manager.reserved, count):
            return ()
        left = own if isinstance(own, int) else 0
        taken = take_aligned(self.manager, state | left, count, hint.mask)
        if isinstance(taken, str):
            return ()
        kept = left | taken if kind == "init" else left & ~taken
        return ((state & ~taken, kept or None),)

    def release(self, state: int, held: Sequence[ZonedAmount]) -> int:
        """The CPUs of an ended pod are free, the reserved ones never."""
        for item in held:
            state |= ids_of(item.ids) if item.resource == CPU else 0
        return state & ~self.manager.reserved

    def hold(self, state: int, held: Sequence[ZonedAmount]) -> int:
        """Fewer free: which ones, where no ids are told, nobody knows; the kubelet's own order is
        taken.
        """
        for item in held:
            if item.resource == CPU:
                mask = self.manager.topology.numa_mask.get(item.zones[0], 0) if item.zones else 0
                taken = take(
                    self.manager,
                    state & mask,
                    min(item.amount // MILLI, (state & mask).bit_count()),
                )
                state &= ~taken if isinstance(taken, int) else -1
        return state

    def after_admission(self, state: int, own: Reusable) -> int:
        """What init containers keep stays with the pod."""
        return state

    def taken(self, before: int, after: int) -> int:
        """The very CPUs, what init containers keep included."""
        return before & ~after

    def given_back(self, state: int, taken: int) -> int:
        """They are free."""
        return state | taken

    def later(self, state: int) -> Sequence[int]:
        """Nothing happens by itself."""
        return ()

    def by_zone(self, state: int) -> tuple[int, ...]:
        """Free CPUs of each zone that has CPUs, ascending."""
        return tuple([(state & cpus).bit_count() for _, cpus in self._masks])


def _count(asked: RequestedAmounts) -> int:
    return asked[0][1] // MILLI if asked else 0


def by_ids(
    report: Report, placements: Sequence[Placement], pooled: bool
) -> tuple[CpuIdManager, int] | None:
    """The book and the free CPUs; None where the report does not tell layout and holders by id."""
    layout = report.cpus
    if layout is None or not (layout.zones and layout.sockets and layout.cores):
        return None
    options = tuple(sorted(report.options.items()))
    book = _book(
        layout,
        report.reserved_cpus,
        options,
        tuple(sorted(zone.id for zone in report.zones)),
        pooled,
    )
    if book is None:
        return None
    taken = book.manager.reserved
    for placement in placements:
        for item in placement.held:
            if item.resource == CPU:
                if not item.ids:
                    return None
                taken |= ids_of(item.ids)
    return book, book.manager.topology.every & ~taken


@lru_cache(maxsize=1 << 16)
def ids_of(text: str) -> int:
    """The set of a Linux list."""
    return parse_cpus(text)


@lru_cache(maxsize=1024)
def _book(
    layout: CpuLayout,
    reserved: str,
    options: tuple[tuple[str, str], ...],
    zones: tuple[int, ...],
    pooled: bool,
) -> CpuIdManager | None:
    """Nodes of one kind share their book; None for a layout that does not fit the zones."""
    known = {
        name: value
        for name, value in options
        if not isinstance(parse_cpu_options({name: value}), ConfigError)
    }
    parsed = parse_cpu_options(known)
    topology = topology_of(layout)
    if (
        topology is None
        or isinstance(parsed, ConfigError)
        or not set(topology.numa_nodes) <= set(zones)
    ):
        return None
    kept = parse_cpus(reserved) & topology.every
    cores = sum(cpus for _, cpus in topology.cores if cpus & kept)
    return CpuIdManager(CpuManager(STATIC, topology, parsed, kept, cores), pooled)


@lru_cache(maxsize=1024)
def topology_of(layout: CpuLayout) -> CpuTopology | None:
    """The machine's CPUs as the kubelet sees them; None for columns that do not fit each other.
    Without caches a zone is one.
    """
    try:
        ids = tuple(each_cpu(parse_cpus(layout.ids)))
        zones, sockets, cores = (
            parse_runs(column) for column in (layout.zones, layout.sockets, layout.cores)
        )
        caches = parse_runs(layout.caches) if layout.caches else zones
        rows = zip(ids, cores, sockets, zones, caches, strict=True)
        return cpu_topology([Cpu(*row) for row in rows])
    except ValueError:
        return None
