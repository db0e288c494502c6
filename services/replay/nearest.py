"""The nearest snapshot of the scheduler's state: questions about the past start there instead of at
position 1.

A checkpoint has the state as the release of its time folded it. Snapshots and checkpoints are
caches: if there is none, the log is folded from its beginning.
"""

from __future__ import annotations

import contextlib

import msgspec

from services.scheduler.state import state
from services.scheduler.state.state import FORM, PROJECTION, SchedulerState, snapshot_key
from shared.eventlog.checkpoints import nearest_checkpoint
from shared.eventlog.port import EventLog
from shared.eventlog.snapshots import unseal
from shared.events.quarantine import QuarantinedStreams


async def nearest_state(
    log: EventLog, position: int, quarantined: QuarantinedStreams
) -> SchedulerState:
    """Return the state of the nearest snapshot or checkpoint at or before `position`, or the empty
    state.

    Both are only saved while no stream is quarantined. They are not used if an event before them
    was skipped later (`quarantined` has the skips of the log).
    """
    snapshot = await log.load_snapshot(PROJECTION, snapshot_key(), position)
    made_at = snapshot[0].position if snapshot is not None else 0
    # A dump takes a sixth of its state's memory, so only one is unpacked at a time.
    newer = await nearest_checkpoint(log, PROJECTION, FORM, position, after=made_at)
    if newer is not None and (loaded := _loaded(newer.place.position, newer.state, quarantined)):
        return loaded
    del newer
    if snapshot is not None:
        dumped = unseal(snapshot[1]) or b""
        del snapshot
        if loaded := _loaded(made_at, dumped, quarantined):
            return loaded
        older = await nearest_checkpoint(log, PROJECTION, FORM, made_at)
        if older is not None and (
            loaded := _loaded(older.place.position, older.state, quarantined)
        ):
            return loaded
    return SchedulerState()


def _loaded(made_at: int, dumped: bytes, quarantined: QuarantinedStreams) -> SchedulerState | None:
    if not quarantined.are_skips_known_at(made_at):
        return None
    with contextlib.suppress(msgspec.MsgspecError):
        return state.load(dumped)
    return None
