"""The state at an earlier position. Questions that go forward in time continue the last fold; any
other begins at the nearest snapshot. One fold at a time.
"""

from __future__ import annotations

import asyncio

from services.replay import reading
from services.replay.deciding_state import follow, followed_at
from services.scheduler.state.state import SchedulerState
from shared.eventlog.port import EventLog
from shared.events.quarantine import QuarantinedStreams

# A position that is at most so many events ahead is reached from the last fold, without a snapshot.
NEAR = 20_000


class Past:
    """The state at earlier positions. Read a returned state before you await anything, because the
    next question changes it.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._lock = asyncio.Lock()
        self._state = SchedulerState()
        self._quarantined = QuarantinedStreams()

    async def at(self, position: int) -> SchedulerState:
        """Return the state at the position."""
        async with self._lock:
            reached = self._state.ledger.position
            if not reached or not reached <= position <= reached + NEAR:
                self._state, self._quarantined = await followed_at(self._log, position)
            else:
                async for envelope in reading.envelopes(self._log, reached, position):
                    follow(self._state, envelope, self._quarantined)
            return self._state
