"""Reads the log from its beginning: pages of envelopes, decoded and folded on demand. The only I/O
of replay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar

from services.replay.filters import FilterError
from services.replay.nearest import nearest_state
from shared.eventlog.file_log import FileLog
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.quarantine import UNFOLDABLE, QuarantinedStreams
from shared.ledger.fold import GapError, Touched, evolve, pass_over
from shared.ledger.state import Ledger
from shared.runtime.reading_ahead import ReadingAhead

PAGE = 1000
# Called with (first, position, end) after each page of a long read. The command line draws a bar.
Progress = Callable[[int, int, int], None]
SHOW_PROGRESS: ContextVar[Progress] = ContextVar("SHOW_PROGRESS", default=lambda *_: None)


async def envelopes(
    log: EventLog, after: int = 0, until: int | None = None
) -> AsyncIterator[Envelope]:
    """Yield every envelope after position `after`, up to `until` (the head at the start if None).

    Raises GapError for a hole, FilterError if only a part of the history is present and its
    beginning is requested.
    """
    position = after
    async for page in pages(log, after, await log.head() if until is None else until):
        for envelope in page:
            if envelope.position != position + 1:
                raise GapError(
                    f"position {position + 1} is missing: the next is {envelope.position}"
                )
            position = envelope.position
            yield envelope


async def pages(log: EventLog, after: int, end: int) -> AsyncIterator[list[Envelope]]:
    """Yield the pages after position `after` up to `end`; the next page is requested while the
    caller uses the current one.

    Raises FilterError if only a part of the history is present and its beginning is requested.
    """
    if after < end and after < (begins := await log.begins()) - 1:
        remedy = (
            "topolog log export without --from, or a folder that also holds what comes before"
            if isinstance(log, FileLog)
            else "mount or copy the files of topolog log prune where it wrote them"
        )
        raise FilterError(f"the history begins at position {begins}", remedy)
    position, show = after, SHOW_PROGRESS.get()
    early = ReadingAhead(log)
    try:
        while position < end:
            page = await early.read(position, min(PAGE, end - position))
            if not page:
                return
            position = page[-1].position
            if position < end:
                await early.ask(position, min(PAGE, end - position))
            yield page
            show(after, position, end)
    finally:
        early.drop()


async def events(
    log: EventLog, until: int | None = None, quarantined: QuarantinedStreams | None = None
) -> AsyncIterator[tuple[Envelope, Event]]:
    """Yield every event that a projection folds, with its envelope. `quarantined` collects the
    quarantined streams.
    """
    quarantined = QuarantinedStreams() if quarantined is None else quarantined
    quarantined.skipped = await skips(log)
    async for envelope in envelopes(log, 0, until):
        event = quarantined.event_of(envelope)
        if event is not None:
            yield envelope, event


async def ledger_at(
    log: EventLog,
    until: int | None = None,
    quarantined: QuarantinedStreams | None = None,
) -> Ledger:
    """Return the ledger as of a position (the head if None). `quarantined` collects the quarantined
    streams.
    """
    quarantined = QuarantinedStreams() if quarantined is None else quarantined
    quarantined.skipped = await skips(log)
    until = await log.head() if until is None else until
    ledger = (await nearest_state(log, until, quarantined)).ledger
    async for envelope in envelopes(log, ledger.position, until):
        fold_one(ledger, envelope, quarantined)
    return ledger


def fold_one(
    ledger: Ledger, envelope: Envelope, quarantined: QuarantinedStreams
) -> tuple[Event | None, Touched]:
    """Fold one event as the services do. Returns the event (None: passed over) and the nodes that
    it changed.
    """
    event = quarantined.event_of(envelope)
    if event is not None:
        try:
            return event, evolve(ledger, envelope, event)
        except UNFOLDABLE as error:
            quarantined.quarantine(envelope, error)
    pass_over(ledger, envelope)
    return None, ()


async def position_at(log: EventLog, time_us: int) -> int:
    """Return the last position whose event was written at or before the time (writers' clocks, by
    bisection).
    """
    low, high = await log.begins() - 1, await log.head()
    while low < high:
        middle = (low + high + 1) // 2
        page = await log.read(middle - 1, 1)
        if page and page[0].time_us <= time_us:
            low = middle
        else:
            high = middle - 1
    return low
