"""A lean HTTP/1.1 transport for short calls to one API server over kept connections.

The general transport costs about 0.5 ms of CPU a call, most of it in its connection pool (httpcore2
2.16, measured), and the general client's objects cost 0.15 ms more. This transport costs a tenth.
llhttp (httptools) parses; lightkube provides TLS. Nothing is sent twice: if a connection breaks
after the request was written, that is an error, and the caller decides. Must not know Kubernetes.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import httptools
import httpx2
import msgspec

MAX_BODY_BYTES = 64 << 20
# Connections that were idle for longer are not used again, because uvicorn closes them after 5 s.
KEEP_IDLE_S = 4.0
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~-]*")
_PLAIN_VALUE = re.compile(r"[\x20-\x7e]*")


class Request(msgspec.Struct, frozen=True):
    """One call. `path` and `params` are not quoted yet."""

    method: str
    path: str
    params: Mapping[str, str] | None
    headers: Mapping[str, str]
    content: bytes | None
    timeout_s: float


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. Header names are in lower case; of several with one name the last counts."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class LeanTransport:
    """At most `limit` connections to `server` (`http[s]://HOST[:PORT][/PREFIX]`). Further calls
    wait for one within their timeout. Each connection calls `tls`."""

    def __init__(self, server: str, limit: int, tls: Callable[[], ssl.SSLContext | None]) -> None:
        parts = urlsplit(server)
        self._tls = tls
        self._host, self._port = (
            parts.hostname or "",
            parts.port or (443 if parts.scheme == "https" else 80),
        )
        self._prefix, self._host_header = parts.path.rstrip("/"), parts.netloc.rpartition("@")[2]
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[_Connection] = []

    async def send(self, request: Request) -> Reply:
        """Send a request and return the answer. Raises httpx2.TransportError, as the general
        client."""
        message = self._message(request)
        try:
            async with asyncio.timeout(request.timeout_s), self._slots:
                return await self._exchange(self._take() or await self._connect(), message)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"no answer within {request.timeout_s:g} s") from error
        except ssl.SSLError as error:
            raise httpx2.ConnectError(f"TLS: {error}") from error
        except ConnectionError as error:
            raise httpx2.ReadError(str(error) or type(error).__name__) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error

    async def aclose(self) -> None:
        """Close idle connections. A connection in use is closed by the call that uses it."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> _Connection | None:
        """Return the connection that was used last if it is still usable, and close older ones."""
        oldest_s = time.monotonic() - KEEP_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.released_s > oldest_s:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._tls()
        )
        return connection

    async def _exchange(self, connection: _Connection, message: bytes) -> Reply:
        try:
            status, headers, body = await connection.exchange(message)
        except BaseException:
            connection.close()
            raise
        if status == 401:
            # A client certificate belongs to its connection: the next one may use a new one.
            connection.close()
        elif connection.usable:
            connection.released_s = time.monotonic()
            self._idle.append(connection)
        return _reply(status, headers, body)

    def _message(self, request: Request) -> bytes:
        path = (
            request.path if _PLAIN_PATH.fullmatch(request.path) else quote(request.path, safe="/~")
        )
        query = f"?{urlencode(request.params)}" if request.params else ""
        lines = [
            f"{request.method} {self._prefix}{path}{query} HTTP/1.1",
            f"Host: {self._host_header}",
        ]
        for name, value in request.headers.items():
            if not _PLAIN_VALUE.fullmatch(value):
                raise httpx2.LocalProtocolError(f"the header {name} may hold printable ASCII only")
            lines.append(f"{name}: {value}")
        if request.content is not None:
            lines.append(f"Content-Length: {len(request.content)}")
        return "\r\n".join([*lines, "\r\n"]).encode() + (request.content or b"")


def _reply(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Reply:
    decoded = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    if "content-encoding" in decoded:
        # Not requested, but a proxy may compress.
        body = httpx2.Response(status, headers=headers, content=body).content
    return Reply(status, decoded, body)


class _Connection(asyncio.Protocol):
    """One connection with one request at a time. `usable`: another request may follow."""

    def __init__(self) -> None:
        self.usable = True
        self.released_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()

    async def exchange(self, message: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Send and read one whole answer. Raises ConnectionError."""
        if self._transport is None or not self.usable:
            raise ConnectionResetError("the connection was closed")
        self._begin()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        await self._answer
        return self._parser.get_status_code(), self._headers, bytes(self._body)

    def close(self) -> None:
        """Close the connection. A pending answer is lost."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionAbortedError(f"not an HTTP answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(
            ConnectionResetError(
                str(exc) if exc else "the server closed the connection before it answered"
            )
        )

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # -- called by the parser

    def on_message_begin(self) -> None:
        self._headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._fail(
                ConnectionAbortedError(f"an answer above the limit of {MAX_BODY_BYTES} bytes")
            )

    def on_message_complete(self) -> None:
        if 100 <= self._parser.get_status_code() < 200:
            return
        self.usable = self.usable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
