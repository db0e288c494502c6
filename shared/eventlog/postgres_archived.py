"""Read archived events as if they were rows: pages that begin below the first row come from
compressed blocks, and pruned events from the files of the archive.

Only a page that lacks its beginning queries the archive, by one index lookup. A reader at the head
never does, because its page starts with the event at its own position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from shared.eventlog.archive_files import ArchiveFiles
from shared.eventlog.archive_place import place_of
from shared.eventlog.errors import LogBroken
from shared.eventlog.history_file import HistoryFileError, unpack
from shared.eventlog.limits import MAX_PAGE_BYTES
from shared.eventlog.pages import KeptBlocks, page_of
from shared.eventlog.port import Place
from shared.events.envelope import Envelope

_BLOCK_OF = "SELECT first, last, sha256, data FROM archived_block WHERE first <= $1 AND last >= $1"
_BLOCK_AT = "SELECT first, last, sha256, data FROM archived_block WHERE first = $1"
_PRUNED = "SELECT position, archive, (SELECT log_id FROM counter) AS log_id FROM pruned"
_OF_STREAM = """
SELECT n.position, n.archive, (SELECT log_id FROM counter) AS log_id, s.block, s.first_version,
       coalesce(p.last, n.position) AS until,
       (p.version > $2 OR EXISTS (SELECT 1 FROM stream_head WHERE stream = $1 AND version > $2))
           AND NOT EXISTS (SELECT 1 FROM fact WHERE stream = $1 AND version > $2) AS more
    FROM pruned n
    LEFT JOIN LATERAL (
        SELECT block, first_version FROM archived_stream
            WHERE stream = $1 AND last_version > $2 ORDER BY first_version LIMIT 1) s ON true
    LEFT JOIN pruned_stream p ON p.id = md5($1)::uuid
"""

# A file of a checkpoint begins with the chain of its event.
CHAIN_BYTES = 32

Fetch = Callable[..., Awaitable[list[Any]]]


class Archived:
    """The blocks of one log. `fetch` runs a query; the blocks read last are cached. `archive` is
    the place of the files, "" for the one where they were written."""

    def __init__(self, fetch: Fetch, archive: str = "") -> None:
        self._fetch, self._archive = fetch, archive
        self._kept = KeptBlocks()
        self._files: dict[str, ArchiveFiles] = {}

    async def begins(self) -> int:
        """Return the first position that can be read: 1, or the last pruned one, which the log
        keeps, if there are no files of earlier events."""
        (row,) = await self._fetch(_PRUNED)
        pruned_to = int(row["position"])
        if not pruned_to or await asyncio.to_thread(self._files_of(row).covers, pruned_to):
            return 1
        return pruned_to

    async def version_at(self, stream: str, position: int) -> int | None:
        """Return the version of a stream at a pruned position, None if it is not pruned."""
        (row,) = await self._fetch(_PRUNED)
        if position > row["position"]:
            return None
        return await asyncio.to_thread(self._files_of(row).version_at, stream, position)

    async def state(self, projection: str, form: str, until: int) -> tuple[Place, bytes] | None:
        """Return the newest checkpoint at or before a pruned position from the files."""
        (row,) = await self._fetch(_PRUNED)
        if not 0 < until <= row["position"]:
            return None
        kept = await asyncio.to_thread(self._files_of(row).state, projection, form, until)
        if kept is None:
            return None
        position, content = kept
        chain, state = content[:CHAIN_BYTES], content[CHAIN_BYTES:]
        block = await self._block(position)
        is_of_history = bool(block) and block[position - block[0].position].chain == chain
        return (Place(position, chain), state) if is_of_history else None

    async def completed(self, page: list[Envelope], after: int, limit: int) -> list[Envelope]:
        """Return the page, preceded by the archived events that belong to it."""
        if limit <= 0 or (page and page[0].position == after + 1):
            return page
        events: list[Envelope] = []
        until, size = page[0].position if page else after + limit + 1, 0
        while len(events) < limit and size < MAX_PAGE_BYTES and after + 1 + len(events) < until:
            try:
                block = await self._block(after + 1 + len(events))
            except LogBroken:
                if not events:
                    raise
                # The events before the broken block are intact; the next read raises.
                return page_of(events, limit)
            if not block:
                break
            more = block[after + 1 + len(events) - block[0].position :]
            events += more
            size += sum(len(envelope.payload) for envelope in more)
        if limit == 1 and events:
            (row,) = await self._fetch(_PRUNED)
            if row["position"] >= events[0].position:
                self._files_of(row).note(events[0])
        return page_of([*events, *page], limit) if events else page

    async def completed_stream(
        self, page: list[Envelope], stream: str, after: int, limit: int
    ) -> list[Envelope]:
        """Return the page of a stream, or its archived events before the page: those of one block,
        because most readers need no other.
        """
        if limit <= 0 or (page and page[0].version == after + 1):
            return page
        (row,) = await self._fetch(_OF_STREAM, stream, after)
        first = row["first_version"] or (page[0].version if page else 0)
        if row["position"] and (first > after + 1 if first else row["more"]):
            events = await asyncio.to_thread(
                self._files_of(row).of_stream, stream, after, row["until"]
            )
            return page_of(events, limit)
        if row["block"] is None:
            return page
        blocks = await self._fetch(_BLOCK_AT, row["block"])
        if not blocks:
            raise LogBroken(
                f"the archived block from position {row['block']} is missing; "
                "restore it from a backup"
            )
        block = self._unpacked(blocks[0])
        events = [event for event in block if event.stream == stream and event.version > after]
        return page_of(events, limit)

    async def _block(self, position: int) -> list[Envelope]:
        """Return the block that holds a position, empty if the event is a row or does not exist."""
        for row in await self._fetch(_BLOCK_OF, position):
            return self._unpacked(row)
        (row,) = await self._fetch(_PRUNED)
        if position > row["position"]:
            return []
        return await asyncio.to_thread(self._files_of(row).block_of, position)

    def _files_of(self, row: Any) -> ArchiveFiles:
        archive = self._archive or row["archive"]
        if archive not in self._files:
            self._files[archive] = ArchiveFiles(place_of(archive), row["log_id"])
        return self._files[archive]

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
