"""A lean HTTP/1.1 transport under lightkube's client: short calls to one API server over kept connections.

The general transport costs about 0.5 ms of CPU a call, most of it in its connection pool (httpcore2 2.16, measured); this one
a tenth. Parsing is llhttp's (httptools); TLS and credentials are lightkube's. Nothing is sent twice: a connection that
breaks after the request was written is an error, and the caller decides. Must not know Kubernetes.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import cast

import httptools
import httpx2

MAX_BODY_BYTES = 64 << 20
KEEP_IDLE_S = 4.0
"""Idle connections older than this are not used again: a server that closes them at 5 s (uvicorn) never meets a request."""


class LeanTransport(httpx2.AsyncBaseTransport):
    """At most `limit` connections; further calls wait for one, within their timeout."""

    def __init__(self, limit: int, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        message = _message(request, await request.aread())
        timeout_s = request.extensions.get("timeout", {}).get("read")
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                connection = self._take() or await self._connect(request.url)
                return await self._exchange(connection, message, request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"no answer within {timeout_s:g} s", request=request) from error
        except ssl.SSLError as error:
            raise httpx2.ConnectError(f"TLS: {error}", request=request) from error
        except ConnectionError as error:
            raise httpx2.ReadError(str(error) or type(error).__name__, request=request) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from error

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> _Connection | None:
        """The connection used last, if it still stands; older ones are closed."""
        oldest_s = time.monotonic() - KEEP_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.released_s > oldest_s:
                return connection
            connection.close()
        return None

    async def _connect(self, url: httpx2.URL) -> _Connection:
        tls = self._tls if url.scheme == "https" else None
        port = url.port or (443 if url.scheme == "https" else 80)
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, url.host, port, ssl=tls)
        return connection

    async def _exchange(self, connection: _Connection, message: bytes, request: httpx2.Request) -> httpx2.Response:
        try:
            status, headers, body = await connection.exchange(message)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            connection.released_s = time.monotonic()
            self._idle.append(connection)
        return httpx2.Response(status, headers=headers, content=body, request=request)


def _message(request: httpx2.Request, body: bytes) -> bytes:
    head = b"".join(b"%s: %s\r\n" % (name, value) for name, value in request.headers.raw)
    return b"%s %s HTTP/1.1\r\n%s\r\n%s" % (request.method.encode(), request.url.raw_path, head, body)


class _Connection(asyncio.Protocol):
    """One connection, one request at a time. `usable` while another request may follow."""

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
        """Close; an answer under way is lost."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    # -- called by the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionAbortedError(f"not an HTTP answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionResetError(str(exc) if exc else "the server closed the connection before it answered"))

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # -- called by the parser --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._fail(ConnectionAbortedError(f"an answer above the limit of {MAX_BODY_BYTES} bytes"))

    def on_message_complete(self) -> None:
        if 100 <= self._parser.get_status_code() < 200:
            return
        self.usable = self.usable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
