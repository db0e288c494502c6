"""Every bug that is planted for the simulation is found by its checker within the same 200 seeds.

The seed in the table runs first, which takes a second. A change of a service can change a seed's
world, so that the seed no longer shows the bug. Then all 200 run, and a warning names the seed to
keep.
"""

from __future__ import annotations

import warnings

import pytest

from tests.mutations.of_simulation import SEEDS, SIMULATED
from tests.mutations.planted import stories
from tests.mutations.table import Mutation
from tests.simulation.__main__ import said_by
from tests.simulation.runner import STEPS, run_seed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", SIMULATED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_the_checker_that_is_meant_for_it(bug: Mutation) -> None:
    stories_of_seeds = stories(bug)
    assert stories_of_seeds, "no checker spoke"
    assert said_by(bug.catcher, stories_of_seeds[-1]), f"others spoke: {stories_of_seeds}"
    if not stories_of_seeds[-1].startswith(f"seed {bug.seed}, "):
        warnings.warn(
            (
                f"{bug.name}: the seed {bug.seed} is silent, keep this one in tests/mutations: "
                f"{stories_of_seeds[-1]}"
            ),
            stacklevel=1,
        )


@pytest.mark.parametrize("seed", sorted({(bug.seed, bug.steps) for bug in SIMULATED}))
def test_without_the_bug_the_same_seed_is_quiet(seed: tuple[int, int]) -> None:
    run_seed(*seed)


def test_every_seed_is_one_of_the_same_two_hundred() -> None:
    assert len(SIMULATED) >= 20
    assert {bug.seed for bug in SIMULATED} <= set(SEEDS)
    assert all(0 < bug.steps <= STEPS for bug in SIMULATED)
