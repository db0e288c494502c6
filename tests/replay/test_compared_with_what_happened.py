"""`explain` compares the predicted zones with the confirmed ones, and says if they were certain."""

from __future__ import annotations

import pytest

from services.replay.story import verdict_on
from shared.events.scheduling_events import PodReserved


@pytest.mark.parametrize(
    ("certain", "zones", "verdict"),
    [
        (True, (0,), "as predicted with certainty"),
        (False, (0,), "as predicted"),
        (True, (1,), "predicted was zone 0, certain when it was decided"),
        (False, (1,), "predicted was zone 0"),
    ],
)
def test_the_comparison_names_certainty(
    certain: bool, zones: tuple[int, ...], verdict: str
) -> None:
    reserved = PodReserved("uid", "n1", predicted={"c": (0,)}, certain=certain)
    assert verdict_on(reserved, {"c": zones}) == verdict


def test_without_a_prediction_there_is_nothing_to_compare() -> None:
    assert verdict_on(None, {"c": (0,)}) == "nothing was predicted"
    assert verdict_on(PodReserved("uid", "n1"), {"c": (0,)}) == "nothing was predicted"
