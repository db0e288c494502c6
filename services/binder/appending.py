"""Appending as the leading binder: again until the log answers, never after a newer epoch leads."""

from __future__ import annotations

from collections.abc import Sequence

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import Commit, EventLog, Fenced, Outcome
from shared.runtime.clock import Clock
from shared.runtime.leadership import LeaseLost
from shared.telemetry import logs, names

PAUSE_S = 0.5


async def append_fenced(log: EventLog, clock: Clock, commits: Sequence[Commit]) -> list[Outcome]:
    """The outcomes. Raises LeaseLost when another binder leads."""
    while True:
        try:
            outcomes = await log.append(commits)
            break
        except LogUnavailable as error:
            logs.get("binder").warning(names.LOG_UNAVAILABLE, problem=str(error))
            await clock.sleep(PAUSE_S)
    if any(isinstance(outcome, Fenced) for outcome in outcomes):
        raise LeaseLost("binder: a newer epoch leads")
    return outcomes
