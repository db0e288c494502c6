"""The state at an earlier position. Questions that go forward in time continue the last fold; any
other begins at the nearest snapshot. One fold at a time.
"""

from __future__ import annotations

import asyncio

from services.replay.deciding_state import followed_at
from services.scheduler.state.state import SchedulerState
from shared.eventlog.port import EventLog
from shared.events.quarantine import QuarantinedStreams


class Past:
    """The state at earlier positions. Read a returned state before you await anything, because the
    next question changes it.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._lock = asyncio.Lock()
        self._followed = SchedulerState(), QuarantinedStreams()

    async def at(self, position: int) -> SchedulerState:
        """Return the state at the position."""
        async with self._lock:
            self._followed = await followed_at(self._log, position, self._followed)
            return self._followed[0]
