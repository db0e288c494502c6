"""The kernel scores zones as the plain form does, and refuses arrays that do not fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.score.strategies.keep_room import KeepRoom
from services.scheduler.score.strategies.strategy import COLUMN_LIMIT, DemandClass, Floats, Ints
from services.scheduler.snapshot import kernel
from tests.fixtures.examples import examples

NAMES = "cpu", "memory", "example.com/gpu"


class Zones(NamedTuple):
    """Zones that hold the request."""

    items: tuple[tuple[str, int], ...]
    classes: list[DemandClass]
    free: Ints
    whole: Floats
    positions: Ints
    lost_besides: Floats | None


@st.composite
def zones(draw: st.DrawFn) -> Zones:
    largest = draw(st.sampled_from((4, 100, 64_000, COLUMN_LIMIT)))
    amount = st.integers(1, largest)
    items = draw(st.dictionaries(st.sampled_from(NAMES), amount, min_size=1))
    wanted = st.dictionaries(st.sampled_from((*NAMES, "unlisted")), amount, min_size=1)
    classes = draw(st.lists(st.tuples(wanted, st.integers(0, 12)), max_size=5))
    columns = []
    for _ in range(draw(st.integers(1, 6))):
        whole = [draw(st.integers(items.get(name, 0), COLUMN_LIMIT)) for name in NAMES]
        free = [
            draw(st.integers(items.get(name, -3), size))
            for name, size in zip(NAMES, whole, strict=True)
        ]
        columns.append((free, whole))
    positions = draw(st.lists(st.integers(-1, len(columns) - 1), min_size=1, max_size=8))
    by_sets = st.lists(
        st.integers(-COLUMN_LIMIT // 64, COLUMN_LIMIT // 64),
        min_size=len(positions),
        max_size=len(positions),
    )
    besides = draw(st.none() | by_sets)
    return Zones(
        tuple(items.items()),
        [DemandClass(tuple(amounts.items()), 2**power) for amounts, power in classes],
        np.array([free for free, _ in columns], dtype=np.int64).T.copy(),
        np.array([whole for _, whole in columns], dtype=np.float64).T.copy(),
        np.array(positions, dtype=np.int64),
        None if besides is None else np.array(besides, dtype=np.float64),
    )


def scores(given_: Zones) -> list[int]:
    landed = KeepRoom(given_.classes).landed(given_.items, NAMES)
    written = landed.scores(given_.free, given_.whole, given_.positions, given_.lost_besides)
    return [int(score) for score in written]


@given(zones())
@settings(max_examples=examples(150), deadline=None)
def test_many_zones_score_as_each_does_plainly(given_: Zones) -> None:
    compiled = scores(given_)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernel, "COMPILED", None)
        assert compiled == scores(given_)


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    whole, free = np.full((3, 2), 8.0), np.full((3, 2), 8, dtype=np.int64)
    landed = KeepRoom([DemandClass((("cpu", 2),), 1)]).landed((("cpu", 1),), NAMES)
    for bad in (
        (free, whole, np.array([2])),
        (free, whole, np.array([-9])),
        (free, whole[:, :1].copy(), np.array([0])),
        (free[:, 0], whole, np.array([0])),
    ):
        with pytest.raises((ValueError, IndexError)):
            landed.scores(*bad)
