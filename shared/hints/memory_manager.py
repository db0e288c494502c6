"""The Memory Manager, policy Static: hints and allocations over memory and hugepages (kubelet 1.36,
memorymanager).

1. The manager books blocks: an amount of one resource anywhere on a set of zones. A block of
   several zones makes these zones a group; it is taken from the lowest zone first.

2. A zone with a block of its own never joins a group, and a group stays one until it is empty. A
   mask may be used only if none of its zones is used alone or in another group.

3. Blocks of ordinary init containers are free again when their pod runs. Until then they wait, by
   pod (`Memory.waiting`), and `later` frees them.

4. To kubelet 1.31 an allocation is not checked against paragraph 2, only its hints are
   (`Memory.unchecked`): a mask may then overlap zones that are used alone or in another group, and
   becomes the group of all its zones.

5. Without the manager's checkpoint it is open in which zones of a group memory is free, because
   that depends on blocks that have ended. Such zones are `loose`: only the sum over them is
   known. If an answer depends on it, it is decided both ways (`UndecidedStateError`).

Must not know reports (`shared.hints.memory` reads them).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from shared.domain.pod import ContainerKind
from shared.domain.report import ZonedAmount
from shared.hints.provider import PlainAmounts, RequestedAmounts, ResourceManager, Reusable
from shared.hints.splits import TooManyChoicesError, UndecidedStateError
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import (
    MAX_NODES,
    enumerate_masks,
    mask_of,
    mask_sizes,
    mask_sums,
    narrower,
    nodes_of,
)

# Open questions about a state that are decided together.
MOST_DECIDED = 6

# Bytes by resource and zone, in the order of the manager's names and zones.
Table = tuple[tuple[int, ...], ...]


class Block(NamedTuple):
    """`size` bytes of a resource anywhere on the zones of `mask`."""

    mask: int
    resource: str
    size: int


class Memory(NamedTuple):
    """The state. By zone: the mask of its group (itself if it has none), the number of blocks that
    touch it, and free bytes. `waiting` has a tuple of blocks by pod, `loose` has masks of zones
    (paragraphs 3 and 5 above). `decided` has (mask, resource, bytes, whether that is free there)
    until the state changes."""

    groups: tuple[int, ...]
    blocks: tuple[int, ...]
    free: Table
    waiting: tuple[tuple[Block, ...], ...] = ()
    loose: tuple[int, ...] = ()
    decided: tuple[tuple[int, str, int, bool], ...] = ()
    unchecked: bool = False


class TakenMemory(NamedTuple):
    """What a pod took in single zones: number of blocks by zone and bytes, without the blocks that
    its init containers hold until it runs (`inits`)."""

    blocks: tuple[int, ...]
    free: Table
    inits: tuple[Block, ...] = ()


class ReusableMemory(NamedTuple):
    """What the pod's init containers leave: bytes to reuse, as (mask, resource, bytes), and the
    blocks that they still hold."""

    reuse: tuple[tuple[int, str, int], ...] = ()
    inits: tuple[Block, ...] = ()

    def bytes_for(self, mask: int, resource: str) -> int:
        """Return the bytes that a container with this mask need not take."""
        for reusable_mask, name, size in self.reuse:
            if (reusable_mask, name) == (mask, resource):
                return size
        return 0


NOTHING = ReusableMemory()


class MemoryBlockManager(ResourceManager):
    """`allocatable` is by resource and zone, in the order of `names` and `zones`."""

    def __init__(self, zones: tuple[int, ...], names: tuple[str, ...], allocatable: Table) -> None:
        self.zones, self.names, self.allocatable = zones, names, allocatable
        self._at = {zone: position for position, zone in enumerate(zones)}
        self._rows = {name: row for row, name in enumerate(names)}
        self.capable = lru_cache(maxsize=1024)(self._capable)
        self._large = lru_cache(maxsize=1024)(self._large_enough)
        self._allowed = lru_cache(maxsize=1024)(self._allowed_masks)

    def empty(self) -> Memory:
        """Return the state in which nothing is held."""
        groups = tuple([1 << zone for zone in self.zones])
        return Memory(groups, (0,) * len(self.zones), self.allocatable)

    # Hints.

    def single(self, state: Memory, reusable: Reusable, requested: RequestedAmounts) -> int:
        """Zones that hold the request alone and are in no group; 0 if no zone ever could. Raises
        UndecidedStateError if `loose` zones leave that open."""
        if state.loose:
            masks = [hint.mask or 0 for hint in self._candidates(state, reusable, requested)]
            return sum([mask for mask in masks if not mask & (mask - 1)])
        kept, preferred = _reusable(reusable), 0
        rows = [
            (state.free[self._rows[name]], name, amount)
            for name, amount in requested
            if name in self._rows
        ]
        for position, bit in self._large(requested):
            if state.groups[position] != bit:
                continue
            for free, name, amount in rows:
                reuse = kept.bytes_for(bit, name) if kept.reuse else 0
                if free[position] + reuse < amount:
                    break
            else:
                preferred |= bit
        return preferred

    def _large_enough(self, requested: RequestedAmounts) -> tuple[tuple[int, int], ...]:
        """Return (position, bit) of the zones that hold the request when empty."""
        rows = [(self._rows.get(name, -1), amount) for name, amount in requested]
        if any(row < 0 for row, _ in rows):
            return ()
        large = []
        for position, zone in enumerate(self.zones):
            if all(self.allocatable[row][position] >= amount for row, amount in rows):
                large.append((position, 1 << zone))
        return tuple(large)

    def shows(self, state: Memory, observed: Memory) -> bool:
        """Compare groups, and free bytes by zone or by set of `loose` zones. Blocks that wait to be
        freed are not listed."""
        if state.waiting:
            return True
        loose = 0
        for mask in observed.loose:
            loose |= mask
        masks = [*observed.loose, *[1 << zone for zone in self.zones if not loose >> zone & 1]]
        return state.groups == observed.groups and all(
            self._sum(free, mask) == self._sum(shown, mask)
            for free, shown in zip(state.free, observed.free, strict=True)
            for mask in masks
        )

    def plain_amounts(self, state: Memory) -> PlainAmounts | None:
        """None if zones are in groups, or a block waits to be freed."""
        is_grouped = any(
            group != 1 << zone for zone, group in zip(self.zones, state.groups, strict=True)
        )
        if is_grouped or state.loose or state.waiting:
            return None
        return PlainAmounts(self._by_zone(state.free), self._by_zone(self.allocatable))

    def _by_zone(self, table: Table) -> dict[int, dict[str, int]]:
        return {
            zone: {name: row[position] for name, row in zip(self.names, table, strict=True)}
            for zone, position in self._at.items()
        }

    def hints(self, state: Memory, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        """An empty map if no mask holds the request: the Topology Manager reads that as no
        preference."""
        candidates = self._candidates(state, reusable, requested)
        return dict.fromkeys([name for name, _ in requested], candidates) if candidates else {}

    def _capable(self, requested: RequestedAmounts) -> tuple[tuple[int, ...], int]:
        """Return the positions of the masks that hold the request when empty, and the least size of
        such a mask."""
        positions: Iterable[int] = range(len(enumerate_masks(self.zones)))
        for name, amount in requested:
            row = self._rows.get(name, -1)
            if row < 0:
                positions = ()
                break
            sums = mask_sums(self.zones, self.allocatable[row])
            positions = [position for position in positions if sums[position] >= amount]
        capable, sizes = tuple(positions), mask_sizes(self.zones)
        return capable, min((sizes[position] for position in capable), default=len(self.zones))

    def _candidates(
        self, state: Memory, reusable: Reusable, requested: RequestedAmounts
    ) -> list[Hint]:
        if len(self.zones) > MAX_NODES:
            raise TooManyChoicesError
        kept = _reusable(reusable)
        masks, sizes = enumerate_masks(self.zones), mask_sizes(self.zones)
        capable, least = self.capable(requested)
        allowed = self._allowed(state.groups, tuple([count > 0 for count in state.blocks]))
        positions = [index for index in capable if allowed[index]]
        if state.loose:
            fitting = [
                index for index in positions if self._holds(state, masks[index], requested, kept)
            ]
            return [Hint(masks[index], sizes[index] == least) for index in fitting]
        for name, amount in requested:
            sums = mask_sums(self.zones, state.free[self._rows[name]]) if name in self._rows else []
            positions = [
                index
                for index in positions
                if sums[index] + kept.bytes_for(masks[index], name) >= amount
            ]
        return [Hint(masks[index], sizes[index] == least) for index in positions]

    def _holds(
        self, state: Memory, mask: int, requested: RequestedAmounts, kept: ReusableMemory
    ) -> bool:
        """Return True if enough is free on the zones of the mask. Raises UndecidedStateError if
        that depends on which `loose` zones have it."""
        return all(
            self._enough(state, mask, name, amount - kept.bytes_for(mask, name))
            for name, amount in requested
        )

    def _enough(self, state: Memory, mask: int, name: str, amount: int) -> bool:
        row = self._rows.get(name)
        if row is None:
            return False
        allocatable, least = self.allocatable[row], self._sum(state.free[row], mask)
        most = least
        for group in state.loose:
            if group & mask and group & ~mask:
                inside = self._sum(state.free[row], group & mask)
                free = self._sum(state.free[row], group)
                least += max(0, free - self._sum(allocatable, group & ~mask)) - inside
                most += min(free, self._sum(allocatable, group & mask)) - inside
        if least < amount <= most:
            return _decision(state, mask, name, amount)
        return least >= amount

    def _sum(self, row: Sequence[int], mask: int) -> int:
        return sum([row[position] for zone, position in self._at.items() if mask >> zone & 1])

    def _allowed_masks(self, groups: Sequence[int], is_used: Sequence[bool]) -> list[bool]:
        """Return for each mask whether none of its zones is used alone or in another group; a zone
        alone may not be in a group."""
        used, members = 0, dict[int, int]()
        for zone, group, has_blocks in zip(self.zones, groups, is_used, strict=True):
            if has_blocks:
                used |= 1 << zone
                members[group] = members.get(group, 0) | 1 << zone
        rows = zip(self.zones, groups, strict=True)
        alone = {group for zone, group in rows if group == 1 << zone}
        return [
            not mask & used & ~members.get(mask, 0) if mask & (mask - 1) else mask in alone
            for mask in enumerate_masks(self.zones)
        ]

    def _allowed_wide(self, state: Memory, mask: int) -> bool:
        rows = zip(self.zones, state.groups, state.blocks, strict=True)
        return not any(count and group != mask for zone, group, count in rows if mask >> zone & 1)

    # Allocation.

    def allocate(
        self,
        state: Memory,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Memory, Reusable]]:
        """One way only: under the hint, or under a wider mask if the hint's cannot hold it."""
        if not requested:
            return ((state, reusable),)
        if reusable is None and kind != "init" and not state.loose:
            # Without a hint, the manager takes its own best one: the lowest single zone, if any.
            zones = self.single(state, None, requested) if hint.mask is None else hint.mask
            mask = zones & -zones if hint.mask is None else zones
            remaining = self._in_one_zone(state, requested, mask) if mask else None
            if remaining is not None:
                return ((remaining, None),)
        mask = self._final_mask(state, reusable, requested, hint)
        if not mask:
            return ()
        kept = _reusable(reusable)
        blocks = [Block(mask, name, amount) for name, amount in requested]
        for block in blocks:
            state = self.booked(state, block, kept.bytes_for(block.mask, block.resource))
        return ((state, _after(kept, blocks, kind)),)

    def _in_one_zone(self, state: Memory, requested: RequestedAmounts, mask: int) -> Memory | None:
        """The usual case: the one zone of the hint has enough, and there is nothing to reuse."""
        position = self._at.get(mask.bit_length() - 1, -1)
        if mask & (mask - 1) or position < 0:
            return None
        free = list(state.free)
        for name, amount in requested:
            row = self._rows.get(name, -1)
            if row < 0 or free[row][position] < amount:
                return None
            free[row] = (
                *free[row][:position],
                free[row][position] - amount,
                *free[row][position + 1 :],
            )
        groups = (*state.groups[:position], mask, *state.groups[position + 1 :])
        blocks = (
            *state.blocks[:position],
            state.blocks[position] + len(requested),
            *state.blocks[position + 1 :],
        )
        return state._replace(groups=groups, blocks=blocks, free=tuple(free), decided=())

    def _final_mask(
        self, state: Memory, reusable: Reusable, requested: RequestedAmounts, hint: Hint
    ) -> int:
        """Return the mask to take, 0 if the kubelet rejects the container."""
        mask, preferred = hint.mask, hint.preferred
        if mask is None:
            best = _best(self._candidates(state, reusable, requested))
            if best is None or (preferred and not best.preferred):
                return 0
            mask, preferred = best.mask or 0, best.preferred
        # The kubelet does not count here what init containers left.
        if not self._holds(state, mask, requested, NOTHING):
            candidates = self._candidates(state, reusable, requested)
            wider = _best([hint for hint in candidates if (hint.mask or 0) & mask == mask])
            if wider is None or (preferred and not wider.preferred):
                return 0
            mask = wider.mask or 0
        if state.unchecked or not mask & (mask - 1) or self._allowed_wide(state, mask):
            return mask
        return 0

    def booked(self, state: Memory, block: Block, reused: int) -> Memory:
        """Return the state with the block booked, of which `reused` bytes are held already."""
        rest, row = max(block.size - reused, 0), self._rows[block.resource]
        groups, blocks, free = list(state.groups), list(state.blocks), list(state.free[row])
        for position in self._in_order(state, block.mask):
            taken = min(rest, max(0, free[position]))
            rest -= taken
            free[position] -= taken
        for zone in nodes_of(block.mask):
            position = self._at[zone]
            groups[position], blocks[position] = block.mask, blocks[position] + 1
        rows = _with_row(state.free, row, free)
        return state._replace(groups=tuple(groups), blocks=tuple(blocks), free=rows, decided=())

    def _give_back(self, state: Memory, block: Block) -> Memory:
        """Zones give back in order of id, each as much as it can, whichever block took it there."""
        rest, row = block.size, self._rows[block.resource]
        groups, blocks, free = list(state.groups), list(state.blocks), list(state.free[row])
        for position in self._in_order(state, block.mask):
            given = min(rest, max(0, self.allocatable[row][position] - free[position]))
            rest -= given
            free[position] += given
        for zone in nodes_of(block.mask):
            position = self._at[zone]
            blocks[position] = max(0, blocks[position] - 1)
            groups[position] = groups[position] if blocks[position] else 1 << zone
        rows = _with_row(state.free, row, free)
        return state._replace(groups=tuple(groups), blocks=tuple(blocks), free=rows, decided=())

    def _in_order(self, state: Memory, mask: int) -> list[int]:
        """Positions of the mask's zones, lowest first, then of zones that are loose together with
        one of them."""
        loose = 0
        for group in state.loose:
            loose |= group if group & mask else 0
        return [self._at[zone] for zone in (*nodes_of(mask), *nodes_of(loose & ~mask))]

    def release(self, state: Memory, held: Sequence[ZonedAmount]) -> Memory:
        for block in self.blocks_of(held):
            state = self._give_back(state, block)
        return state

    def hold(self, state: Memory, held: Sequence[ZonedAmount]) -> Memory:
        for block in self.blocks_of(held):
            state = self.booked(state, block, 0)
        return state

    def blocks_of(self, held: Sequence[ZonedAmount]) -> list[Block]:
        """Return the memory blocks in `held`, as far as their zones exist."""
        zones = set(self.zones)
        return [
            Block(mask_of(item.zones), item.resource, item.amount)
            for item in held
            if item.resource in self._rows and item.zones and zones.issuperset(item.zones)
        ]

    def taken(self, before: Memory, after: Memory) -> TakenMemory:
        """Raises TooManyChoicesError for memory over several zones: its share by zone is open."""
        inits: tuple[Block, ...] = ()
        more = list(after.waiting)
        for blocks in before.waiting:
            more.remove(blocks)
        if more:
            inits = more[0]
        rest = after
        for block in inits:
            rest = self._give_back(rest, block)
        for position, zone in enumerate(self.zones):
            if (
                before.blocks[position] != after.blocks[position]
                and after.groups[position] != 1 << zone
            ):
                raise TooManyChoicesError
        free = tuple(
            [_minus(row, remaining) for row, remaining in zip(before.free, rest.free, strict=True)]
        )
        return TakenMemory(_minus(rest.blocks, before.blocks), free, inits)

    def zones_taken(
        self, before: Memory, after: Memory, left: Reusable, left_after: Reusable
    ) -> int | None:
        """All zones of a block, because its memory may come from any of them."""
        triples = zip(self.zones, before.blocks, after.blocks, strict=True)
        return sum([1 << zone for zone, earlier, later in triples if later > earlier])

    def given_back(self, state: Memory, taken: TakenMemory) -> Memory:
        """If the pod ran, the blocks of its init containers are free already."""
        if taken.inits and taken.inits in state.waiting:
            state = self._stop_waiting(state, state.waiting.index(taken.inits))
        blocks = _minus(state.blocks, taken.blocks)
        groups = []
        for group, count, zone in zip(state.groups, blocks, self.zones, strict=True):
            groups.append(group if count else 1 << zone)
        free = []
        for row, amounts in zip(state.free, taken.free, strict=True):
            free.append(_minus(row, [-amount for amount in amounts]))
        return state._replace(groups=tuple(groups), blocks=blocks, free=tuple(free), decided=())

    def after_admission(self, state: Memory, reusable: Reusable) -> Memory:
        """The blocks of init containers wait until their pod runs."""
        if not isinstance(reusable, ReusableMemory) or not reusable.inits:
            return state
        return state._replace(waiting=tuple(sorted((*state.waiting, reusable.inits))))

    def later(self, state: Memory) -> Sequence[Memory]:
        """One of the waiting pods runs; pods with equal blocks lead to the same state."""
        return [
            self._stop_waiting(state, index)
            for index, blocks in enumerate(state.waiting)
            if not index or state.waiting[index - 1] != blocks
        ]

    def _stop_waiting(self, state: Memory, index: int) -> Memory:
        blocks = state.waiting[index]
        state = state._replace(waiting=(*state.waiting[:index], *state.waiting[index + 1 :]))
        for block in blocks:
            state = self._give_back(state, block)
        return state


def _decision(state: Memory, mask: int, name: str, amount: int) -> bool:
    """Return what was decided. Raises UndecidedStateError if it was not."""
    for decided_mask, resource, size, is_free in state.decided:
        if (decided_mask, resource, size) == (mask, name, amount):
            return is_free
    if len(state.decided) == MOST_DECIDED:
        raise TooManyChoicesError
    choices = [
        state._replace(decided=(*state.decided, (mask, name, amount, is_free)))
        for is_free in (True, False)
    ]
    raise UndecidedStateError(state, choices)


def _reusable(reusable: Reusable) -> ReusableMemory:
    return reusable if isinstance(reusable, ReusableMemory) else NOTHING


def _with_row(rows: Table, index: int, row: Sequence[int]) -> Table:
    return (*rows[:index], tuple(row), *rows[index + 1 :])


def _minus(amounts: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple([amount - subtrahend for amount, subtrahend in zip(amounts, others, strict=True)])


def _best(hints: list[Hint]) -> Hint | None:
    """Preferred before not preferred, then the narrowest; the first of equal ones."""
    best: Hint | None = None
    for hint in hints:
        if (
            best is None
            or hint.preferred > best.preferred
            or (hint.preferred == best.preferred and narrower(hint.mask or 0, best.mask or 0))
        ):
            best = hint
    return best


def _after(kept: ReusableMemory, blocks: Sequence[Block], kind: ContainerKind) -> ReusableMemory:
    """Return the reusable bytes, and the blocks that earlier init containers still hold, after a
    container took these blocks."""
    inits = list(kept.inits)
    for block in blocks:
        rest = block.size
        for index, init in enumerate(inits):
            if (init.resource, init.mask) == (block.resource, block.mask):
                reused = min(init.size, rest)
                rest -= reused
                inits[index] = init._replace(size=init.size - reused)
    reuse = {(mask, name): size for mask, name, size in kept.reuse}
    for block in blocks:
        key = block.mask, block.resource
        size = reuse.get(key, 0)
        if kind == "init":
            reuse[key] = max(size, block.size)
        elif size:
            reuse[key] = max(size - block.size, 0)
    if kind == "init":
        inits += blocks
    reusable = tuple(sorted((mask, name, size) for (mask, name), size in reuse.items() if size))
    return ReusableMemory(reusable, tuple(inits))
