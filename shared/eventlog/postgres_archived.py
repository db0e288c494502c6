"""Reading archived facts as if they were rows: pages that begin below the first row come out of
compressed blocks.

Only a page that lacks its beginning asks here, by one look at an index: a reader at the head, whose
page holds the fact that it stands on, never does.
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
_BLOCKS_OF_STREAM = """
SELECT block FROM archived_stream WHERE stream = $1 AND last_version > $2 ORDER BY first_version LIMIT 64
"""

Fetch = Callable[..., Awaitable[list[Any]]]


class Archived:
    """The blocks of one log. `fetch` runs a query; blocks that were read last are kept."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._kept = KeptBlocks()

    async def completed(self, page: list[Envelope], after: int, limit: int) -> list[Envelope]:
        """The page with what of it is archived before it."""
        if limit <= 0 or (page and page[0].position == after + 1):
            return page
        found: list[Envelope] = []
        until, size = page[0].position if page else after + limit + 1, 0
        while len(found) < limit and size < MAX_PAGE_BYTES and after + 1 + len(found) < until:
            rows = await self._fetch(_BLOCK_OF, after + 1 + len(found))
            if not rows:
                break
            try:
                block = self._unpacked(rows[0])
            except LogBroken:
                if not found:
                    raise
                return page_of(
                    found, limit
                )  # what comes before it is whole; whoever asks for it is told
            more = block[after + 1 + len(found) - block[0].position :]
            found += more
            size += sum(len(envelope.payload) for envelope in more)
        return page_of([*found, *page], limit) if found else page

    async def completed_stream(
        self, page: list[Envelope], stream: str, after: int, limit: int
    ) -> list[Envelope]:
        """The page of a stream with what of it is archived before it."""
        if limit <= 0 or (page and page[0].version == after + 1):
            return page
        found: list[Envelope] = []
        size = 0
        for row in await self._fetch(_BLOCKS_OF_STREAM, stream, after):
            blocks = await self._fetch(_BLOCK_AT, row["block"])
            if not blocks:
                raise LogBroken(
                    f"the archived block from position {row['block']} is gone; restore it from a backup"
                )
            block = self._unpacked(blocks[0])
            more = [
                envelope
                for envelope in block
                if envelope.stream == stream and envelope.version > after
            ]
            found += more
            size += sum(len(envelope.payload) for envelope in more)
            if len(found) >= limit or size >= MAX_PAGE_BYTES:
                return page_of(found, limit)
        return page_of([*found, *page], limit)

    def _unpacked(self, row: Any) -> list[Envelope]:
        return self._kept.get(bytes(row["sha256"]), lambda: _unpacked(row))


def _unpacked(row: Any) -> list[Envelope]:
    first, last, data = row["first"], row["last"], row["data"]
    if sha256(data).digest() != bytes(row["sha256"]):
        raise LogBroken(
            f"the archived block from position {first} was altered; restore it from a backup"
        )
    try:
        found = unpack(data)
    except HistoryFileError as error:
        raise LogBroken(
            f"the archived block from position {first} was altered ({error}); restore it from a backup"
        ) from error
    if [envelope.position for envelope in found] != list(range(first, last + 1)):
        raise LogBroken(
            f"the archived block from position {first} does not hold {first} to {last}; restore it from a backup"
        )
    return found
