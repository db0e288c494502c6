"""The first commit on a timeline: it records that the timeline began, and why.

A timeline begins after a restore, by an operator's command or by a reader that had read more than
the log holds now.
"""

from __future__ import annotations

from shared.eventlog.port import Commit, Draft, LogIdentity, Lost
from shared.events import streams
from shared.events.log_events import LogOpened

OPERATOR, READER = "operator", "reader"


def opening(identity: LogIdentity, now_us: int, lost: Lost | None = None) -> Commit:
    """Return the commit. `lost` is what a reader had read, None if an operator decides."""
    opened = LogOpened(identity.log_id, identity.timeline, lost.position if lost is not None else 0)
    commit_id = f"timeline/{identity.log_id}/{identity.timeline}"
    return Commit(
        commit_id, OPERATOR if lost is None else READER, 0, now_us, (Draft(streams.LOG, opened),)
    )
