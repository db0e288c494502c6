"""Pruned events: read them from the files that `topolog log archive --to` and `prune` wrote.

A file is not verified when it is opened, because it may be one of thousands. Its blocks are gzip
members, which begin with the same bytes, so a reader finds them without unpacking what lies before.
Every block is checked when it is read: gzip's checksum, and positions without a hole.
"""

from __future__ import annotations

import mmap
import re
import zlib
from bisect import bisect_right
from pathlib import Path
from threading import Lock

import msgspec

from shared.eventlog.archive_place import Place
from shared.eventlog.errors import LogBroken, LogPruned
from shared.eventlog.history_file import SUFFIX, HistoryFileError, header_of, unpack
from shared.eventlog.pages import KeptBlocks
from shared.events.envelope import Envelope

_NAME = re.compile(rf"facts-(\d+)-(\d+){re.escape(SUFFIX)}")
# What `history_file.pack` writes first, of any zlib.
_MEMBER = re.compile(rb"\x1f\x8b\x08\x00\x00\x00\x00\x00[\x00\x02\x04].", re.DOTALL)
_POSITION = re.compile(rb'{"position":(\d+),')
_HEAD_BYTES = 4096
# Streams whose blocks are remembered.
_SEARCHED = 100


def file_name(first: int, last: int) -> str:
    """Return the name of the file of these positions."""
    return f"facts-{first:016}-{last:016}{SUFFIX}"


class _File(msgspec.Struct, frozen=True):
    """`starts` are the first positions of the blocks, at `offsets`, which also has the end."""

    name: str
    starts: list[int]
    offsets: list[int]


class ArchiveFiles:
    """The files of one log. Raises LogPruned if one is missing, LogBroken if one was altered. Calls
    from several threads wait for each other, because a file may first have to be fetched."""

    def __init__(self, place: Place, log_id: str) -> None:
        self._place, self._log_id = place, log_id
        self._lock = Lock()
        self._files: dict[int, _File] = {}
        self._kept = KeptBlocks()
        # By stream, the newest first: the first version in a block, and the block's first position.
        self._searched: dict[str, list[tuple[int, int]]] = {}

    def covers(self, last: int) -> bool:
        """Return whether there are files of positions 1 to `last`."""
        reached = 0
        try:
            for first, until in self.named():
                reached = until if first == reached + 1 else reached
        except OSError:
            return False
        return reached >= last

    def block_of(self, position: int) -> list[Envelope]:
        """Return the events of the block that holds this position."""
        with self._lock:
            return self._block_of(position)

    def _block_of(self, position: int) -> list[Envelope]:
        file, number = self._found(position)
        return self._kept.get(file.starts[number], lambda: self._block(file, number))

    def of_stream(self, stream: str, after: int, until: int) -> list[Envelope]:
        """Return events of a stream after a version up to position `until`: those of one block.

        The search goes from `until` back, and remembers what it has passed."""
        with self._lock:
            return self._of_stream(stream, after, until)

    def _of_stream(self, stream: str, after: int, until: int) -> list[Envelope]:
        if len(self._searched) > _SEARCHED:
            self._searched.clear()
        passed = self._searched.setdefault(stream, [])
        position = passed[-1][1] - 1 if passed else until
        needle = b'"stream":' + msgspec.json.encode(stream) + b","
        while position > 0 and (not passed or passed[-1][0] > after + 1):
            file, number = self._found(position)
            start = file.starts[number]
            if needle in self._text(file, number):
                block = self._block_of(start)
                versions = [event.version for event in block if event.stream == stream]
                passed.append((versions[0], start))
            position = start - 1
        start = next((start for first, start in passed if first <= after + 1), 0)
        if not start:
            raise LogBroken(f"no file in {self._place} has version {after + 1} of {stream}")
        return [
            event
            for event in self._block_of(start)
            if event.stream == stream and event.version > after and event.position <= until
        ]

    def named(self, again: bool = False) -> list[tuple[int, int]]:
        """Return the first and last position of each file, in order. Raises OSError."""
        matches = [_NAME.fullmatch(name) for name in self._place.names(again)]
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def _found(self, position: int) -> tuple[_File, int]:
        """Return the file and the number of the block that hold a position."""
        try:
            first, last = (
                self._named_at(position, False) or self._named_at(position, True) or (0, 0)
            )
            problem = "has no file with it"
        except OSError as error:
            first, problem = 0, f"cannot be read: {error.strerror}"
        if not first:
            raise LogPruned(
                f"position {position} is in files of the archive only, and {self._place} "
                f"{problem}; mount or copy the archive there, or set TOPOLOG_ARCHIVE"
            )
        if first not in self._files:
            self._files[first] = self._opened(file_name(first, last))
        file = self._files[first]
        return file, bisect_right(file.starts, position) - 1

    def _named_at(self, position: int, again: bool) -> tuple[int, int] | None:
        return max(
            (pair for pair in self.named(again) if pair[0] <= position <= pair[1]), default=None
        )

    def _path(self, name: str) -> Path:
        try:
            return self._place.path(name)
        except OSError as error:
            raise LogPruned(f"{self._place}/{name} cannot be read: {error.strerror}") from error

    def _opened(self, name: str) -> _File:
        path, starts, offsets = self._path(name), list[int](), list[int]()
        try:
            if header_of(path).log_id != self._log_id:
                raise LogBroken(f"{self._place}/{name} is a file of another log")
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                for member in _MEMBER.finditer(data):
                    head = data[member.start() : member.start() + _HEAD_BYTES]
                    line = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
                    if position := _POSITION.match(line):
                        starts.append(int(position[1]))
                        offsets.append(member.start())
                    elif starts:
                        offsets.append(member.start())
        except OSError as error:
            raise LogPruned(f"{path} cannot be read: {error.strerror}") from error
        except (HistoryFileError, zlib.error) as error:
            raise self._altered(name, error) from error
        if len(offsets) != len(starts) + 1:
            raise self._altered(name, "its end is missing")
        return _File(name, starts, offsets)

    def _raw(self, file: _File, number: int) -> bytes:
        path = self._path(file.name)
        try:
            with path.open("rb") as opened:
                opened.seek(file.offsets[number])
                return opened.read(file.offsets[number + 1] - file.offsets[number])
        except OSError as error:
            raise LogPruned(f"{path} cannot be read: {error.strerror}") from error

    def _text(self, file: _File, number: int) -> bytes:
        try:
            return zlib.decompress(self._raw(file, number), wbits=31)
        except zlib.error as error:
            raise self._altered(file.name, error) from error

    def _block(self, file: _File, number: int) -> list[Envelope]:
        try:
            block = unpack(self._raw(file, number))
        except HistoryFileError as error:
            raise self._altered(file.name, error) from error
        first = file.starts[number]
        if [event.position for event in block] != list(range(first, first + len(block))):
            raise self._altered(file.name, f"positions after {first - 1} are missing")
        return block

    def _altered(self, name: str, problem: object) -> LogBroken:
        return LogBroken(
            f"{self._place}/{name} was altered ({problem}); restore it from another copy"
        )
