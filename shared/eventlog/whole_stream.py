"""Read one stream from its first to its last version, page by page."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from heapq import heapify, heappop, heapreplace

from shared.eventlog.port import EventLog
from shared.events.catalog import Event
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope

PAGE = 1000


async def envelopes_of(
    log: EventLog, stream: str, after: int = 0, most: int = sys.maxsize, page_size: int = PAGE
) -> AsyncIterator[Envelope]:
    """Yield the stream's envelopes after a version in order, at most `most`."""
    version, end = after, after + most
    while version < end and (
        page := await log.read_stream(stream, version, min(page_size, end - version))
    ):
        for envelope in page:
            yield envelope
        version = page[-1].version


async def readable_events_of(
    log: EventLog, stream: str, after: int = 0
) -> AsyncIterator[tuple[Envelope, Event]]:
    """Yield the stream's events after a version that this release can decode."""
    async for envelope in envelopes_of(log, stream, after):
        try:
            event = decode(envelope)
        except UndecodableEvent:
            continue
        yield envelope, event


async def in_order(streams: Iterable[AsyncIterator[Envelope]]) -> AsyncIterator[Envelope]:
    """Yield the events of several streams by position, and read no page before it is needed."""
    waiting: list[tuple[int, int, Envelope, AsyncIterator[Envelope]]] = []
    for number, stream in enumerate(streams):
        first = await anext(stream, None)
        if first is not None:
            waiting.append((first.position, number, first, stream))
    heapify(waiting)
    while waiting:
        _, number, envelope, stream = waiting[0]
        yield envelope
        following = await anext(stream, None)
        if following is None:
            heappop(waiting)
        else:
            heapreplace(waiting, (following.position, number, following, stream))


async def bisected(log: EventLog, stream: str, position: int, least: int | None = 0) -> int:
    """Return the stream's version at a position, by bisection. It is at least `least`, or the
    newest one if that is None."""
    high = (await log.versions([stream]))[stream]
    low = high if least is None else least
    while low < high:
        middle = (low + high + 1) // 2
        page = await log.read_stream(stream, middle - 1, 1)
        if page and page[0].position <= position:
            low = middle
        else:
            high = middle - 1
    return low
