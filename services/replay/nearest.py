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
    dumps: list[tuple[int, bytes]] = []
    if snapshot := await log.load_snapshot(PROJECTION, snapshot_key(), position):
        dumps.append((snapshot[0].position, unseal(snapshot[1]) or b""))
    if checkpoint := await nearest_checkpoint(log, PROJECTION, FORM, position):
        dumps.append((checkpoint.place.position, checkpoint.state))
    for made_at, dumped in sorted(dumps, reverse=True):
        if quarantined.are_skips_known_at(made_at):
            with contextlib.suppress(msgspec.MsgspecError):
                return state.load(dumped)
    return SchedulerState()
