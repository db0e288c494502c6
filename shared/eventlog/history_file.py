"""A history as a file: exports and archives write it, and replay reads it like the log.

JSON lines, compressed by gzip (`zcat` shows them): a header that identifies the history, one line
for each event, and an end line with the count and a SHA-256 of everything before it. Every block of
lines is a gzip member of its own, so that a reader can start in the middle. Payloads are stored
byte for byte, so that the hash chain can be verified. Must not know databases.
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
# An unpacked block may be this large: more than any release wrote, even when blocks were bounded
# only by the number of events.
LIMIT_BLOCK_BYTES = 256 << 20
_CHUNK = 1 << 20


class HistoryFileError(Exception):
    """The file is not a history, or was cut or altered. The remedy is another copy of it."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is the chain before `first` (hex). `redacted` maps each redacted position in this
    file to the SHA-256 (hex) of its original payload, even if the event that says so is not in the
    file. `checkpoints` are the positions of consumers, at most `last`."""

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
    """An event's line. `payload` is the event itself; a payload that is not JSON on one line is
    in `base64`.
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
    inline = _one_line_of_json(envelope.payload)
    row = _Row(
        envelope.position, envelope.stream, envelope.version, envelope.type, envelope.schema,
        envelope.time_us, envelope.role, envelope.epoch, envelope.commit_id,
        msgspec.Raw(envelope.payload if inline else b"null"), envelope.correlation,
        envelope.causation, envelope.trace, envelope.chain.hex(),
        "" if inline else b64encode(envelope.payload).decode(),
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
    """Parse a line. Raises msgspec.MsgspecError or ValueError for a line that no export wrote."""
    row = _row_decoder.decode(line)
    payload = b64decode(row.base64, validate=True) if row.base64 else bytes(row.payload)
    return Envelope(
        row.position, row.stream, row.version, row.type, row.schema, payload, row.time_us,
        row.role, row.epoch, row.commit_id, row.correlation, row.causation, row.trace,
        bytes.fromhex(row.chain),
    )  # fmt: skip


def pack(envelopes: Sequence[Envelope]) -> bytes:
    """Return the compressed lines of these events; equal events give equal bytes."""
    return gzip.compress(b"".join(map(line_of, envelopes)), LEVEL, mtime=0)


def unpack(block: bytes) -> list[Envelope]:
    """Return the events of a block. Raises HistoryFileError."""
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
        raise HistoryFileError(f"a block of archived events cannot be read: {error}") from error


class Writer:
    """Write one file: the header at once, then events, then the end."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file, self._digest, self._events = file, sha256(), 0
        self._put(_encoder.encode(header) + b"\n")

    def add(self, envelopes: Sequence[Envelope]) -> None:
        """Write the next events in blocks of at most BLOCK_FACTS events or BLOCK_BYTES."""
        for block in cut(envelopes, BLOCK_FACTS, BLOCK_BYTES):
            self.add_block(b"".join(map(line_of, block)), len(block))

    def add_block(self, lines: bytes, events: int) -> None:
        """Write the lines of so many events as one block."""
        self._put(lines)
        self._events += events

    def end(self) -> str:
        """Write the end line and return the SHA-256 of all lines before it."""
        digest = self._digest.hexdigest()
        self._put(_encoder.encode(_End(self._events, digest)) + b"\n")
        return digest

    def _put(self, text: bytes) -> None:
        self._digest.update(text)
        self._file.write(gzip.compress(text, LEVEL, mtime=0))


class Block(msgspec.Struct, frozen=True):
    """A block of events with its byte offset and size in the file."""

    offset: int
    size: int
    envelopes: list[Envelope]


def header_of(path: Path) -> Header:
    """Return the file's header. Raises HistoryFileError."""
    with _opened(path) as file:
        for _, _, text in _members(file, path):
            return _header(text, path)
    raise HistoryFileError(f"{path} is empty")


def checked(path: Path) -> Iterator[Header | Block]:
    """Yield the header and every block, verified: order, chain, and at the end count and hash.
    Raises HistoryFileError.
    """
    with _opened(path) as file:
        digest, header, chain, position, end_digest = sha256(), None, b"", 0, ""
        for offset, size, text in _members(file, path):
            if header is None:
                header = _header(text, path)
                chain, position = bytes.fromhex(header.before), header.first - 1
                yield header
            elif text.startswith(b'{"facts":'):
                _check_end(text, position - header.first + 1, digest.hexdigest(), path)
                end_digest = digest.hexdigest()
                break
            else:
                block = Block(offset, size, _events(text, position, path))
                position, chain = _follow(block.envelopes, position, chain, header.redacted, path)
                yield block
            digest.update(text)
        if not end_digest or header is None or position != header.last:
            raise HistoryFileError(f"{path} was cut: it ends after position {position}")


def _opened(path: Path) -> BinaryIO:
    # The file is read from the beginning and later from the middle, so a pipe or device is no use.
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise HistoryFileError(f"{path} is not a regular file")
        return path.open("rb")
    except OSError as error:
        raise HistoryFileError(f"{path} cannot be read: {error.strerror}") from error


def _header(text: bytes, path: Path) -> Header:
    try:
        header = msgspec.json.decode(text, type=Header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HistoryFileError(f"{path} is not a Topolog history: {error}") from error
    if header.format != FORMAT:
        raise HistoryFileError(
            f"{path} is not a Topolog history: its header says {header.format[:80]!r}"
        )
    if header.version > VERSION:
        newer = f"format {shown(header.version)}; this release reads {VERSION}"
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
        raise HistoryFileError(f"{path} is not a Topolog history: {problem}")
    return header


def _events(text: bytes, after: int, path: Path) -> list[Envelope]:
    events: list[Envelope] = []
    for position, line in enumerate(text.splitlines(), after + 1):
        try:
            events.append(envelope_of(line))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise HistoryFileError(
                f"{path}: the line at position {position} is not an event: {error}"
            ) from error
        if problem := event_problem(events[-1]):
            raise HistoryFileError(
                f"{path}: the log would reject the event at position {position}: {problem}"
            )
    if not events:
        raise HistoryFileError(f"{path}: the block after position {after} is empty")
    return events


def _check_end(text: bytes, events: int, digest: str, path: Path) -> None:
    try:
        end = msgspec.json.decode(text, type=_End)
    except msgspec.MsgspecError as error:
        raise HistoryFileError(f"{path}: the end line is invalid: {error}") from error
    if (end.events, end.sha256) != (events, digest):
        raise HistoryFileError(
            f"{path} was altered: its {events} events do not match the hash in its end line"
        )


def _follow(
    events: Sequence[Envelope], position: int, chain: bytes, redacted: Mapping[int, str], path: Path
) -> tuple[int, bytes]:
    for event in events:
        if event.position != position + 1:
            raise HistoryFileError(
                f"{path}: position {shown(event.position)} follows position {position}"
            )
        computed = linked(chain, event)
        verifiable = bool(event.chain) and bool(chain or position == 0)
        if verifiable and event.chain not in (
            computed,
            _chain_before_redaction(chain, event, redacted),
        ):
            raise HistoryFileError(
                f"{path} was altered: position {event.position} differs from what was appended"
            )
        position, chain = event.position, event.chain or computed
    return position, chain


def _chain_before_redaction(chain: bytes, event: Envelope, redacted: Mapping[int, str]) -> bytes:
    digest = redacted.get(event.position, "")
    return linked(chain, event, bytes.fromhex(digest)) if digest else b""


def _members(file: BinaryIO, path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, size, text) of each gzip member."""
    data, offset = b"", 0
    while data := data or file.read(_CHUNK):
        unpacker, parts, size, left_bytes = zlib.decompressobj(wbits=31), [], 0, LIMIT_BLOCK_BYTES
        try:
            while not unpacker.eof:
                if not data and not (data := file.read(_CHUNK)):
                    raise HistoryFileError(
                        f"{path} was cut in the middle of a block, at byte {offset + size}"
                    )
                parts.append(unpacker.decompress(data, left_bytes))
                left_bytes -= len(parts[-1])
                if left_bytes <= 0:
                    raise HistoryFileError(
                        f"{path}: the block at byte {offset} is larger than any export writes"
                    )
                size += len(data) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
                data = unpacker.unconsumed_tail or unpacker.unused_data
        except zlib.error as error:
            raise HistoryFileError(
                f"{path} is not compressed by gzip, or is damaged at byte {offset}: {error}"
            ) from error
        yield offset, size, b"".join(parts)
        offset += size
