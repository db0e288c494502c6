"""Append until the log answers: while Postgres is away, the same commits are sent again.

Commit ids make that harmless. Must not know the events or the meaning of an outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import Commit, EventLog, Outcome
from shared.runtime.clock import Clock
from shared.telemetry import names

PAUSE_S = 0.5


async def append_until_answered(
    log: EventLog, clock: Clock, out: Any, commits: Sequence[Commit]
) -> list[Outcome]:
    """Return one outcome per commit. `out` is the logger for failed attempts."""
    while True:
        try:
            return await log.append(commits)
        except LogUnavailable as error:
            out.warning(names.LOG_UNAVAILABLE, problem=str(error))
            await clock.sleep(PAUSE_S)
