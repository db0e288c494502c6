"""The Memory Manager as a hint provider: memory and hugepages together, as a report tells of them.
What hints and allocations do is the book's (`memory_manager.py`); here it is opened with what is known
of a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

from shared.domain.report import Placement, Report, ZonedAmount, ZoneResource
from shared.domain.resources import is_memory
from shared.hints.memory_manager import Memory, MemoryManager
from shared.hints.provider import Observed
from shared.hints.splits import MOST, TooManyChoicesError
from shared.kubelet.masks import mask_of

SEVERAL_GROUPS = "memory groups"


class MemoryHints:
    """Memory and hugepages together."""

    name = "memory"
    by_amounts = True

    def owns(self, resource: str) -> bool:
        """memory, hugepages-*."""
        return is_memory(resource)

    def zones(self, report: Report, resource: str) -> None:
        """The report's amounts say it."""

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """Free is the Memory Manager's own figure where its checkpoint was read, else what is
        allocatable less the listed blocks, and less what the report counts as used beyond them.
        What ended pods still hold is free at the next admission."""
        zones = tuple(sorted(zone.id for zone in report.zones))
        names = tuple(
            sorted({name for zone in report.zones for name in zone.resources if is_memory(name)})
        )
        tables = {zone.id: zone.resources for zone in report.zones}
        allocatable = tuple(
            [tuple([_table(tables[zone], name).allocatable for zone in zones]) for name in names]
        )
        manager = _book(zones, names, allocatable)
        held = [
            item for placement in placements for item in placement.held if is_memory(item.resource)
        ]
        state = manager.hold(
            manager.empty(), sorted(held, key=lambda item: (item.zones, item.resource, item.amount))
        )
        if "memory" in report.checkpoints and any(zone.free for zone in report.zones):
            return Observed(manager, (_by_checkpoint(manager, state, report),))
        unexplained = [
            [_unexplained(_table(tables[zone], name), zone, name, held) for zone in zones]
            for name in names
        ]
        free = [
            [a - b for a, b in zip(row, more, strict=True)]
            for row, more in zip(state.free, unexplained, strict=True)
        ]
        state = state._replace(free=tuple([tuple(row) for row in free]), loose=_loose(held))
        shared = {zone for item in held if len(item.zones) > 1 for zone in item.zones}
        return Observed(
            manager,
            _ways_to_group(state, zones, shared),
            frozenset({SEVERAL_GROUPS}) if shared else frozenset(),
        )


def _ways_to_group(state: Memory, zones: tuple[int, ...], shared: set[int]) -> tuple[Memory, ...]:
    """A zone of a group stands alone in the kubelet's book once a block of its own was put there,
    even if that one is gone.
    """
    if 1 << len(shared) > MOST:
        raise TooManyChoicesError
    ways = [
        ((group, 1 << zone) if zone in shared else (group,))
        for zone, group in zip(zones, state.groups, strict=True)
    ]
    return tuple([state._replace(groups=groups) for groups in product(*ways)])


def _loose(held: Sequence[ZonedAmount]) -> tuple[int, ...]:
    """Zones over which blocks lie together: what is free there went lowest zone first, from what
    was free then.
    """
    found: list[int] = []
    for mask in dict.fromkeys(mask_of(item.zones) for item in held if len(item.zones) > 1):
        joined, apart = mask, []
        for each in found:
            if each & mask:
                joined |= each
            else:
                apart.append(each)
        found = [*apart, joined]
    return tuple(sorted(found))


def _by_checkpoint(manager: MemoryManager, state: Memory, report: Report) -> Memory:
    """With the manager's own figures. Init containers' blocks wait for their pod to run; those of
    pods that no listing names are dropped when the manager is next asked."""
    inits = [manager.blocks_of(hidden.held) for hidden in report.hidden if hidden.pod]
    stale = [item for hidden in report.hidden if not hidden.pod for item in hidden.held]
    for blocks in inits:
        for block in blocks:
            state = manager.booked(state, block, 0)
    state = manager.hold(state, stale)
    ordered = sorted(report.zones, key=lambda zone: zone.id)
    free = tuple([tuple([zone.free.get(name, 0) for zone in ordered]) for name in manager.names])
    groups = tuple([mask_of(zone.group) or 1 << zone.id for zone in ordered])
    waiting = tuple(sorted(tuple(blocks) for blocks in inits if blocks))
    return manager.release(state._replace(free=free, groups=groups, waiting=waiting), stale)


_NO_TABLE = ZoneResource(0, 0, 0)


def _table(resources: Mapping[str, ZoneResource], name: str) -> ZoneResource:
    return resources.get(name, _NO_TABLE)


def _unexplained(table: ZoneResource, zone: int, name: str, held: Sequence[ZonedAmount]) -> int:
    """Bytes that the report counts as used in the zone although it lists no holder."""
    listed = sum([item.amount for item in held if item.resource == name and zone in item.zones])
    return max(0, max(0, table.allocatable - listed) - table.available)


@lru_cache(maxsize=1024)
def _book(
    zones: tuple[int, ...], names: tuple[str, ...], allocatable: tuple[tuple[int, ...], ...]
) -> MemoryManager:
    """Nodes of one kind share their book."""
    return MemoryManager(zones, names, allocatable)
