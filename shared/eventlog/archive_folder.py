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

import msgspec

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

    path: Path
    starts: list[int]
    offsets: list[int]


class ArchiveFolder:
    """The files of one log. Raises LogPruned if one is missing, LogBroken if one was altered."""

    def __init__(self, folder: Path, log_id: str) -> None:
        self._folder, self._log_id = folder, log_id
        self._files: dict[int, _File] = {}
        self._kept = KeptBlocks()
        # By stream, the newest first: the first version in a block, and the block's first position.
        self._searched: dict[str, list[tuple[int, int]]] = {}

    def covers(self, last: int) -> bool:
        """Return whether there are files of positions 1 to `last`."""
        reached = 0
        for first, until in self.named():
            reached = until if first == reached + 1 else reached
        return reached >= last

    def block_of(self, position: int) -> list[Envelope]:
        """Return the events of the block that holds this position."""
        file, number = self._place(position)
        return self._kept.get(file.starts[number], lambda: self._block(file, number))

    def of_stream(self, stream: str, after: int, until: int) -> list[Envelope]:
        """Return events of a stream after a version up to position `until`: those of one block.

        The search goes from `until` back, and remembers what it has passed."""
        if len(self._searched) > _SEARCHED:
            self._searched.clear()
        passed = self._searched.setdefault(stream, [])
        position = passed[-1][1] - 1 if passed else until
        needle = b'"stream":' + msgspec.json.encode(stream) + b","
        while position > 0 and (not passed or passed[-1][0] > after + 1):
            file, number = self._place(position)
            start = file.starts[number]
            if needle in self._text(file, number):
                block = self.block_of(start)
                versions = [event.version for event in block if event.stream == stream]
                passed.append((versions[0], start))
            position = start - 1
        start = next((start for first, start in passed if first <= after + 1), 0)
        if not start:
            raise LogBroken(f"no file in {self._folder} has version {after + 1} of {stream}")
        return [
            event
            for event in self.block_of(start)
            if event.stream == stream and event.version > after and event.position <= until
        ]

    def named(self) -> list[tuple[int, int]]:
        """Return the first and last position of each file, in order."""
        try:
            matches = [_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        except OSError:
            return []
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def _place(self, position: int) -> tuple[_File, int]:
        first, last = max(
            (pair for pair in self.named() if pair[0] <= position <= pair[1]), default=(0, 0)
        )
        if not first:
            raise LogPruned(
                f"position {position} is in files of the archive only, and {self._folder} has no "
                "file with it; mount or copy the archive there"
            )
        if first not in self._files:
            self._files[first] = self._opened(self._folder / file_name(first, last))
        file = self._files[first]
        return file, bisect_right(file.starts, position) - 1

    def _opened(self, path: Path) -> _File:
        starts, offsets = [], []
        try:
            if header_of(path).log_id != self._log_id:
                raise LogBroken(f"{path} is a file of another log")
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
            raise _altered(path, error) from error
        if len(offsets) != len(starts) + 1:
            raise _altered(path, "its end is missing")
        return _File(path, starts, offsets)

    def _raw(self, file: _File, number: int) -> bytes:
        try:
            with file.path.open("rb") as opened:
                opened.seek(file.offsets[number])
                return opened.read(file.offsets[number + 1] - file.offsets[number])
        except OSError as error:
            raise LogPruned(f"{file.path} cannot be read: {error.strerror}") from error

    def _text(self, file: _File, number: int) -> bytes:
        try:
            return zlib.decompress(self._raw(file, number), wbits=31)
        except zlib.error as error:
            raise _altered(file.path, error) from error

    def _block(self, file: _File, number: int) -> list[Envelope]:
        try:
            block = unpack(self._raw(file, number))
        except HistoryFileError as error:
            raise _altered(file.path, error) from error
        first = file.starts[number]
        if [event.position for event in block] != list(range(first, first + len(block))):
            raise _altered(file.path, f"positions after {first - 1} are missing")
        return block


def _altered(path: Path, problem: object) -> LogBroken:
    return LogBroken(f"{path} was altered ({problem}); restore it from another copy")
