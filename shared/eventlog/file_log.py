"""A log that is read from files: one export, or a folder of archived ones. Read-only.

The files are verified once, when they are opened. A block is unpacked on demand, and few are
cached.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from shared.eventlog.errors import LogBroken, LogUnavailable
from shared.eventlog.history_file import (
    SUFFIX,
    Block,
    Header,
    HistoryFileError,
    checked,
    header_of,
    unpack,
)
from shared.eventlog.limits import MAX_PAGE
from shared.eventlog.pages import KeptBlocks, page_of
from shared.eventlog.port import Commit, Lease, LogIdentity, Lost, Mark, Outcome, Place, PodNames
from shared.events.envelope import Envelope


class _BlockPlace(msgspec.Struct, frozen=True):
    path: Path
    first: int
    offset: int
    size: int


class FileLog:
    """An EventLog for readers. Raises HistoryFileError if the file is not a history."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._headers = headers
        self.first, self.last = headers[0].first, headers[-1].last
        # As the headers say; `redactions` also reads the events.
        self.redacted = {
            position: digest for header in headers for position, digest in header.redacted.items()
        }
        self._blocks: list[_BlockPlace] = []
        self._starts: list[int] = []
        self._streams: dict[str, array[int]] = {}
        self._heads: dict[str, int] = {}
        self._kept = KeptBlocks()

    @classmethod
    def open(cls, path: Path) -> FileLog:
        """Open a file, or all histories of a folder, which must continue each other."""
        try:
            files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        except OSError as error:
            raise HistoryFileError(f"{path} cannot be read: {error.strerror}") from error
        if not files:
            raise HistoryFileError(f"{path} holds no *{SUFFIX}")
        ordered = sorted(
            ((header_of(file), file) for file in files), key=lambda pair: pair[0].first
        )
        log = cls([header for header, _ in ordered])
        for (previous, _), (following, file) in pairwise(ordered):
            if following.log_id != previous.log_id or following.first != previous.last + 1:
                raise HistoryFileError(
                    f"{file} begins at {following.first} and does not continue the file that ends "
                    f"at {previous.last}"
                )
        for _, file in ordered:
            for item in checked(file):
                if isinstance(item, Block):
                    log._learn(file, item)
        return log

    def _learn(self, path: Path, block: Block) -> None:
        self._blocks.append(
            _BlockPlace(path, block.envelopes[0].position, block.offset, block.size)
        )
        self._starts.append(block.envelopes[0].position)
        for envelope in block.envelopes:
            self._streams.setdefault(envelope.stream, array("q")).append(envelope.position)
            self._heads[envelope.stream] = envelope.version

    async def identity(self) -> LogIdentity:
        return LogIdentity(self._headers[-1].log_id, self._headers[-1].timeline)

    async def head(self) -> int:
        return self.last

    async def begins(self) -> int:
        return self.first

    async def size_bytes(self) -> int:
        return sum(block.size for block in self._blocks)

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        return page_of(self._from(max(after + 1, self.first)), min(limit, MAX_PAGE))

    async def read_stream(
        self, stream: str, after_version: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        positions = self._streams.get(stream)
        if positions is None:
            return []
        start = max(0, after_version - (self._heads[stream] - len(positions)))
        limit = min(limit, MAX_PAGE)
        return page_of((self._at(position) for position in positions[start : start + limit]), limit)

    async def version_at(self, stream: str, position: int) -> int:
        positions = self._streams.get(stream, array("q"))
        return self._heads.get(stream, 0) - len(positions) + bisect_right(positions, position)

    async def pods_named(self, name: str) -> PodNames:
        return PodNames([], self.last)

    async def pods_on(self, node: str) -> PodNames:
        return PodNames([], self.last)

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        return {stream: self._heads.get(stream, 0) for stream in streams}

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Return False after the timeout: a file does not grow."""
        if self.last <= after:
            await asyncio.sleep(timeout_s)
        return self.last > after

    async def load_checkpoint(self, consumer: str) -> int:
        return self._headers[-1].checkpoints.get(consumer, 0)

    async def load_snapshot(
        self, projection: str, fingerprint: str, until: int | None = None
    ) -> tuple[Place, bytes] | None:
        return None

    async def marks(self, projection: str) -> list[Mark]:
        return []

    async def close(self) -> None:
        self._kept.clear()

    def _from(self, position: int) -> Iterator[Envelope]:
        for number in range(max(0, bisect_right(self._starts, position) - 1), len(self._blocks)):
            block = self._unpacked(number)
            yield from block[max(0, position - block[0].position) :]

    def _at(self, position: int) -> Envelope:
        block = self._unpacked(bisect_right(self._starts, position) - 1)
        return block[position - block[0].position]

    def _unpacked(self, number: int) -> list[Envelope]:
        return self._kept.get(number, lambda: _unpacked(self._blocks[number]))

    # -- what a file cannot do
    # -----------------------------------------------------------------------------------------

    async def begin_timeline(self, now_us: int, lost: Lost | None = None) -> LogIdentity:
        raise self._fixed()

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        raise self._fixed()

    async def acquire(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        raise self._fixed()

    async def release(self, lease: Lease) -> None:
        raise self._fixed()

    async def members(self, role: str) -> list[Lease]:
        raise self._fixed()

    async def save_checkpoint(self, consumer: str, position: int, expected: int) -> bool:
        raise self._fixed()

    async def save_snapshot(
        self, projection: str, fingerprint: str, place: Place, state: bytes
    ) -> None:
        raise self._fixed()

    async def save_mark(self, projection: str, mark: Mark) -> None:
        raise self._fixed()

    def _fixed(self) -> LogUnavailable:
        return LogUnavailable(
            "a history file is read-only; give --database-url of a running log, or --data-dir"
        )


def _unpacked(place: _BlockPlace) -> list[Envelope]:
    try:
        with place.path.open("rb") as file:
            file.seek(place.offset)
            return unpack(file.read(place.size))
    except OSError as error:
        raise LogUnavailable(f"{place.path} cannot be read any more: {error.strerror}") from error
    except HistoryFileError as error:
        raise LogBroken(
            f"{place.path} was altered while it was read: {error}; try again with another copy"
        ) from error
