"""Memory of which only the sum over several zones is known to be free: a filter result that depends
on its zone is undecided. It is compared with every distribution of the free bytes over these zones.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.report import ZonedAmount
from shared.hints.memory_manager import NOTHING, Block, Memory, MemoryBlockManager
from shared.hints.splits import TooManyChoicesError
from tests.scheduler.kubelet_worlds import measured

NAME = "memory"
SIZES = (3, 2, 4, 3)
MANAGER = MemoryBlockManager((0, 1, 2, 3), (NAME,), (SIZES,))
LOOSE = 0b0111


def loose(free: tuple[int, ...]) -> Memory:
    return MANAGER.empty()._replace(
        groups=(LOOSE, LOOSE, LOOSE, 8), blocks=(1, 1, 1, 0), free=(free,), loose=(LOOSE,)
    )


def splits(total: int) -> list[tuple[int, ...]]:
    """Yield every distribution of this amount over the zones whose memory is not known."""
    return [
        each for each in product(*(range(size + 1) for size in SIZES[:3])) if sum(each) == total
    ]


@given(st.tuples(*(st.integers(0, size) for size in SIZES)), st.integers(1, 15), st.integers(1, 12))
def test_enough_is_enough_however_it_lies(free: tuple[int, ...], mask: int, amount: int) -> None:
    enough = {
        sum(zone for at, zone in enumerate((*each, free[3])) if mask >> at & 1) >= amount
        for each in splits(sum(free[:3]))
    }
    if len(enough) > 1:
        with pytest.raises(TooManyChoicesError):
            MANAGER._enough(loose(free), mask, NAME, amount)
    else:
        assert MANAGER._enough(loose(free), mask, NAME, amount) is enough.pop()


@given(st.sampled_from(splits(5)), st.sampled_from([1, 2, 4, 3, 6, 7]), st.integers(1, 5))
def test_taken_blocks_are_taken_from_every_zone_and_come_back(
    free: tuple[int, ...], mask: int, size: int
) -> None:
    blocks_before = loose((*free, 1))
    taken = MANAGER.booked(blocks_before, Block(mask, NAME, size), 0)
    assert (sum(taken.free[0][:3]), taken.free[0][3]) == (5 - size, 1)
    back = MANAGER.release(
        taken, [ZonedAmount(NAME, tuple(at for at in range(3) if mask >> at & 1), size)]
    )
    assert (sum(back.free[0][:3]), back.free[0][3]) == (5, 1)


def test_a_zone_apart_and_all_loose_ones_together_are_known() -> None:
    state = loose((0, 2, 1, 3))
    assert MANAGER._holds(state, 8, ((NAME, 3),), NOTHING)
    assert MANAGER._holds(state, LOOSE, ((NAME, 3),), NOTHING)
    assert not MANAGER._holds(state, LOOSE, ((NAME, 4),), NOTHING)


def test_a_kubelet_with_a_missing_memory_block_rejects_what_lowest_first_would_admit() -> None:
    """Zones 0, 1 and 2 are a group of which 53 GiB are free: in zone 2 if all of its blocks were
    there from the start, in truth in zones 0 and 2. There a hint for zones 0 and 1 holds enough
    without the group, and the Memory Manager refuses it."""
    outcome = measured(
        [77112966], "best-effort", "container", unconfirmed=3, checkpoints=False, zones=8
    )
    assert (outcome.refused, outcome.unsound) == (1, [])
