"""A small HTTP/1.1 client for JSON over kept connections, at a tenth of the cost of a general one.

Answers are values (status, body); only an unreachable server raises. This module does not know
Kubernetes.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

MAX_BODY_BYTES = 16 * 1024 * 1024
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Unreachable(Exception):
    """The server did not answer. The message names its address."""


class HttpClient:
    """Requests to one server. At most `limit` connections; further requests wait for one."""

    def __init__(self, url: str, limit: int = 8, timeout_s: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r}: expected http://HOST:PORT")
        self._host, self._port = parts.hostname, parts.port or 80
        self._slots = asyncio.Semaphore(limit)
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send one request. A kept connection that the server has closed is replaced once. Raises
        Unreachable.
        """
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: "
            "application/json\r\n"
            f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with self._slots:
            for fresh in (False, True):
                try:
                    async with asyncio.timeout(self._timeout_s):
                        return await self._exchange(head.encode() + body, fresh)
                except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                    if fresh:
                        where = f"http://{self._host}:{self._port}{path}"
                        raise Unreachable(
                            f"{method} {where}: {type(error).__name__}: {error}"
                        ) from error
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _exchange(self, message: bytes, fresh: bool) -> tuple[int, bytes]:
        if fresh or not self._idle:
            connection = await asyncio.open_connection(self._host, self._port)
        else:
            connection = self._idle.pop()
        reader, writer = connection
        try:
            writer.write(message)
            status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            body = await _body(reader, headers)
        except BaseException:
            writer.close()
            raise
        if headers.get("connection", "").lower() == "close":
            writer.close()
        else:
            self._idle.append(connection)
        return status, body


def _head(raw: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return int(first.split(" ", 2)[1]), headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        size = int(headers.get("content-length", "0"))
        if size > MAX_BODY_BYTES:
            raise ValueError(f"an answer of {size} bytes is above the limit of {MAX_BODY_BYTES}")
        return await reader.readexactly(size)
    parts: list[bytes] = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        if sum(map(len, parts)) + size > MAX_BODY_BYTES:
            raise ValueError(f"an answer above the limit of {MAX_BODY_BYTES} bytes")
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readline()
    return b"".join(parts)
