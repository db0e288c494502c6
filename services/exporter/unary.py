"""Unary gRPC calls over a unix socket: the part of the protocol that podresources needs.

grpcio takes 12 MB on every node of a cluster, and grpclib has no limit for the size of an answer
(docs/adr/0016-unary-calls.md). Must not know the requests, nor how long to keep a connection.
Source: grpc/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from urllib.parse import unquote

from services.exporter import http2
from services.exporter.http2 import Data, Headers, Part, ProtocolError
from shared.telemetry.reasons import plain

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
READ_BYTES = 64 * 1024
OK = "OK"
UNKNOWN = "UNKNOWN"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
NOT_FOUND = "NOT_FOUND"
RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
UNIMPLEMENTED = "UNIMPLEMENTED"
INTERNAL = "INTERNAL"
UNAVAILABLE = "UNAVAILABLE"
# Names of gRPC's status codes, by number.
CODES = (
    OK, "CANCELLED", UNKNOWN, "INVALID_ARGUMENT", DEADLINE_EXCEEDED, NOT_FOUND, "ALREADY_EXISTS",
    "PERMISSION_DENIED", RESOURCE_EXHAUSTED, "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    UNIMPLEMENTED, INTERNAL, UNAVAILABLE, "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_PREFIX = 5
# Room for the largest answer.
_WINDOW = MAX_MESSAGE_BYTES + READ_BYTES


class CallFailed(Exception):
    """A failed call: the name of gRPC's status code, and the server's or the system's message."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


async def call(socket: str, path: str, request: bytes, timeout_s: float) -> bytes:
    """Return the answer of `/package.Service/Method` on a new connection. Raises CallFailed."""
    connection = Connection(socket)
    try:
        return await connection.call(path, request, timeout_s)
    finally:
        connection.close()


class Connection:
    """A connection for a few calls in sequence, because making one costs as much as a call.

    Must be closed after a failed call.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._frames = http2.Frames(_WINDOW)

    async def call(self, path: str, request: bytes, timeout_s: float) -> bytes:
        """Return the answer to one request. Raises CallFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(path, request, timeout_s)
        except TimeoutError:
            raise CallFailed(DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise CallFailed(UNAVAILABLE, plain(error)) from error
        except ProtocolError as error:
            raise CallFailed(INTERNAL, f"the answer breaks HTTP/2: {plain(error)}") from error

    def close(self) -> None:
        """Close the socket."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, path: str, request: bytes, timeout_s: float) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._socket)
        reader, writer = self._streams
        stream, answer = (
            self._frames.request(_headers(path, timeout_s), _framed(request)),
            _Answer(),
        )
        while not answer.ended:
            if pending := self._frames.to_send():
                writer.write(pending)
            data = await reader.read(READ_BYTES)
            if not data:
                raise CallFailed(UNAVAILABLE, "the connection was closed before the answer's end")
            for part in self._frames.receive(data):
                # Late frames of the previous call are ignored.
                if part.stream in (stream, 0):
                    answer.receive(part)
        return answer.message()


@lru_cache(16)
def _headers(path: str, timeout_s: float) -> bytes:
    timeout_ms = max(1, min(99_999_999, int(timeout_s * 1000)))
    return http2.header_block(
        {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            "grpc-timeout": f"{timeout_ms}m",
        }
    )


def _framed(request: bytes) -> bytes:
    return b"\0" + len(request).to_bytes(4, "big") + request


class _Answer:
    """The received part of one answer."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()
        self._headers: dict[str, str] = {}

    def receive(self, part: Part) -> None:
        """Add one part of the answer. Raises CallFailed."""
        if isinstance(part, Headers):
            self._headers.update(part.headers)
        elif isinstance(part, Data):
            self._data += part.data
            self._check_size()
        elif not self.ended:
            raise CallFailed(UNAVAILABLE, f"the server broke off (HTTP/2 error {part.error_code})")
        self.ended |= part.ends

    def message(self) -> bytes:
        """Return the answer's message. Raises CallFailed if the status is not OK."""
        status = self._headers.get("grpc-status", "")
        is_number = status.isascii() and status.isdigit() and len(status) < 4
        if not is_number or int(status) >= len(CODES):
            http = self._headers.get(":status", "")[:10]
            raise CallFailed(
                UNKNOWN,
                f"no gRPC status but HTTP {http}; check that this is a kubelet's socket",
            )
        if int(status):
            message = unquote(self._headers.get("grpc-message", ""))[:2000]
            raise CallFailed(CODES[int(status)], message)
        size = len(self._data)
        if size < _PREFIX or self._data[0] or size != _PREFIX + self._length():
            raise CallFailed(INTERNAL, f"{size} bytes that are not one uncompressed message")
        return bytes(self._data[_PREFIX:])

    def _length(self) -> int:
        return int.from_bytes(self._data[1:_PREFIX], "big")

    def _check_size(self) -> None:
        if len(self._data) >= _PREFIX and self._length() > MAX_MESSAGE_BYTES:
            raise CallFailed(
                RESOURCE_EXHAUSTED,
                f"an answer larger than max ({self._length()} against {MAX_MESSAGE_BYTES} bytes)",
            )
        if len(self._data) > _PREFIX + MAX_MESSAGE_BYTES:
            raise CallFailed(INTERNAL, "the answer is longer than announced")
