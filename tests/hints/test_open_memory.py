"""Free memory in zones that share blocks: an answer that depends on its place is followed both
ways."""

from __future__ import annotations

import pytest

from shared.domain.report import ZonedAmount
from shared.hints.memory_manager import Memory, MemoryBlockManager
from shared.hints.splits import UndecidedStateError

MEMORY = "memory"
MANAGER = MemoryBlockManager((0, 1), (MEMORY,), ((10, 10),))


def shared_state() -> Memory:
    """A block of 12 lies over both zones; zone 0 counts as alone again."""
    state = MANAGER.hold(MANAGER.empty(), [ZonedAmount(MEMORY, (0, 1), 12)])
    return state._replace(groups=(1, 3), loose=(3,))


def test_both_answers_are_choices_and_a_decision_lasts_until_the_state_changes() -> None:
    state, request = shared_state(), ((MEMORY, 5),)
    with pytest.raises(UndecidedStateError) as error:
        MANAGER.single(state, None, request)
    assert error.value.state is state
    free, taken = error.value.choices
    assert isinstance(free, Memory)
    assert isinstance(taken, Memory)
    assert (MANAGER.single(free, None, request), MANAGER.single(taken, None, request)) == (1, 0)
    state_after = MANAGER.hold(free, [ZonedAmount(MEMORY, (0,), 1)])
    assert state_after.decided == ()


def test_amounts_that_are_certainly_free_are_not_open() -> None:
    """8 of 20 are free: at least none and at most 8 in each zone, and 8 in both together."""
    state = shared_state()
    assert MANAGER.single(state, None, ((MEMORY, 9),)) == 0
    assert MANAGER.hints(state, None, ((MEMORY, 9),)) == {}
