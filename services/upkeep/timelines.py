"""A new timeline: what an operator begins after a restore that the log itself cannot tell (a storage snapshot that was set back,
a cluster that went on without it). Everything is folded anew, and the cluster is listed anew."""

from __future__ import annotations

from shared.eventlog.port import Commit, Draft, EventLog, LogIdentity
from shared.events import streams
from shared.events.log_facts import LogOpened

ROLE = "operator"


async def begin_timeline(log: EventLog, now_us: int) -> LogIdentity:
    """Begin it and say so in the log: readers discard what they folded, leases end, writers of the timeline before are fenced."""
    identity = await log.begin_timeline()
    await log.append([opening(identity, now_us)])
    return identity


def opening(identity: LogIdentity, now_us: int) -> Commit:
    """The first commit on a timeline."""
    opened = LogOpened(identity.log_id, identity.timeline)
    commit_id = f"timeline/{identity.log_id}/{identity.timeline}"
    return Commit(commit_id, ROLE, 0, now_us, (Draft(streams.LOG, opened),))
