"""An operator's word that a fact counts as never told: the way on when one cannot be read or
folded.
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
    """Append `FactSkipped`; returns the skipped row and where the word stands. Only `force` skips a
    fact that can be read.

    Raises UpkeepRefused.
    """
    envelope = await _row(log, position)
    if not force and _readable(envelope):
        raise UpkeepRefused(
            f"fact {position} ({envelope.type} on {envelope.stream}) can be read",
            f"look at it: topolog replay log --from {position} --limit 1; if no fold can take it, skip it with --force",
        )
    word = FactSkipped(position, envelope.stream, by, reason)
    commit = Commit(
        f"skip/{position}",
        ROLE,
        0,
        now_us,
        (Draft(streams.LOG, word),),
        correlation=envelope.correlation,
    )
    (outcome,) = await log.append([commit])
    if not isinstance(outcome, Appended):
        raise UpkeepRefused(
            f"fact {position} is skipped already", f"see: topolog replay log --stream {streams.LOG}"
        )
    return envelope, outcome.last


async def _row(log: EventLog, position: int) -> Envelope:
    head = await log.head()
    page = await log.read(position - 1, 1) if 0 < position <= head else []
    if not page:
        raise UpkeepRefused(
            f"the log has no position {position}; it ends at {head}", "topolog replay verify"
        )
    if page[0].stream == streams.LOG:
        raise UpkeepRefused(
            f"fact {position} is about the log itself, which is never skipped",
            "topolog replay verify",
        )
    return page[0]


def _readable(envelope: Envelope) -> bool:
    try:
        decode(envelope)
    except UndecodableEvent:
        return False
    return True
