"""The kubelet's book of memory: what is free in each zone, which zones stand in a group, and what
blocks do to both (kubelet 1.36, memorymanager, policy Static).

A zone that holds a block of its own never joins a group, and a group stays one until it is empty.
The kubelet books a block of several zones lowest zone first. Blocks of ordinary init containers are
free again once their pod runs. Must not know reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from shared.domain.pod import ContainerKind
from shared.domain.report import ZonedAmount
from shared.hints.provider import RequestedAmounts, Reusable
from shared.hints.splits import TooManyChoicesError
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


class Block(NamedTuple):
    """`size` bytes of a resource anywhere on the zones of `mask`."""

    mask: int
    resource: str
    size: int


class Memory(NamedTuple):
    """By zone: the group that it belongs to (itself alone where it has none), how many blocks touch
    it, and free bytes [resource][zone]. `waiting` are blocks that are free once their pod runs, a
    tuple a pod. `loose` are masks of zones of which it is known only together what is free: in
    which of them it lies depends on blocks that are gone."""

    groups: tuple[int, ...]
    blocks: tuple[int, ...]
    free: tuple[tuple[int, ...], ...]
    waiting: tuple[tuple[Block, ...], ...] = ()
    loose: tuple[int, ...] = ()


class TakenMemory(NamedTuple):
    """What a pod took in single zones: blocks by zone and bytes [resource][zone], without what its
    init containers hold until it runs (`inits`)."""

    blocks: tuple[int, ...]
    free: tuple[tuple[int, ...], ...]
    inits: tuple[Block, ...] = ()


class ReusableMemory(NamedTuple):
    """What this pod's init containers leave: bytes to reuse by (mask, resource), and the blocks
    that they still hold.
    """

    reuse: tuple[tuple[int, str, int], ...] = ()
    inits: tuple[Block, ...] = ()

    def reusable(self, mask: int, resource: str) -> int:
        """Bytes that a container with this mask need not take anew."""
        return next(
            (size for each, name, size in self.reuse if (each, name) == (mask, resource)), 0
        )


NOTHING = ReusableMemory()


class MemoryManager:
    """`allocatable` is [resource][zone], in the order of `names` and `zones`."""

    def __init__(
        self,
        zones: tuple[int, ...],
        names: tuple[str, ...],
        allocatable: tuple[tuple[int, ...], ...],
    ) -> None:
        self.zones, self.names, self.allocatable = zones, names, allocatable
        self._at = {zone: at for at, zone in enumerate(zones)}
        self._rows = {name: row for row, name in enumerate(names)}
        self.capable = lru_cache(maxsize=1024)(self._capable)
        self._large = lru_cache(maxsize=1024)(self._large_enough)

    def empty(self) -> Memory:
        """Nothing is held."""
        return Memory(
            tuple([1 << zone for zone in self.zones]), (0,) * len(self.zones), self.allocatable
        )

    # -- hints
    # ---------------------------------------------------------------------------------------------------

    def single(self, state: Memory, own: Reusable, asked: RequestedAmounts) -> int:
        """Zones that hold it alone and are in no group; none where no zone ever could. Raises
        TooManyChoicesError where `loose` zones leave that open."""
        if state.loose:
            masks = [each.mask or 0 for each in self._candidates(state, own, asked)]
            return sum([mask for mask in masks if not mask & (mask - 1)])
        left, found = own if isinstance(own, ReusableMemory) else NOTHING, 0
        groups, wanted = (
            state.groups,
            [
                (state.free[self._rows[name]], name, amount)
                for name, amount in asked
                if name in self._rows
            ],
        )
        for at, bit in self._large(asked):
            if groups[at] != bit:
                continue
            for free, name, amount in wanted:
                if free[at] + (left.reusable(bit, name) if left.reuse else 0) < amount:
                    break
            else:
                found |= bit
        return found

    def _large_enough(self, asked: RequestedAmounts) -> tuple[tuple[int, int], ...]:
        """(position, bit) of the zones that hold it when empty."""
        rows = [(self._rows.get(name, -1), amount) for name, amount in asked]
        if any(row < 0 for row, _ in rows):
            return ()
        large = [
            at
            for at in range(len(self.zones))
            if all(self.allocatable[row][at] >= amount for row, amount in rows)
        ]
        return tuple([(at, 1 << self.zones[at]) for at in large])

    def hints(self, state: Memory, own: Reusable, asked: RequestedAmounts) -> Hints:
        """No mask that holds it: an empty map, which the Topology Manager reads as no preference."""
        found = self._candidates(state, own, asked)
        return dict.fromkeys([name for name, _ in asked], found) if found else {}

    def _capable(self, asked: RequestedAmounts) -> tuple[tuple[int, ...], int]:
        """(positions of the masks that could hold it when empty, the least size of those)."""
        found: Iterable[int] = range(len(enumerate_masks(self.zones)))
        for name, amount in asked:
            row = self._rows.get(name, -1)
            sums = mask_sums(self.zones, self.allocatable[row]) if row >= 0 else ()
            found = [at for at in found if row >= 0 and sums[at] >= amount]
        kept = tuple(found)
        sizes = mask_sizes(self.zones)
        return kept, min((sizes[at] for at in kept), default=len(self.zones))

    def _candidates(self, state: Memory, own: Reusable, asked: RequestedAmounts) -> list[Hint]:
        if len(self.zones) > MAX_NODES:
            raise TooManyChoicesError
        left = own if isinstance(own, ReusableMemory) else NOTHING
        masks, sizes = enumerate_masks(self.zones), mask_sizes(self.zones)
        fitting, least = self.capable(asked)
        if state.loose:
            allowed = [at for at in fitting if self._allowed(state, masks[at])]
            return [
                Hint(masks[at], sizes[at] == least)
                for at in allowed
                if self._holds(state, masks[at], asked, left)
            ]
        for name, amount in asked:
            sums = mask_sums(self.zones, state.free[self._rows[name]]) if name in self._rows else []
            fitting = tuple(
                [at for at in fitting if sums[at] + left.reusable(masks[at], name) >= amount]
            )
        return [
            Hint(masks[at], sizes[at] == least) for at in fitting if self._allowed(state, masks[at])
        ]

    def _holds(
        self, state: Memory, mask: int, asked: RequestedAmounts, left: ReusableMemory
    ) -> bool:
        """Is enough free on the zones of the mask? Raises TooManyChoicesError where it matters in
        which `loose` ones it lies.
        """
        return all(
            self._enough(state, mask, name, amount - left.reusable(mask, name))
            for name, amount in asked
        )

    def _enough(self, state: Memory, mask: int, name: str, amount: int) -> bool:
        row = self._rows.get(name)
        if row is None:
            return False
        least = most = self._sum(state.free[row], mask)
        for group in state.loose:
            if group & mask and group & ~mask:
                inside, free = (
                    self._sum(state.free[row], group & mask),
                    self._sum(state.free[row], group),
                )
                least += max(0, free - self._sum(self.allocatable[row], group & ~mask)) - inside
                most += min(free, self._sum(self.allocatable[row], group & mask)) - inside
        if least < amount <= most:
            raise TooManyChoicesError
        return least >= amount

    def _sum(self, row: Sequence[int], mask: int) -> int:
        return sum([row[at] for zone, at in self._at.items() if mask >> zone & 1])

    def _allowed(self, state: Memory, mask: int) -> bool:
        if not mask & (mask - 1):
            return state.groups[self._at[mask.bit_length() - 1]] == mask
        return self._allowed_wide(state, mask)

    def _allowed_wide(self, state: Memory, mask: int) -> bool:
        """No zone of the mask is used alone or in another group."""
        return all(
            not state.blocks[at] or state.groups[at] == mask
            for zone, at in self._at.items()
            if mask >> zone & 1
        )

    # -- allocation
    # ----------------------------------------------------------------------------------------------

    def allocate(
        self, state: Memory, own: Reusable, asked: RequestedAmounts, kind: ContainerKind, hint: Hint
    ) -> Sequence[tuple[Memory, Reusable]]:
        """Near the hint, widened where it cannot hold the request; one way only."""
        if not asked:
            return ((state, own),)
        easy = hint.mask and own is None and kind != "init" and not state.loose
        plain = self._plain(state, asked, hint.mask) if easy and hint.mask else None
        if plain is not None:
            return ((plain, None),)
        mask = self._final_mask(state, own, asked, hint)
        if not mask:
            return ()
        left = own if isinstance(own, ReusableMemory) else NOTHING
        blocks = [Block(mask, name, amount) for name, amount in asked]
        for block in blocks:
            state = self.booked(state, block, left.reusable(block.mask, block.resource))
        return ((state, _after(left, blocks, kind)),)

    def _plain(self, state: Memory, asked: RequestedAmounts, mask: int) -> Memory | None:
        """Nothing to reuse, and enough in the one zone of the hint: the usual case."""
        at = self._at.get(mask.bit_length() - 1, -1)
        if mask & (mask - 1) or at < 0:
            return None
        free = list(state.free)
        for name, amount in asked:
            row = self._rows.get(name, -1)
            if row < 0 or free[row][at] < amount:
                return None
            free[row] = (*free[row][:at], free[row][at] - amount, *free[row][at + 1 :])
        groups = (*state.groups[:at], mask, *state.groups[at + 1 :])
        blocks = (*state.blocks[:at], state.blocks[at] + len(asked), *state.blocks[at + 1 :])
        return Memory(groups, blocks, tuple(free), state.waiting, state.loose)

    def _final_mask(self, state: Memory, own: Reusable, asked: RequestedAmounts, hint: Hint) -> int:
        """The mask to take, 0 where the kubelet refuses."""
        mask, preferred = hint.mask, hint.preferred
        if mask is None:
            best = _best(self._candidates(state, own, asked))
            if best is None or (preferred and not best.preferred):
                return 0
            mask, preferred = best.mask or 0, best.preferred
        if not self._covers(state, mask, asked):
            wider = _best(
                [
                    each
                    for each in self._candidates(state, own, asked)
                    if (each.mask or 0) & mask == mask
                ]
            )
            if wider is None or (preferred and not wider.preferred):
                return 0
            mask = wider.mask or 0
        return mask if not mask & (mask - 1) or self._allowed_wide(state, mask) else 0

    def _covers(self, state: Memory, mask: int, asked: RequestedAmounts) -> bool:
        """Enough free under the mask, not counting what init containers left."""
        return self._holds(state, mask, asked, NOTHING)

    def booked(self, state: Memory, block: Block, reused: int) -> Memory:
        """With the block booked, of which so many bytes are held already."""
        rest, row = max(block.size - reused, 0), self._rows[block.resource]
        groups, blocks, free = list(state.groups), list(state.blocks), list(state.free[row])
        for at in self._in_order(state, block.mask):
            taken = min(rest, max(0, free[at]))
            rest -= taken
            free[at] -= taken
        for zone in nodes_of(block.mask):
            at = self._at[zone]
            groups[at], blocks[at] = block.mask, blocks[at] + 1
        return state._replace(
            groups=tuple(groups), blocks=tuple(blocks), free=_with(state.free, row, free)
        )

    def _given_back(self, state: Memory, block: Block) -> Memory:
        """Each zone in order of id gives what it can, whoever took it there."""
        rest, row = block.size, self._rows[block.resource]
        groups, blocks, free = list(state.groups), list(state.blocks), list(state.free[row])
        for at in self._in_order(state, block.mask):
            given = min(rest, max(0, self.allocatable[row][at] - free[at]))
            rest -= given
            free[at] += given
        for zone in nodes_of(block.mask):
            at = self._at[zone]
            blocks[at] = max(0, blocks[at] - 1)
            groups[at] = groups[at] if blocks[at] else 1 << zone
        return state._replace(
            groups=tuple(groups), blocks=tuple(blocks), free=_with(state.free, row, free)
        )

    def _in_order(self, state: Memory, mask: int) -> list[int]:
        """Positions of the mask's zones, lowest first, then of those that are loose together with
        one of them.
        """
        beside = 0
        for group in state.loose:
            beside |= group if group & mask else 0
        return [self._at[zone] for zone in (*nodes_of(mask), *nodes_of(beside & ~mask))]

    def release(self, state: Memory, held: Sequence[ZonedAmount]) -> Memory:
        """The blocks of an ended pod are free."""
        for block in self.blocks_of(held):
            state = self._given_back(state, block)
        return state

    def hold(self, state: Memory, held: Sequence[ZonedAmount]) -> Memory:
        """With these blocks booked."""
        for block in self.blocks_of(held):
            state = self.booked(state, block, 0)
        return state

    def blocks_of(self, held: Sequence[ZonedAmount]) -> list[Block]:
        """The memory blocks among what is held, in zones that there are."""
        known = set(self.zones)
        return [
            Block(mask_of(item.zones), item.resource, item.amount)
            for item in held
            if item.resource in self._rows and item.zones and known.issuperset(item.zones)
        ]

    def taken(self, before: Memory, after: Memory) -> TakenMemory:
        """What lies over several zones cannot be told by zone: raises TooManyChoicesError."""
        more = list(after.waiting)
        for each in before.waiting:
            more.remove(each)
        inits = more[0] if more else ()
        rest = after
        for block in inits:
            rest = self._given_back(rest, block)
        changed = [at for at in range(len(self.zones)) if before.blocks[at] != after.blocks[at]]
        if any(after.groups[at] != 1 << self.zones[at] for at in changed):
            raise TooManyChoicesError
        free = tuple(
            [_minus(one, other) for one, other in zip(before.free, rest.free, strict=True)]
        )
        return TakenMemory(_minus(rest.blocks, before.blocks), free, inits)

    def given_back(self, state: Memory, taken: TakenMemory) -> Memory:
        """Init containers' blocks are back already if the pod ran."""
        if taken.inits and taken.inits in state.waiting:
            at = state.waiting.index(taken.inits)
            state = state._replace(waiting=(*state.waiting[:at], *state.waiting[at + 1 :]))
            for block in taken.inits:
                state = self._given_back(state, block)
        blocks = _minus(state.blocks, taken.blocks)
        groups = tuple(
            [
                group if held else 1 << zone
                for group, held, zone in zip(state.groups, blocks, self.zones, strict=True)
            ]
        )
        free = tuple(
            [
                _minus(row, [-more for more in back])
                for row, back in zip(state.free, taken.free, strict=True)
            ]
        )
        return Memory(groups, blocks, free, state.waiting, state.loose)

    def after_admission(self, state: Memory, own: Reusable) -> Memory:
        """Init containers' blocks stay until their pod runs."""
        if not isinstance(own, ReusableMemory) or not own.inits:
            return state
        return state._replace(waiting=tuple(sorted((*state.waiting, own.inits))))

    def later(self, state: Memory) -> Sequence[Memory]:
        """One of the admitted pods runs."""
        found = []
        for at, blocks in enumerate(state.waiting):
            if at and state.waiting[at - 1] == blocks:
                continue
            after = state._replace(waiting=(*state.waiting[:at], *state.waiting[at + 1 :]))
            for block in blocks:
                after = self._given_back(after, block)
            found.append(after)
        return found


def _with(
    rows: tuple[tuple[int, ...], ...], at: int, row: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    return (*rows[:at], tuple(row), *rows[at + 1 :])


def _minus(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple([left - right for left, right in zip(one, other, strict=True)])


def _best(hints: list[Hint]) -> Hint | None:
    """Preferred before not preferred, then the narrowest."""
    best: Hint | None = None
    for hint in hints:
        better = best is None or hint.preferred > best.preferred
        if better or (
            best is not None
            and hint.preferred == best.preferred
            and narrower(hint.mask or 0, best.mask or 0)
        ):
            best = hint
    return best


def _after(left: ReusableMemory, blocks: Sequence[Block], kind: ContainerKind) -> ReusableMemory:
    """What is left to reuse, and what the init containers before still hold, after a container took
    these blocks.
    """
    inits = list(left.inits)
    for block in blocks:
        rest = block.size
        for at, old in enumerate(inits):
            if (old.resource, old.mask) == (block.resource, block.mask):
                reused = min(old.size, rest)
                rest -= reused
                inits[at] = old._replace(size=old.size - reused)
    reuse = {(mask, name): size for mask, name, size in left.reuse}
    for block in blocks:
        key = block.mask, block.resource
        before = reuse.get(key, 0)
        if kind == "init":
            reuse[key] = max(before, block.size)
        elif before:
            reuse[key] = max(before - block.size, 0)
    if kind == "init":
        inits += blocks
    kept = tuple(sorted((mask, name, size) for (mask, name), size in reuse.items() if size))
    return ReusableMemory(kept, tuple(inits))
