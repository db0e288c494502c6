"""Worlds in which most pods belong to gangs, with the same faults and checks."""

from __future__ import annotations

from tests.simulation.profile import BOOKING, Fixed
from tests.simulation.runner import STEPS, run_seed

CRASHES, THEFTS = ("crash", "takeover", "answer lost"), ("remove node", "steal", "force")
# Worlds that reach what the test asserts, one of them with zones that Topolog chooses.
SEEDS = {
    795_850_027: Fixed(often=THEFTS),
    795_850_007: Fixed(often=CRASHES),
    795_850_018: Fixed(owner="topolog", often=("crash", "busy")),
    795_850_019: Fixed(often=CRASHES),
    795_850_085: Fixed(owner="topolog", often=CRASHES),
    795_850_547: Fixed(owner="topolog", often=THEFTS),  # owned nodes without a tracked resource
    795_850_222: Fixed(often=THEFTS),
    # A node whose pods had ended took one pod, and no gang, until its next report.
    795_850_244: Fixed(often=CRASHES),
    795_850_262: Fixed(often=THEFTS),
    # Gangs with GPUs that Topolog chooses.
    BOOKING + 5: Fixed(owner="topolog", cards=True),
    BOOKING + 18: Fixed(owner="topolog", cards=True),
}


def test_no_gang_is_placed_in_part() -> None:
    marks = set[str]()
    for seed, fixed in SEEDS.items():
        marks |= run_seed(seed, STEPS, fixed).marks
    assert marks >= {
        "gang reserved",
        "gang withdrawn",
        "gang rolled back, another waits",
        "gang whole after another yielded",
        "pod of a gang reserved by itself",
        "several schedulers",
    }


def test_gangs_and_bookings_live_in_one_world() -> None:
    """The last: the end of a gang's pod whose name had a reservation before a new boot of its node
    kept the gang waiting for ever."""
    marks = set[str]()
    for number, owner in ((10, "topolog"), (35, "kubelet"), (45, "topolog"), (231, "kubelet")):
        marks |= run_seed(BOOKING + number, STEPS, Fixed(owner=owner)).marks
    assert marks >= {"a booking used", "gang reserved", "gang withdrawn"}
