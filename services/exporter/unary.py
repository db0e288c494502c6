"""Unary gRPC calls over a unix socket, on h2: the part of the protocol that podresources needs.

grpcio takes 12 MB on every node of a cluster, h2 takes 2. grpclib has no limit for the size of an
answer (docs/adr/0016-unary-calls-on-h2.md). Must not know the requests, nor how long to keep a
connection. Source: grpc/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

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
        self._protocol = _protocol()
        self._unacknowledged_bytes = 0

    async def call(self, path: str, request: bytes, timeout_s: float) -> bytes:
        """Return the answer to one request. Raises CallFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(path, request, timeout_s)
        except TimeoutError:
            raise CallFailed(DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise CallFailed(UNAVAILABLE, plain(error)) from error
        except H2Error as error:
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
        stream, answer = self._send(path, request, timeout_s), _Answer()
        while not answer.ended:
            writer.write(self._protocol.data_to_send())
            data = await reader.read(READ_BYTES)
            if not data:
                raise CallFailed(UNAVAILABLE, "the connection was closed before the answer's end")
            for event in self._protocol.receive_data(data):
                if isinstance(event, DataReceived):
                    self._unacknowledged_bytes += event.flow_controlled_length or 0
                # Late frames of the previous call are ignored.
                if getattr(event, "stream_id", stream) == stream:
                    answer.receive(event)
        return answer.message()

    def _send(self, path: str, request: bytes, timeout_s: float) -> int:
        """Send the whole request, and return the number of its stream.

        The flow-control window has room for the largest answer, so the part that earlier answers
        used is given back here.
        """
        stream = self._protocol.get_next_available_stream_id()
        if self._unacknowledged_bytes:
            self._protocol.increment_flow_control_window(self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        timeout_ms = max(1, min(99_999_999, int(timeout_s * 1000)))
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            "grpc-timeout": f"{timeout_ms}m",
        }
        self._protocol.send_headers(stream, list(headers.items()))
        framed = b"\0" + len(request).to_bytes(4, "big") + request
        self._protocol.send_data(stream, framed, end_stream=True)
        return stream


def _protocol() -> H2Connection:
    # The headers above are valid, and `_Answer` checks the received ones that matter. h2's own
    # checks cost a fifth of a call.
    config = H2Configuration(True, "utf-8", False, False, False, False, False)
    protocol = H2Connection(config)
    limits = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW}
    protocol.local_settings = Settings(client=True, initial_values=limits)
    protocol.initiate_connection()
    protocol.increment_flow_control_window(_WINDOW)
    return protocol


class _Answer:
    """The received part of one answer."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()
        self._headers: dict[str, str] = {}

    def receive(self, event: Event) -> None:
        """Add one event of the connection. Raises CallFailed."""
        if isinstance(event, ResponseReceived | TrailersReceived):
            self._headers.update((str(name), str(value)) for name, value in event.headers or ())
        elif isinstance(event, DataReceived):
            self._data += event.data or b""
            self._check_size()
        elif isinstance(event, StreamEnded):
            self.ended = True
        elif isinstance(event, StreamReset | ConnectionTerminated) and not self.ended:
            raise CallFailed(UNAVAILABLE, f"the server broke off (HTTP/2 error {event.error_code})")

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
