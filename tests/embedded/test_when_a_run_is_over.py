"""A run is over when its pods have ended and the scheduler has folded the ends."""

from __future__ import annotations

import pytest

from services.embedded.up.display import is_over
from services.embedded.up.status import Scheduling, Status, Workload

DONE = Workload(total=3, created=3, succeeded=2, infeasible=({},), done=True)


@pytest.mark.parametrize(
    ("live", "answered", "over"),
    [(1, True, True), (2, True, False), (1, False, False)],
    ids=["every end folded", "one end missing", "old numbers of a dead scheduler"],
)
def test_every_end_must_be_folded(live: int, answered: bool, over: bool) -> None:
    status = Status(
        1.0, DONE, Scheduling(position=9, pods_pending=live), scheduler_answered=answered
    )
    assert is_over(status, 60.0) is over


def test_a_run_without_progress_is_over() -> None:
    waiting = Workload(total=3, created=3, waiting=3, quiet_s=61.0)
    assert is_over(Status(1.0, waiting), 60.0)
    assert not is_over(Status(1.0, waiting), 62.0)
