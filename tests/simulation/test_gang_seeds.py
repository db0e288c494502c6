"""Worlds in which most pods belong to gangs, with the same faults and checks."""

from __future__ import annotations

from tests.simulation.profile import Fixed
from tests.simulation.runner import STEPS, run_seed

CRASHES, THEFTS = ("crash", "takeover", "answer lost"), ("remove node", "steal", "force")
# Worlds that reach what the test asserts, one of them with zones that Topolog chooses.
SEEDS = {
    795_850_003: Fixed(often=THEFTS),
    795_850_007: Fixed(often=CRASHES),
    795_850_018: Fixed(owner="topolog", often=("crash", "busy")),
    795_850_031: Fixed(often=CRASHES),
}


def test_no_gang_is_placed_in_part() -> None:
    marks = set[str]()
    for seed, fixed in SEEDS.items():
        marks |= run_seed(seed, STEPS, fixed).marks
    assert marks >= {
        "gang reserved",
        "gang withdrawn",
        "pod of a gang reserved by itself",
        "several schedulers",
    }
