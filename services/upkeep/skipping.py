"""`topolog log skip`: an operator skips an event that cannot be read or folded, and every fold then
begins again without it.
"""

from __future__ import annotations

from services.upkeep.errors import UpkeepRefused
from shared.eventlog.port import Appended, Commit, Draft, EventLog
from shared.events import streams
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped

ROLE = "operator"


async def skip(
    log: EventLog, position: int, by: str, reason: str, now_us: int, force: bool = False
) -> tuple[Envelope, int]:
    """Append `FactSkipped`; return the skipped row and the position of the new event. `force` also
    skips an event that can be read, except on stream `log`: without its own events the log would
    forget a restore. Raises UpkeepRefused.
    """
    envelope = await _row(log, position)
    readable = _readable(envelope)
    if readable and envelope.stream == streams.LOG:
        raise UpkeepRefused(
            f"event {position} ({envelope.type}) is about the log itself and can be read; "
            "such events are never skipped",
            "topolog replay verify",
        )
    if readable and not force:
        raise UpkeepRefused(
            f"event {position} ({envelope.type} on {envelope.stream}) can be read",
            f"inspect it: topolog replay log --from {position} --limit 1; if no fold accepts it, "
            "skip it with --force",
        )
    event = FactSkipped(position, envelope.stream, by, reason)
    commit = Commit(
        f"skip/{position}",
        ROLE,
        0,
        now_us,
        (Draft(streams.LOG, event),),
        correlation=envelope.correlation or streams.subject(envelope.stream),
    )
    (outcome,) = await log.append([commit])
    if not isinstance(outcome, Appended):
        raise UpkeepRefused(
            f"event {position} is skipped already",
            f"see: topolog replay log --stream {streams.LOG}",
        )
    return envelope, outcome.last


async def _row(log: EventLog, position: int) -> Envelope:
    head = await log.head()
    page = await log.read(position - 1, 1) if 0 < position <= head else []
    if not page:
        raise UpkeepRefused(
            f"the log has no position {position}; it ends at {head}", "topolog replay verify"
        )
    return page[0]


def _readable(envelope: Envelope) -> bool:
    try:
        decode(envelope)
    except UndecodableEvent:
        return False
    return True
