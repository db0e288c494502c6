"""A history as a file: what an export writes, an archive keeps, and replay reads as if it were the
log.

JSON lines, compressed by gzip (`zcat` shows them): a header that says whose history it is, a line a
fact, and an end with the count and a SHA-256 of everything before it. Every block of lines is a
gzip member of its own, so that a reader may begin in the middle. Payloads stand byte for byte as
they were appended, so that the hash chain can be followed. Must not know databases.
"""

from __future__ import annotations

import gzip
import stat
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

from shared.eventlog.chain import linked
from shared.eventlog.history_values import event_problem, header_problem, shown
from shared.eventlog.pages import cut
from shared.events.envelope import Envelope

SUFFIX = ".topolog.gz"
FORMAT, VERSION = "topolog-history", 1
BLOCK_FACTS, BLOCK_BYTES = 2_000, 8 << 20
LEVEL = 6
LIMIT_BLOCK_BYTES = 256 << 20
"""What one block may be when it is unpacked: more than was ever written, when blocks were bounded by number alone."""
_CHUNK = 1 << 20


class HistoryFileError(Exception):
    """The file is no history, or was cut or altered. Names the file; the remedy is another copy of
    it.
    """


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is the chain ahead of `first` (hex), `redacted` position -> SHA-256 (hex) of
    payloads that were redacted, in this file, wherever the fact stands that says so; `checkpoints`
    how far consumers had come, at most `last`."""

    format: str = FORMAT
    version: int = VERSION
    log_id: str
    timeline: int
    first: int
    last: int
    before: str = ""
    redacted: dict[int, str] = {}
    checkpoints: dict[str, int] = {}


class _Row(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A fact's line. `payload` is the fact itself; one that is no JSON on one line stands in
    `base64`.
    """

    position: int
    stream: str
    version: int
    type: str
    schema: int
    time_us: int
    role: str
    epoch: int
    commit_id: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    correlation: str = ""
    causation: int = 0
    trace: str = ""
    chain: str = ""
    base64: str = ""


class _End(msgspec.Struct, frozen=True, rename={"events": "facts"}):
    events: int
    sha256: str


_row_decoder = msgspec.json.Decoder(_Row)
_encoder = msgspec.json.Encoder()


def line_of(envelope: Envelope) -> bytes:
    """The fact's line."""
    inline = _one_line_of_json(envelope.payload)
    row = _Row(
        envelope.position, envelope.stream, envelope.version, envelope.type, envelope.schema, envelope.time_us, envelope.role,
        envelope.epoch, envelope.commit_id, msgspec.Raw(envelope.payload if inline else b"null"), envelope.correlation,
        envelope.causation, envelope.trace, envelope.chain.hex(), "" if inline else b64encode(envelope.payload).decode(),
    )  # fmt: skip
    return _encoder.encode(row) + b"\n"


def _one_line_of_json(payload: bytes) -> bool:
    if (
        b"\n" in payload
        or b"\r" in payload
        or not payload
        or payload[:1].isspace()
        or payload[-1:].isspace()
    ):
        return False
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def envelope_of(line: bytes) -> Envelope:
    """The inverse. Raises msgspec.MsgspecError or ValueError for what no export wrote."""
    row = _row_decoder.decode(line)
    payload = b64decode(row.base64, validate=True) if row.base64 else bytes(row.payload)
    return Envelope(
        row.position, row.stream, row.version, row.type, row.schema, payload, row.time_us, row.role, row.epoch, row.commit_id,
        row.correlation, row.causation, row.trace, bytes.fromhex(row.chain),
    )  # fmt: skip


def pack(envelopes: Sequence[Envelope]) -> bytes:
    """A block: the lines of these facts, compressed, the same for the same facts."""
    return gzip.compress(b"".join(map(line_of, envelopes)), LEVEL, mtime=0)


def unpack(block: bytes) -> list[Envelope]:
    """The facts of a block. Raises HistoryFileError."""
    try:
        return [envelope_of(line) for line in gzip.decompress(block).splitlines()]
    except (
        OSError,
        EOFError,
        zlib.error,
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ) as error:
        raise HistoryFileError(f"a block of archived facts cannot be read: {error}") from error


class Writer:
    """Writes one file: the header at once, then facts, then the end."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file, self._digest, self._events = file, sha256(), 0
        self._put(_encoder.encode(header) + b"\n")

    def add(self, envelopes: Sequence[Envelope]) -> None:
        """The next facts, a block for every BLOCK_FACTS of them, or BLOCK_BYTES."""
        for block in cut(envelopes, BLOCK_FACTS, BLOCK_BYTES):
            self._put(b"".join(map(line_of, block)))
            self._events += len(block)

    def end(self) -> str:
        """Close the history; the SHA-256 of its lines."""
        digest = self._digest.hexdigest()
        self._put(_encoder.encode(_End(self._events, digest)) + b"\n")
        return digest

    def _put(self, text: bytes) -> None:
        self._digest.update(text)
        self._file.write(gzip.compress(text, LEVEL, mtime=0))


class Block(msgspec.Struct, frozen=True):
    """Where a block of facts lies in the file, in bytes."""

    offset: int
    size: int
    envelopes: list[Envelope]


def header_of(path: Path) -> Header:
    """The file's first line. Raises HistoryFileError."""
    with _opened(path) as file:
        for _, _, text in _members(file, path):
            return _header(text, path)
    raise HistoryFileError(f"{path} is empty")


def checked(path: Path) -> Iterator[Header | Block]:
    """The header, then every block, each checked: order, chain, and at the end count and hash.
    Raises HistoryFileError.
    """
    with _opened(path) as file:
        digest, header, chain, position, told = sha256(), None, b"", 0, ""
        for offset, size, text in _members(file, path):
            if header is None:
                header = _header(text, path)
                chain, position = bytes.fromhex(header.before), header.first - 1
                yield header
            elif text.startswith(b'{"facts":'):
                _check_end(text, position - header.first + 1, digest.hexdigest(), path)
                told = digest.hexdigest()
                break
            else:
                block = Block(offset, size, _events(text, position, path))
                position, chain = _follow(block.envelopes, position, chain, header.redacted, path)
                yield block
            digest.update(text)
        if not told or header is None or position != header.last:
            raise HistoryFileError(f"{path} was cut: it ends after position {position}")


def _opened(path: Path) -> BinaryIO:
    """Read from the beginning, and later from the middle: a pipe, or a device that never ends, is
    none.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise HistoryFileError(f"{path} is no regular file")
        return path.open("rb")
    except OSError as error:
        raise HistoryFileError(f"{path} cannot be read: {error.strerror}") from error


def _header(text: bytes, path: Path) -> Header:
    try:
        header = msgspec.json.decode(text, type=Header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HistoryFileError(f"{path} is no history of Topolog: {error}") from error
    if header.format != FORMAT:
        raise HistoryFileError(
            f"{path} is no history of Topolog: its header says {header.format[:80]!r}"
        )
    if header.version > VERSION:
        newer = f"format {shown(header.version)}, this one reads {VERSION}"
        raise HistoryFileError(f"{path} was written by a newer release ({newer})")
    if problem := header_problem(
        header.log_id,
        header.timeline,
        header.first,
        header.last,
        header.before,
        header.redacted,
        header.checkpoints,
    ):
        raise HistoryFileError(f"{path} is no history of Topolog: {problem}")
    return header


def _events(text: bytes, after: int, path: Path) -> list[Envelope]:
    """The facts of a block that begins after a position."""
    found: list[Envelope] = []
    for position, line in enumerate(text.splitlines(), after + 1):
        try:
            found.append(envelope_of(line))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise HistoryFileError(
                f"{path}: at position {position} is a line that is no fact: {error}"
            ) from error
        if problem := event_problem(found[-1]):
            raise HistoryFileError(
                f"{path}: the fact at position {position} is none that a log takes: {problem}"
            )
    if not found:
        raise HistoryFileError(f"{path}: after position {after} comes a block without facts")
    return found


def _check_end(text: bytes, events: int, digest: str, path: Path) -> None:
    try:
        end = msgspec.json.decode(text, type=_End)
    except msgspec.MsgspecError as error:
        raise HistoryFileError(f"{path} does not end as a history ends: {error}") from error
    if (end.events, end.sha256) != (events, digest):
        raise HistoryFileError(
            f"{path} was altered: its {events} facts do not have the hash that its end names"
        )


def _follow(
    events: Sequence[Envelope], position: int, chain: bytes, redacted: Mapping[int, str], path: Path
) -> tuple[int, bytes]:
    """Position and chain after these facts."""
    for event in events:
        if event.position != position + 1:
            raise HistoryFileError(
                f"{path}: after position {position} comes {shown(event.position)}"
            )
        computed = linked(chain, event)
        known = bool(event.chain) and bool(chain or position == 0)
        if known and event.chain not in (computed, _as_before(chain, event, redacted)):
            raise HistoryFileError(
                f"{path} was altered: position {event.position} is not what was appended"
            )
        position, chain = event.position, event.chain or computed
    return position, chain


def _as_before(chain: bytes, event: Envelope, redacted: Mapping[int, str]) -> bytes:
    digest = redacted.get(event.position, "")
    return linked(chain, event, bytes.fromhex(digest)) if digest else b""


def _members(file: BinaryIO, path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(offset, size, text) of each gzip member."""
    data, offset = b"", 0
    while data := data or file.read(_CHUNK):
        unpacker, parts, size, room = zlib.decompressobj(wbits=31), [], 0, LIMIT_BLOCK_BYTES
        try:
            while not unpacker.eof:
                if not data and not (data := file.read(_CHUNK)):
                    raise HistoryFileError(
                        f"{path} was cut in the middle of a block, at byte {offset + size}"
                    )
                parts.append(unpacker.decompress(data, room))
                room -= len(parts[-1])
                if room <= 0:
                    raise HistoryFileError(
                        f"{path}: the block at byte {offset} is larger than any export writes"
                    )
                size += len(data) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
                data = unpacker.unconsumed_tail or unpacker.unused_data
        except zlib.error as error:
            raise HistoryFileError(
                f"{path} is no compressed history, or is damaged at byte {offset}: {error}"
            ) from error
        yield offset, size, b"".join(parts)
        offset += size
