"""The client's side of HTTP/2 for one call after another: frames from bytes, and bytes of frames.

A call on h2 takes three times the CPU time, because h2 also serves priorities, pushes, servers and
many streams at once. hpack reads the headers. Anything that breaks the protocol is a ProtocolError,
and every buffer is bounded. Must not know gRPC or sockets. Source: RFC 9113.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Limits of RFC 9113 for an endpoint that sets none, and of a header block.
MAX_FRAME_BYTES = 16_384
MAX_BLOCK_BYTES = 65_536
_HEADER_BYTES = 9
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 5, 6, 7, 8, 9),
)
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 2, 4
# Frames that belong to a stream, and those that belong to the connection.
_OF_STREAM = {DATA, HEADERS, RST_STREAM, CONTINUATION}
_OF_CONNECTION = {SETTINGS, PING, GOAWAY}


class ProtocolError(Exception):
    """The server broke HTTP/2."""


class Data(NamedTuple):
    """A piece of an answer."""

    stream: int
    data: bytes
    ends: bool


class Headers(NamedTuple):
    """Headers or trailers of an answer."""

    stream: int
    headers: dict[str, str]
    ends: bool


class Broken(NamedTuple):
    """The server ended a stream, or the connection (stream 0), with an error code."""

    stream: int
    error_code: int
    ends: bool = False


Part = Data | Headers | Broken


def header_block(headers: Mapping[str, str]) -> bytes:
    """Return headers as a block that may be sent any number of times: it leaves the server's table
    as it was."""
    return Encoder().encode(
        [NeverIndexedHeaderTuple(name, value) for name, value in headers.items()], huffman=False
    )


class Frames:
    """One connection. `window` is how many bytes of an answer the server may send unasked."""

    def __init__(self, window: int) -> None:
        settings = b"".join(
            number.to_bytes(2, "big") + value.to_bytes(4, "big")
            for number, value in ((_ENABLE_PUSH, 0), (_INITIAL_WINDOW_SIZE, window))
        )
        self._pending = [PREFACE, _frame(SETTINGS, 0, 0, settings), _update(window)]
        self._received = bytearray()
        self._decoder = Decoder()
        self._is_begun = False
        self._next_stream = 1
        self._unacknowledged_bytes = 0
        # The stream, the end and the fragments of a header block that is not complete.
        self._block: tuple[int, bool, bytearray] | None = None

    def request(self, block: bytes, body: bytes) -> int:
        """Send a small request whole; return the number of its stream.

        The part of the connection's window that earlier answers used is given back here.
        """
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        if self._unacknowledged_bytes:
            self._pending.append(_update(self._unacknowledged_bytes))
            self._unacknowledged_bytes = 0
        self._pending.append(_frame(HEADERS, END_HEADERS, stream, block))
        self._pending.append(_frame(DATA, END_STREAM, stream, body))
        return stream

    def to_send(self) -> bytes:
        """Return the bytes that are to be sent now."""
        pending, self._pending = b"".join(self._pending), []
        return pending

    def receive(self, data: bytes) -> Iterator[Part]:
        """Yield the parts of answers in received bytes. Raises ProtocolError."""
        received = self._received
        received += data
        while len(received) >= _HEADER_BYTES:
            size = int.from_bytes(received[:3], "big")
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes")
            end = _HEADER_BYTES + size
            if len(received) < end:
                return
            kind, flags = received[3], received[4]
            stream = int.from_bytes(received[5:_HEADER_BYTES], "big") & 0x7FFF_FFFF
            payload = bytes(received[_HEADER_BYTES:end])
            del received[:end]
            self._check(kind, flags, stream)
            part = self._part(kind, flags, stream, payload)
            if part is not None:
                yield part

    def _check(self, kind: int, flags: int, stream: int) -> None:
        if not self._is_begun and (kind != SETTINGS or flags & ACK):
            raise ProtocolError("no settings at the beginning")
        self._is_begun = True
        if (stream == 0 and kind in _OF_STREAM) or (stream and kind in _OF_CONNECTION):
            raise ProtocolError(f"a frame of type {kind} on stream {stream}")
        if (self._block is not None) != (kind == CONTINUATION):
            raise ProtocolError(f"a frame of type {kind} in or after a header block")

    def _part(self, kind: int, flags: int, stream: int, payload: bytes) -> Part | None:
        if kind == DATA:
            self._unacknowledged_bytes += len(payload)
            return Data(stream, _unpadded(payload, flags), bool(flags & END_STREAM))
        if kind == HEADERS:
            fragment = _unpadded(payload, flags)[5 if flags & PRIORITY else 0 :]
            self._block = stream, bool(flags & END_STREAM), bytearray(fragment)
            return self._headers(flags)
        if kind == CONTINUATION:
            return self._continued(flags, stream, payload)
        if kind == RST_STREAM:
            return Broken(stream, _number(payload, 0, 4))
        if kind == GOAWAY:
            return Broken(0, _number(payload, 4, 8))
        if kind == PUSH_PROMISE:
            raise ProtocolError("a push, which the settings forbid")
        if kind in (SETTINGS, PING) and not flags & ACK:
            if len(payload) % 6 if kind == SETTINGS else len(payload) != 8:
                raise ProtocolError(f"{len(payload)} bytes in a frame of type {kind}")
            self._pending.append(_frame(kind, ACK, 0, b"" if kind == SETTINGS else payload))
        return None

    def _continued(self, flags: int, stream: int, payload: bytes) -> Headers | None:
        if self._block is None or self._block[0] != stream:
            raise ProtocolError("a header block goes on in another stream")
        self._block[2].extend(payload)
        return self._headers(flags)

    def _headers(self, flags: int) -> Headers | None:
        if self._block is None:
            return None
        stream, ends, block = self._block
        if len(block) > MAX_BLOCK_BYTES:
            raise ProtocolError(f"headers of more than {MAX_BLOCK_BYTES} bytes")
        if not flags & END_HEADERS:
            return None
        self._block = None
        try:
            headers = self._decoder.decode(bytes(block))
        except HPACKError as error:
            raise ProtocolError(f"headers cannot be read: {error}") from error
        return Headers(stream, {str(name): str(value) for name, value in headers}, ends)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def _update(size: int) -> bytes:
    """Return the frame that gives the server this much more of the connection's window."""
    return _frame(WINDOW_UPDATE, 0, 0, size.to_bytes(4, "big"))


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def _number(payload: bytes, start: int, end: int) -> int:
    if len(payload) < end:
        raise ProtocolError(f"{len(payload)} bytes of an error code")
    return int.from_bytes(payload[start:end], "big")
