"""Unary gRPC calls over a unix socket, on h2: as much of the protocol as asking a kubelet or a
runtime takes.

grpcio takes 12 MB on every node of a cluster, h2 takes 2 (docs/adr/0016-unary-calls-on-h2.md). Must
not know what is asked, nor how long a connection is good for. Source: grpc/doc/PROTOCOL-HTTP2.md.
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
CODES = (
    OK, "CANCELLED", UNKNOWN, "INVALID_ARGUMENT", DEADLINE_EXCEEDED, NOT_FOUND, "ALREADY_EXISTS", "PERMISSION_DENIED",
    RESOURCE_EXHAUSTED, "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", UNIMPLEMENTED, INTERNAL, UNAVAILABLE, "DATA_LOSS",
    "UNAUTHENTICATED",
)  # fmt: skip
"""The names of gRPC's status codes, by number."""
_PREFIX = 5
_WINDOW = MAX_MESSAGE_BYTES + READ_BYTES


class CallFailed(Exception):
    """A call without an answer: the name of gRPC's status code, and the server's words or the
    system's.
    """

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


async def call(socket: str, path: str, request: bytes, timeout_s: float) -> bytes:
    """The answer to one request at `/package.Service/Method`, on a connection of its own. Raises
    CallFailed.
    """
    connection = Connection(socket)
    try:
        return await connection.call(path, request, timeout_s)
    finally:
        connection.close()


class Connection:
    """For a few calls, one after another: making one costs as much as a call. After a failed call
    it must be closed.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._protocol = _protocol()
        self._taken_bytes = 0

    async def call(self, path: str, request: bytes, timeout_s: float) -> bytes:
        """The answer to one request. Raises CallFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._asked(path, request, timeout_s)
        except TimeoutError:
            raise CallFailed(DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise CallFailed(UNAVAILABLE, plain(error)) from error
        except H2Error as error:
            raise CallFailed(INTERNAL, f"not what HTTP/2 allows: {plain(error)}") from error

    def close(self) -> None:
        """Let go of the socket."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _asked(self, path: str, request: bytes, timeout_s: float) -> bytes:
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
                    self._taken_bytes += event.flow_controlled_length or 0
                if (
                    getattr(event, "stream_id", stream) == stream
                ):  # late frames of the call before are not this one's
                    answer.hear(event)
        return answer.message()

    def _send(self, path: str, request: bytes, timeout_s: float) -> int:
        """Send the whole request, and let the server send the largest answer without asking again:
        what earlier answers took of the connection's window is given back."""
        stream = self._protocol.get_next_available_stream_id()
        if self._taken_bytes:
            self._protocol.increment_flow_control_window(self._taken_bytes)
            self._taken_bytes = 0
        headers = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers",
            "content-type": "application/grpc", "grpc-timeout": f"{max(1, min(99_999_999, int(timeout_s * 1000)))}m",
        }  # fmt: skip
        self._protocol.send_headers(stream, list(headers.items()))
        self._protocol.send_data(
            stream, b"\0" + len(request).to_bytes(4, "big") + request, end_stream=True
        )
        return stream


def _protocol() -> H2Connection:
    # What is sent is right as it stands above; only what comes need be checked.
    config = H2Configuration(
        True, "utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
    )
    protocol = H2Connection(config)
    limits = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW}
    protocol.local_settings = Settings(client=True, initial_values=limits)
    protocol.initiate_connection()
    protocol.increment_flow_control_window(_WINDOW)
    return protocol


class _Answer:
    """What has come of one answer."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()
        self._said: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        """One event of the connection. Raises CallFailed."""
        if isinstance(event, ResponseReceived | TrailersReceived):
            self._said.update((str(name), str(value)) for name, value in event.headers or ())
        elif isinstance(event, DataReceived):
            self._data += event.data or b""
            self._check_size()
        elif isinstance(event, StreamEnded):
            self.ended = True
        elif isinstance(event, StreamReset | ConnectionTerminated) and not self.ended:
            raise CallFailed(UNAVAILABLE, f"the server broke off (HTTP/2 error {event.error_code})")

    def message(self) -> bytes:
        """The answer's message. Raises CallFailed for a status that is not OK."""
        status = self._said.get("grpc-status", "")
        if not (
            status.isascii() and status.isdigit() and len(status) < 4 and int(status) < len(CODES)
        ):
            raise CallFailed(
                UNKNOWN,
                f"no gRPC status but HTTP {self._said.get(':status', '')[:10]}; is this another server's socket?",
            )
        if int(status):
            raise CallFailed(CODES[int(status)], unquote(self._said.get("grpc-message", ""))[:2000])
        if (
            len(self._data) < _PREFIX
            or self._data[0]
            or len(self._data) != _PREFIX + self._length()
        ):
            raise CallFailed(
                INTERNAL, f"{len(self._data)} bytes that are not one uncompressed message"
            )
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
            raise CallFailed(INTERNAL, "more came than was announced")
