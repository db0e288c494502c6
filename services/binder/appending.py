"""Append as the leading binder: repeat until the log answers, and stop if a newer epoch leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.eventlog.port import Commit, EventLog, Fenced, Outcome
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.runtime.leadership import LeaseLost


async def append_fenced(
    log: EventLog, clock: Clock, out: Any, commits: Sequence[Commit]
) -> list[Outcome]:
    """Return the outcomes. `out` logs failed attempts. Raises LeaseLost if another binder leads."""
    outcomes = await append_until_answered(log, clock, out, commits)
    if any(isinstance(outcome, Fenced) for outcome in outcomes):
        raise LeaseLost("binder: a newer epoch leads")
    return outcomes
