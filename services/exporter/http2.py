"""HTTP/2 as a client's unary calls take it: frames of a request out, frames of an answer in (RFC 9113).

Pure: bytes in, bytes out. h2 checks much that only a server or a proxy need know, and took three times the CPU of this
(docs/adr/0016-unary-calls-on-h2.md); headers are still read by hpack, which it is made of. Must not know gRPC or sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec
from hpack import Decoder
from hpack.exceptions import HPACKError


class Kind:
    """The frames that are known here."""

    DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9


END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
ENABLE_PUSH, INITIAL_WINDOW_SIZE = 2, 4
FRAME_BYTES = 16_384
"""The largest frame that either side may send, as nothing else was agreed on."""
HEADER_BYTES = 64 * 1024
_HEAD = struct.Struct(">BHBBL")
_STREAM = 0x7FFF_FFFF


class Http2Error(Exception):
    """What came is not what HTTP/2 allows."""


class Part(msgspec.Struct, frozen=True):
    """What came of a stream: headers or data, and whether that was all. `broken`: the server gave the stream up (stream 0: the
    connection), with this code of HTTP/2."""

    stream: int
    headers: tuple[tuple[str, str], ...] = ()
    data: bytes = b""
    ended: bool = False
    broken: int | None = None


class Http2:
    """The client's side of one connection, for calls one after another. The server may send `window` bytes of an answer at
    once."""

    def __init__(self, window: int) -> None:
        self._decoder = Decoder(HEADER_BYTES)
        self._unread = bytearray()
        self._block: tuple[int, int, bytearray] | None = None
        self._stream = -1
        self._taken = window
        self._greeted = False
        settings = struct.pack(">HLHL", ENABLE_PUSH, 0, INITIAL_WINDOW_SIZE, window)
        self._unsent = bytearray(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(Kind.SETTINGS, 0, 0, settings))

    def request(self, headers: Mapping[str, str], body: bytes) -> int:
        """Begin a call: its stream. What the calls before took of the connection's window is given back."""
        self._stream += 2
        if self._taken:
            self._unsent += _frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">L", self._taken))
            self._taken = 0
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
        if max(len(block), len(body)) > FRAME_BYTES:
            raise Http2Error(f"a request of {len(block)} and {len(body)} bytes does not fit into frames of {FRAME_BYTES}")
        self._unsent += _frame(Kind.HEADERS, END_HEADERS, self._stream, block) + _frame(Kind.DATA, END_STREAM, self._stream, body)
        return self._stream

    def to_send(self) -> bytes:
        """What is to be written now; empty when nothing is."""
        unsent, self._unsent = self._unsent, bytearray()
        return bytes(unsent)

    def receive(self, data: bytes) -> list[Part]:
        """What came, in order. Raises Http2Error."""
        unread, parts = self._unread, []
        unread += data
        while len(unread) >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(unread)
            end = _HEAD.size + (high << 16 | low)
            if end > _HEAD.size + FRAME_BYTES:
                raise Http2Error(f"a frame of {end - _HEAD.size} bytes")
            if len(unread) < end:
                break
            payload = bytes(unread[_HEAD.size : end])
            del unread[:end]
            part = self._heard(kind, flags, stream & _STREAM, payload)
            if part is not None:
                parts.append(part)
        return parts

    def _heard(self, kind: int, flags: int, stream: int, payload: bytes) -> Part | None:
        if not self._greeted and kind != Kind.SETTINGS:
            raise Http2Error("the server does not begin with its settings")
        if (self._block is not None) != (kind == Kind.CONTINUATION):
            raise Http2Error("headers that are torn apart")
        if kind in (Kind.DATA, Kind.HEADERS) and not stream:
            raise Http2Error("an answer to no request")
        match kind:
            case Kind.DATA:
                self._taken += len(payload)
                return Part(stream, data=_unpadded(flags, payload), ended=bool(flags & END_STREAM))
            case Kind.HEADERS:
                self._block = stream, flags, bytearray(_prioritized(flags, _unpadded(flags, payload)))
                return self._headers(flags)
            case Kind.CONTINUATION:
                return self._continued(flags, stream, payload)
            case Kind.RST_STREAM:
                return Part(stream, broken=_number(payload, 0, 4))
            case Kind.GOAWAY:
                return Part(0, broken=_number(payload, 4, 8))
            case Kind.PUSH_PROMISE:
                raise Http2Error("a push, which nobody asked for")
            case _:
                self._answer(kind, flags, payload)
                return None

    def _answer(self, kind: int, flags: int, payload: bytes) -> None:
        """Settings and pings want to be acknowledged; whatever else there is concerns nobody here."""
        if kind == Kind.SETTINGS:
            self._greeted = True
        if kind in (Kind.SETTINGS, Kind.PING) and not flags & ACK:
            self._unsent += _frame(kind, ACK, 0, payload if kind == Kind.PING else b"")

    def _continued(self, flags: int, stream: int, payload: bytes) -> Part | None:
        assert self._block is not None
        begun, _, block = self._block
        if begun != stream or len(block) + len(payload) > HEADER_BYTES:
            raise Http2Error("headers that go on for ever, or on another stream")
        block += payload
        return self._headers(flags)

    def _headers(self, flags: int) -> Part | None:
        """The headers, once the frame that ends them is there."""
        if not flags & END_HEADERS or self._block is None:
            return None
        (stream, first, block), self._block = self._block, None
        try:
            decoded = self._decoder.decode(bytes(block), raw=True)
        except HPACKError as error:
            raise Http2Error(f"headers that cannot be read: {error}") from error
        text = tuple((str(name, "utf-8", "replace"), str(value, "utf-8", "replace")) for name, value in decoded)
        return Part(stream, headers=text, ended=bool(first & END_STREAM))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _text(text: str) -> bytes:
    """A string of HPACK as it stands (RFC 7541, 5.2), neither compressed nor to be remembered."""
    data = text.encode()
    length, head = len(data), bytearray()
    if length < 127:
        return bytes((length,)) + data
    head.append(127)
    length -= 127
    while length >= 128:
        head.append(length % 128 + 128)
        length //= 128
    head.append(length)
    return bytes(head) + data


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("more padding than there is")
    return payload[1 : len(payload) - payload[0]]


def _prioritized(flags: int, payload: bytes) -> bytes:
    """Without the words about priorities, which nobody heeds."""
    return payload[5:] if flags & PRIORITY else payload


def _number(payload: bytes, start: int, end: int) -> int:
    if len(payload) < end:
        raise Http2Error("a frame without its error code")
    return int.from_bytes(payload[start:end], "big")
