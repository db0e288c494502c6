"""Pruned events: read them from the files that `topolog log archive --to` and `prune` wrote.

A file is not verified when it is opened, because it may be one of thousands. Its blocks are gzip
members, which begin with the same bytes, so a reader finds them without unpacking what lies before.
Every block is checked when it is read: gzip's checksum, and positions without a hole.
"""

from __future__ import annotations

import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import BinaryIO

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
_MEMBER_BYTES, _HEAD_BYTES = 10, 4096
_CHUNK = 1 << 20
# Names of checkpoints' files begin so.
STATE = "state-"
# Streams that are remembered with their blocks.
_SEARCHED = 10_000


def file_name(first: int, last: int) -> str:
    """Return the name of the file of these positions."""
    return f"facts-{first:016}-{last:016}{SUFFIX}"


def state_name(projection: str, form: str, position: int) -> str:
    """Return the name of a checkpoint's file."""
    return f"{_state_prefix(projection, form)}{position:016}"


def _state_prefix(projection: str, form: str) -> str:
    return f"{STATE}{projection}-{form.replace(' ', '-')}-"


class _File(msgspec.Struct, frozen=True):
    """`starts` are the first positions of the blocks, at `offsets`, which also has the end."""

    name: str
    last: int
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
        # By stream: the version that was found last, and a position in its block.
        self._reached: dict[str, tuple[int, int]] = {}

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

        The search goes forward from the version that was found last, or from the beginning, and
        back from `until`, in turns. It remembers the passed blocks."""
        with self._lock:
            start = self._block_with(stream, after + 1, until)
            events = [
                event
                for event in self._block_of(start)
                if event.stream == stream and event.version > after and event.position <= until
            ]
            self._reached[stream] = events[-1].version, start
            return events

    def _block_with(self, stream: str, version: int, until: int) -> int:
        """Return the first position of the block that has this version of a stream."""
        if len(self._reached) > _SEARCHED:
            self._searched.clear()
            self._reached.clear()
        passed = self._searched.setdefault(stream, [])
        if passed and passed[-1][0] <= version:
            return next(start for first, start in passed if first <= version)
        reached, ahead = self._reached.get(stream, (0, 1))
        behind = passed[-1][1] - 1 if passed else until
        if reached >= version:
            # What is wanted lies before what was found last, far from `until`.
            passed, ahead, behind = [], 0, ahead
        while behind > 0:
            if 0 < ahead <= behind:
                first, last, start, ahead = self._versions_at(stream, ahead)
                if first <= version <= last:
                    return start
            first, _, start, _ = self._versions_at(stream, behind)
            if first:
                passed.append((first, start))
                if first <= version:
                    return start
            behind = start - 1
        raise LogBroken(f"no file in {self._place} has version {version} of {stream}")

    def version_at(self, stream: str, position: int) -> int:
        """Return the version of a stream at a position, by the events before it."""
        with self._lock:
            while position > 0:
                first, _, start, _ = self._versions_at(stream, position)
                if first:
                    versions = [
                        event.version
                        for event in self._block_of(start)
                        if event.stream == stream and event.position <= position
                    ]
                    if versions:
                        self._reached[stream] = versions[-1], start
                        return versions[-1]
                position = start - 1
            return 0

    def note(self, event: Envelope) -> None:
        """Remember an event that was found by its position: its stream may be read next."""
        with self._lock:
            self._reached[event.stream] = event.version - 1, event.position

    def _versions_at(self, stream: str, position: int) -> tuple[int, int, int, int]:
        """Return the first and last version of a stream in the block of a position (0: none), and
        the first positions of this and of the next block."""
        file, number = self._found(position)
        start = file.starts[number]
        following = file.starts[number + 1] if number + 1 < len(file.starts) else file.last + 1
        versions = [0]
        if b'"stream":' + msgspec.json.encode(stream) + b"," in self._text(file, number):
            versions = [e.version for e in self._block_of(start) if e.stream == stream] or [0]
        return versions[0], versions[-1], start, following

    def state(self, projection: str, form: str, until: int) -> tuple[int, bytes] | None:
        """Return the position and the content of the newest file of a checkpoint at or before
        `until`; None if there is none that can be read."""
        prefix = _state_prefix(projection, form)
        with self._lock:
            try:
                names = [name for name in self._place.names() if name.startswith(prefix)]
                newest = max((n for n in names if int(n[len(prefix) :]) <= until), default="")
                return (
                    (int(newest[len(prefix) :]), self._place.path(newest).read_bytes())
                    if newest
                    else None
                )
            except (OSError, ValueError):
                return None

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
            self._files[first] = self._opened(file_name(first, last), last)
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

    def _opened(self, name: str, last: int) -> _File:
        path, starts, offsets = self._path(name), list[int](), list[int]()
        try:
            if header_of(path).log_id != self._log_id:
                raise LogBroken(f"{self._place}/{name} is a file of another log")
            with path.open("rb") as file:
                for offset in _members(file):
                    head = os.pread(file.fileno(), _HEAD_BYTES, offset)
                    line = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
                    if position := _POSITION.match(line):
                        starts.append(int(position[1]))
                        offsets.append(offset)
                    elif starts:
                        offsets.append(offset)
        except OSError as error:
            raise LogPruned(f"{path} cannot be read: {error.strerror}") from error
        except (HistoryFileError, zlib.error) as error:
            raise self._altered(name, error) from error
        if len(offsets) != len(starts) + 1:
            raise self._altered(name, "its end is missing")
        return _File(name, last, starts, offsets)

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


def _members(file: BinaryIO) -> Iterator[int]:
    """Yield where gzip members begin, in chunks: a mapped file would count as memory."""
    data, begin = b"", 0
    while chunk := file.read(_CHUNK):
        data += chunk
        for member in _MEMBER.finditer(data):
            yield begin + member.start()
        begin += max(0, len(data) - _MEMBER_BYTES + 1)
        data = data[-_MEMBER_BYTES + 1 :]
