"""A run is over when its pods have ended and the scheduler knows it: a log that ends before the
ends were told is no proof.
"""

from __future__ import annotations

import pytest

from services.embedded.up.display import is_over
from services.embedded.up.status import Scheduling, Status, Workload

DONE = Workload(total=3, created=3, succeeded=2, infeasible=({},), done=True)


@pytest.mark.parametrize(
    ("live", "heard", "over"),
    [(1, True, True), (2, True, False), (1, False, False)],
    ids=["told of every end", "one end not told", "numbers of before the scheduler died"],
)
def test_every_end_must_have_been_told(live: int, heard: bool, over: bool) -> None:
    status = Status(1.0, DONE, Scheduling(position=9, pods_pending=live), heard=heard)
    assert is_over(status, 60.0) is over


def test_nothing_happens_for_ever_ends_it_too() -> None:
    waiting = Workload(total=3, created=3, waiting=3, quiet_s=61.0)
    assert is_over(Status(1.0, waiting), 60.0)
    assert not is_over(Status(1.0, waiting), 62.0)
