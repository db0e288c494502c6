"""The nearest snapshot of the scheduler's state: questions about the past start there instead of at
position 1.

A snapshot is a cache: if there is none, or this code did not make it, the answer is the same and
the log is folded from its beginning.
"""

from __future__ import annotations

import msgspec

from services.scheduler.state import state
from services.scheduler.state.state import PROJECTION, SchedulerState, snapshot_key
from shared.eventlog.port import EventLog
from shared.eventlog.snapshots import unseal
from shared.events.quarantine import QuarantinedStreams


async def nearest_state(
    log: EventLog, position: int, quarantined: QuarantinedStreams
) -> SchedulerState:
    """Return the state of the nearest snapshot at or before `position`, or the empty state.

    A snapshot is only saved while no stream is quarantined. It is not used if an event before it
    was skipped later (`quarantined` has the skips of the log).
    """
    snapshot = await log.load_snapshot(PROJECTION, snapshot_key(), position)
    if snapshot is None or not quarantined.are_skips_known_at(snapshot[0].position):
        return SchedulerState()
    sealed = unseal(snapshot[1])
    try:
        return state.load(sealed) if sealed is not None else SchedulerState()
    except msgspec.MsgspecError:
        return SchedulerState()
