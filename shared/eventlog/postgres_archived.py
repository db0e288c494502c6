"""Read archived events as if they were rows: pages that begin below the first row come from
compressed blocks.

Only a page that lacks its beginning queries the archive, by one index lookup. A reader at the head
never does, because its page starts with the event at its own position.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from shared.eventlog.errors import LogBroken
from shared.eventlog.history_file import HistoryFileError, unpack
from shared.eventlog.limits import MAX_PAGE_BYTES
from shared.eventlog.pages import KeptBlocks, page_of
from shared.events.envelope import Envelope

_BLOCK_OF = "SELECT first, last, sha256, data FROM archived_block WHERE first <= $1 AND last >= $1"
_BLOCK_AT = "SELECT first, last, sha256, data FROM archived_block WHERE first = $1"
_BLOCK_OF_STREAM = """
SELECT block FROM archived_stream
    WHERE stream = $1 AND last_version > $2 ORDER BY first_version LIMIT 1
"""

Fetch = Callable[..., Awaitable[list[Any]]]


class Archived:
    """The blocks of one log. `fetch` runs a query; the blocks read last are cached."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._kept = KeptBlocks()

    async def completed(self, page: list[Envelope], after: int, limit: int) -> list[Envelope]:
        """Return the page, preceded by the archived events that belong to it."""
        if limit <= 0 or (page and page[0].position == after + 1):
            return page
        events: list[Envelope] = []
        until, size = page[0].position if page else after + limit + 1, 0
        while len(events) < limit and size < MAX_PAGE_BYTES and after + 1 + len(events) < until:
            rows = await self._fetch(_BLOCK_OF, after + 1 + len(events))
            if not rows:
                break
            try:
                block = self._unpacked(rows[0])
            except LogBroken:
                if not events:
                    raise
                # The events before the broken block are intact; the next read raises.
                return page_of(events, limit)
            more = block[after + 1 + len(events) - block[0].position :]
            events += more
            size += sum(len(envelope.payload) for envelope in more)
        return page_of([*events, *page], limit) if events else page

    async def completed_stream(
        self, page: list[Envelope], stream: str, after: int, limit: int
    ) -> list[Envelope]:
        """Return the page of a stream, or its archived events before the page: those of one block,
        because most readers need no other.
        """
        if limit <= 0 or (page and page[0].version == after + 1):
            return page
        for row in await self._fetch(_BLOCK_OF_STREAM, stream, after):
            blocks = await self._fetch(_BLOCK_AT, row["block"])
            if not blocks:
                raise LogBroken(
                    f"the archived block from position {row['block']} is missing; "
                    "restore it from a backup"
                )
            block = self._unpacked(blocks[0])
            events = [event for event in block if event.stream == stream and event.version > after]
            return page_of(events, limit)
        return page

    def _unpacked(self, row: Any) -> list[Envelope]:
        return self._kept.get(bytes(row["sha256"]), lambda: _unpacked(row))


def _unpacked(row: Any) -> list[Envelope]:
    first, last, data = row["first"], row["last"], row["data"]
    if sha256(data).digest() != bytes(row["sha256"]):
        raise LogBroken(
            f"the archived block from position {first} was altered; restore it from a backup"
        )
    try:
        events = unpack(data)
    except HistoryFileError as error:
        raise LogBroken(
            f"the archived block from position {first} was altered ({error}); "
            "restore it from a backup"
        ) from error
    if [envelope.position for envelope in events] != list(range(first, last + 1)):
        raise LogBroken(
            f"the archived block from position {first} does not hold {first} to {last}; "
            "restore it from a backup"
        )
    return events
