"""One HTTP request as a value: method, path, query, the few headers that matter, body. Must not
know kinds or rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class TooLargeError(Exception):
    """The body is longer than the limit."""


class Request(msgspec.Struct, frozen=True):
    """`query` keeps the last value of a repeated key."""

    method: str
    path: str
    query: dict[str, str]
    accept: str
    content_type: str
    body: bytes

    def flag(self, name: str) -> bool:
        """A boolean query parameter, as Go reads it."""
        return self.query.get(name, "").lower() in ("1", "t", "true")

    def number(self, name: str) -> int:
        """A query parameter as whole number, 0 if it is absent or no number."""
        text = self.query.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 19 else 0


async def read_request(scope: Scope, receive: Receive, max_body_bytes: int) -> Request:
    """Read the whole request. Raises TooLargeError if its body exceeds the limit."""
    headers = {name: value for name, value in scope["headers"] if name in _WANTED}
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    body = b"" if scope["method"] == "GET" else await _body(receive, max_body_bytes)
    return Request(
        scope["method"],
        scope["path"],
        query,
        headers.get(b"accept", b"").decode("latin-1"),
        headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower(),
        body,
    )


_WANTED = frozenset({b"accept", b"content-type"})


async def _body(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLargeError
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
