"""Worlds in which Topolog chooses the zones of some nodes, with the same faults and checks."""

from __future__ import annotations

import pytest

from tests.simulation.profile import BOOKING, HOLDING, LATER, OWNING, Fixed
from tests.simulation.runner import STEPS, run_seed

SEEDS = {
    **dict.fromkeys(range(LATER + 400, LATER + 404), ()),
    # Nodes change hands: the agent stops, the policy's label changes, the kubelet's managers do.
    **dict.fromkeys((OWNING + 26, OWNING + 27), ()),
    **dict.fromkeys((OWNING + 16, OWNING + 40), ("owner",)),
    **dict.fromkeys(range(HOLDING + 400, HOLDING + 404), ("crash", "takeover", "answer lost")),
}


@pytest.mark.parametrize(("seed", "often"), SEEDS.items())
def test_no_cpu_is_given_twice_and_a_replay_knows_the_same(
    seed: int, often: tuple[str, ...]
) -> None:
    world = run_seed(seed, STEPS, Fixed(owner="topolog", often=often))
    assert "zones chosen" in world.marks


@pytest.mark.parametrize(
    ("seed", "often"), [(OWNING + 3003, "crash"), (OWNING + 3013, "lose device")]
)
def test_no_card_is_given_twice(seed: int, often: str) -> None:
    world = run_seed(seed, STEPS, Fixed(owner="topolog", often=(often,), cards=True))
    assert "cards chosen" in world.marks


@pytest.mark.parametrize(
    ("seed", "owner"),
    [(BOOKING + 4, "kubelet"), (BOOKING + 35, "topolog"), (BOOKING + 42, "topolog")],
)
def test_room_that_is_kept_costs_no_rejection_and_is_never_counted_twice(
    seed: int, owner: str
) -> None:
    """The first: an own reservation came back, and what it left of its booking went unseen."""
    assert "a booking used" in run_seed(seed, STEPS, Fixed(owner=owner)).marks


@pytest.mark.parametrize("seed", [BOOKING + 68, BOOKING + 69, BOOKING + 70])
def test_cards_of_bookings_are_never_counted_twice(seed: int) -> None:
    """The second: an owner of a booking that had ended was reserved after another of its name was
    made.
    """
    marks = run_seed(seed, STEPS, Fixed(owner="topolog", cards=True)).marks
    assert marks >= {"a booking used", "cards chosen"}
