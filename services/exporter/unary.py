"""Unary gRPC calls over a unix socket: as much of the protocol as asking a kubelet or a runtime takes.

grpcio takes 12 MB on every node of a cluster, this next to nothing (docs/adr/0016-unary-calls-on-h2.md). No connection outlives
what it was made for: a socket that was replaced matters to nobody, and nothing is kept that could be stale. Must not know what is
asked, nor how frames look (`http2`). Source: grpc/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import asyncio
from typing import cast
from urllib.parse import unquote

from services.exporter.http2 import Http2, Http2Error, Part
from shared.telemetry.reasons import plain

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
OK = "OK"
UNKNOWN = "UNKNOWN"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
NOT_FOUND = "NOT_FOUND"
RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
UNIMPLEMENTED = "UNIMPLEMENTED"
INTERNAL = "INTERNAL"
UNAVAILABLE = "UNAVAILABLE"
CODES = (
    OK, "CANCELLED", UNKNOWN, "INVALID_ARGUMENT", DEADLINE_EXCEEDED, NOT_FOUND, "ALREADY_EXISTS", "PERMISSION_DENIED",
    RESOURCE_EXHAUSTED, "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", UNIMPLEMENTED, INTERNAL, UNAVAILABLE, "DATA_LOSS",
    "UNAUTHENTICATED",
)  # fmt: skip
"""The names of gRPC's status codes, by number."""
_PREFIX = 5
_WINDOW = MAX_MESSAGE_BYTES + 64 * 1024


class CallFailed(Exception):
    """A call without an answer: the name of gRPC's status code, and the server's words or the system's."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


async def call(socket: str, path: str, request: bytes, timeout_s: float) -> bytes:
    """The answer to one request at `/package.Service/Method`, on a connection of its own. Raises CallFailed."""
    connection = Connection(socket)
    try:
        return await connection.call(path, request, timeout_s)
    finally:
        connection.close()


class Connection(asyncio.Protocol):
    """For a few calls, one after another: making one costs as much as a call. After a failed call it must be closed."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._transport: asyncio.Transport | None = None
        self._http2 = Http2(_WINDOW)
        self._answer: _Answer | None = None

    async def call(self, path: str, request: bytes, timeout_s: float) -> bytes:
        """The answer to one request. Raises CallFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._asked(path, request, timeout_s)
        except TimeoutError:
            raise CallFailed(DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise CallFailed(UNAVAILABLE, plain(error)) from error
        except Http2Error as error:
            raise CallFailed(INTERNAL, f"not what HTTP/2 allows: {plain(error)}") from error

    def close(self) -> None:
        """Let go of the socket."""
        if self._transport is not None:
            self._transport.close()

    async def _asked(self, path: str, request: bytes, timeout_s: float) -> bytes:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            await loop.create_unix_connection(lambda: self, self._socket)
        headers = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers",
            "content-type": "application/grpc", "grpc-timeout": f"{max(1, min(99_999_999, int(timeout_s * 1000)))}m",
        }  # fmt: skip
        stream = self._http2.request(headers, b"\0" + len(request).to_bytes(4, "big") + request)
        self._answer = _Answer(stream, loop.create_future())
        if self._transport is None or self._transport.is_closing():
            raise CallFailed(UNAVAILABLE, "the connection was closed before it was asked")
        self._transport.write(self._http2.to_send())
        await self._answer.ended
        return self._answer.message()

    # -- called by the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            for part in self._http2.receive(data):
                if self._answer is not None:
                    self._answer.hear(part)
        except (CallFailed, Http2Error) as error:
            self._fail(error)
        else:
            self._transport.write(self._http2.to_send())

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(CallFailed(UNAVAILABLE, "the connection was closed before the answer's end"))

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.ended.done():
            self._answer.ended.set_exception(error)


class _Answer:
    """What has come of one answer; `ended` is done with its end."""

    def __init__(self, stream: int, ended: asyncio.Future[None]) -> None:
        self.ended = ended
        self._stream = stream
        self._data = bytearray()
        self._said: dict[str, str] = {}

    def hear(self, part: Part) -> None:
        """One part of what came over the connection. Raises CallFailed."""
        own = part.stream == self._stream and not self.ended.done()
        if part.broken is not None and (own or not part.stream):
            raise CallFailed(UNAVAILABLE, f"the server broke off (HTTP/2 error {part.broken})")
        if not own:
            return  # late frames of the call before are not this one's
        self._said.update(part.headers)
        self._data += part.data
        self._check_size()
        if part.ended:
            self.ended.set_result(None)

    def message(self) -> bytes:
        """The answer's message. Raises CallFailed for a status that is not OK."""
        status = self._said.get("grpc-status", "")
        if not (status.isascii() and status.isdigit() and len(status) < 4 and int(status) < len(CODES)):
            raise CallFailed(
                UNKNOWN, f"no gRPC status but HTTP {self._said.get(':status', '')[:10]}; is this another server's socket?"
            )
        if int(status):
            raise CallFailed(CODES[int(status)], unquote(self._said.get("grpc-message", ""))[:2000])
        if len(self._data) < _PREFIX or self._data[0] or len(self._data) != _PREFIX + self._length():
            raise CallFailed(INTERNAL, f"{len(self._data)} bytes that are not one uncompressed message")
        return bytes(self._data[_PREFIX:])

    def _length(self) -> int:
        return int.from_bytes(self._data[1:_PREFIX], "big")

    def _check_size(self) -> None:
        if len(self._data) >= _PREFIX and self._length() > MAX_MESSAGE_BYTES:
            raise CallFailed(
                RESOURCE_EXHAUSTED, f"an answer larger than max ({self._length()} against {MAX_MESSAGE_BYTES} bytes)"
            )
        if len(self._data) > _PREFIX + MAX_MESSAGE_BYTES:
            raise CallFailed(INTERNAL, "more came than was announced")
