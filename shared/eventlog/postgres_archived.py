"""Reading archived facts as if they were rows: pages that begin below the first row come out of compressed blocks.

Only a page that lacks its beginning asks here, by one look at an index: a reader at the head, whose page holds the fact that it
stands on, never does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from shared.eventlog.errors import LogBroken
from shared.eventlog.history_file import HistoryFileError, unpack
from shared.events.envelope import Envelope

_BLOCK_OF = "SELECT first, sha256, data FROM archived_block WHERE first <= $1 AND last >= $1"
_BLOCK_AT = "SELECT first, sha256, data FROM archived_block WHERE first = $1"
_BLOCKS_OF_STREAM = """
SELECT block FROM archived_stream WHERE stream = $1 AND last_version > $2 ORDER BY first_version LIMIT 64
"""
KEPT = 4

Fetch = Callable[..., Awaitable[list[Any]]]


class Archived:
    """The blocks of one log. `fetch` runs a query; blocks that were read last are kept."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._kept: dict[bytes, list[Envelope]] = {}

    async def completed(self, page: list[Envelope], after: int, limit: int) -> list[Envelope]:
        """The page with what of it is archived before it."""
        if limit <= 0 or (page and page[0].position == after + 1):
            return page
        found: list[Envelope] = []
        until = page[0].position if page else after + limit + 1
        while len(found) < limit and after + 1 + len(found) < until:
            rows = await self._fetch(_BLOCK_OF, after + 1 + len(found))
            if not rows:
                break
            block = self._unpacked(rows[0])
            found += block[after + 1 + len(found) - block[0].position :]
        return [*found, *page][:limit] if found else page

    async def completed_stream(self, page: list[Envelope], stream: str, after: int, limit: int) -> list[Envelope]:
        """The page of a stream with what of it is archived before it."""
        if limit <= 0 or (page and page[0].version == after + 1):
            return page
        found: list[Envelope] = []
        for row in await self._fetch(_BLOCKS_OF_STREAM, stream, after):
            block = self._unpacked((await self._fetch(_BLOCK_AT, row["block"]))[0])
            found += [envelope for envelope in block if envelope.stream == stream and envelope.version > after]
            if len(found) >= limit:
                return found[:limit]
        return [*found, *page][:limit]

    def _unpacked(self, row: Any) -> list[Envelope]:
        digest = bytes(row["sha256"])
        if digest not in self._kept:
            if sha256(row["data"]).digest() != digest:
                raise LogBroken(f"the archived block from position {row['first']} was altered; restore it from a backup")
            try:
                self._kept[digest] = unpack(row["data"])
            except HistoryFileError as error:
                raise LogBroken(f"the archived block from position {row['first']}: {error}") from error
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return self._kept[digest]
