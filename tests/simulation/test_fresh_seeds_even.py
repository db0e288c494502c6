"""Many runs, half of them: each file keeps one core busy for about half a minute."""

from __future__ import annotations

import pytest

from tests.simulation.runner import FRESH, run_seed


@pytest.mark.parametrize("seed", FRESH[::2])
def test_every_invariant_holds_under_seeded_faults(seed: int) -> None:
    run_seed(seed)
