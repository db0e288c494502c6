"""The Memory Manager as a hint provider: from a report to the states of `memory_manager`.

1. If the report has the manager's checkpoint, its own figures of free memory and groups are
   exact.

2. Otherwise free memory is the allocatable amount less the listed blocks, and less the amount
   that the report counts as used beyond them. A zone of a group is alone again in the kubelet's
   state once a block of its own was put there, even if that block has ended: each zone of a group
   may be alone or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import ClassVar

from shared.domain.report import Placement, Report, ZonedAmount, ZoneResource
from shared.domain.resources import is_memory
from shared.hints.memory_manager import Memory, MemoryBlockManager, Table
from shared.hints.provider import HintProvider, Observed
from shared.hints.splits import MOST, TooManyChoicesError
from shared.kubelet.masks import mask_of

# Why a state is open: see paragraph 2 above.
SEVERAL_GROUPS = "memory groups"


class MemoryHints(HintProvider, frozen=True):
    """Memory and hugepages together."""

    name: ClassVar[str] = "memory"
    by_amounts: ClassVar[bool] = True

    def owns(self, resource: str) -> bool:
        return is_memory(resource)

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """Return the states. Memory that stale entries of the checkpoint hold is free at the next
        admission."""
        tables = {zone.id: zone.resources for zone in report.zones}
        zones = tuple(sorted(tables))
        names = tuple(
            sorted({name for table in tables.values() for name in table if is_memory(name)})
        )
        allocatable = tuple(
            [tuple([_amounts(tables[zone], name).allocatable for zone in zones]) for name in names]
        )
        manager = _manager(zones, names, allocatable)
        blocks = [
            item for placement in placements for item in placement.held if is_memory(item.resource)
        ]
        ordered = sorted(blocks, key=lambda item: (item.zones, item.resource, item.amount))
        state = manager.hold(manager.empty(), ordered)
        if "memory" in report.checkpoints and any(zone.free for zone in report.zones):
            return Observed(manager, (_by_checkpoint(manager, state, report),))
        free = []
        for name, row in zip(names, state.free, strict=True):
            used = [
                _unexplained(_amounts(tables[zone], name), zone, name, blocks) for zone in zones
            ]
            free.append(tuple([unlisted - more for unlisted, more in zip(row, used, strict=True)]))
        state = state._replace(free=tuple(free), loose=_loose(blocks))
        shared = {zone for item in blocks if len(item.zones) > 1 for zone in item.zones}
        bounds = frozenset({SEVERAL_GROUPS}) if shared else frozenset[str]()
        masks = sorted({mask_of(item.zones) for item in blocks if len(item.zones) > 1})
        return Observed(manager, _ways_to_group(state, zones, masks), bounds)


def _ways_to_group(
    state: Memory, zones: tuple[int, ...], masks: Sequence[int]
) -> tuple[Memory, ...]:
    """Return every state in which each zone of the `masks` is in one of them, or alone. A zone may
    be in several masks only up to kubelet 1.31."""
    ways = []
    for zone, group in zip(zones, state.groups, strict=True):
        groups = [mask for mask in masks if mask >> zone & 1]
        ways.append((*groups, 1 << zone) if groups else (group,))
    if prod(map(len, ways)) > MOST:
        raise TooManyChoicesError
    return tuple([state._replace(groups=groups) for groups in product(*ways)])


def _loose(held: Sequence[ZonedAmount]) -> tuple[int, ...]:
    """Return masks of zones that share blocks. The free bytes of each of these zones depend on the
    order in which blocks were booked."""
    masks: list[int] = []
    for mask in dict.fromkeys(mask_of(item.zones) for item in held if len(item.zones) > 1):
        joined, separate = mask, []
        for earlier in masks:
            if earlier & mask:
                joined |= earlier
            else:
                separate.append(earlier)
        masks = [*separate, joined]
    return tuple(sorted(masks))


def _by_checkpoint(manager: MemoryBlockManager, state: Memory, report: Report) -> Memory:
    """Return the state by the manager's own figures. Blocks of init containers are free once their
    pod runs. The kubelet drops blocks of pods that no listing names at its next admission."""
    inits = [manager.blocks_of(hidden.held) for hidden in report.hidden if hidden.pod]
    stale = [item for hidden in report.hidden if not hidden.pod for item in hidden.held]
    for blocks in inits:
        for block in blocks:
            state = manager.booked(state, block, 0)
    state = manager.hold(state, stale)
    zones = sorted(report.zones, key=lambda zone: zone.id)
    free = tuple([tuple([zone.free.get(name, 0) for zone in zones]) for name in manager.names])
    groups = tuple([mask_of(zone.group) or 1 << zone.id for zone in zones])
    waiting = tuple(sorted(tuple(blocks) for blocks in inits if blocks))
    return manager.release(state._replace(free=free, groups=groups, waiting=waiting), stale)


_NO_AMOUNTS = ZoneResource(0, 0, 0)


def _amounts(resources: Mapping[str, ZoneResource], name: str) -> ZoneResource:
    return resources.get(name, _NO_AMOUNTS)


def _unexplained(amounts: ZoneResource, zone: int, name: str, held: Sequence[ZonedAmount]) -> int:
    """Return the bytes that the report counts as used in the zone although it lists no holder."""
    listed = sum([item.amount for item in held if item.resource == name and zone in item.zones])
    return max(0, max(0, amounts.allocatable - listed) - amounts.available)


@lru_cache(maxsize=1024)
def _manager(
    zones: tuple[int, ...], names: tuple[str, ...], allocatable: Table
) -> MemoryBlockManager:
    """Nodes of one kind share their manager."""
    return MemoryBlockManager(zones, names, allocatable)
