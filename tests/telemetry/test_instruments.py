"""The time of a block: by the clock, or the thread's own."""

from __future__ import annotations

import time

import pytest

from shared.telemetry import instruments, names
from shared.telemetry.instruments import worked


def test_a_block_that_waits_works_less_than_it_lasts_and_counts_though_it_raised() -> None:
    kept = instruments._values_of(names.DECIDE_CPU).values
    before_s, began_s = kept.get((), 0.0), time.perf_counter()
    with pytest.raises(ValueError, match="by itself"):
        _sleep_and_fail()
    assert 0 < kept[()] - before_s < (time.perf_counter() - began_s) / 2


@worked(names.DECIDE_CPU)
def _sleep_and_fail() -> None:
    time.sleep(0.2)
    raise ValueError(f"by itself, {sum(range(20_000))}")
