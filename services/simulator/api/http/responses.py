"""Sending answers: JSON, Status, YAML, text. Must not know kinds or rules."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from services.simulator.api.core.refusals import Refusal
from services.simulator.api.http.request import Send

Headers = list[tuple[bytes, bytes]]

_JSON: Headers = [(b"cache-control", b"no-cache, private"), (b"content-type", b"application/json")]
_YAML: Headers = [(b"cache-control", b"no-cache, private"), (b"content-type", b"application/yaml")]
_TEXT: Headers = [
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
]


class Answer(msgspec.Struct, frozen=True):
    """A whole response in memory."""

    code: int
    body: bytes
    headers: Headers


def json_answer(
    code: int, body: bytes, warnings: tuple[str, ...] = (), *, as_yaml: bool = False
) -> Answer:
    """Return an answer of encoded JSON, or YAML if the client prefers it."""
    if as_yaml:
        return Answer(
            code, yaml.safe_dump(msgspec.json.decode(body), sort_keys=True).encode(), _YAML
        )
    if not warnings:
        return Answer(code, body, _JSON)
    extra = [(b"warning", f'299 - "{_quoted(text)}"'.encode()) for text in warnings]
    return Answer(code, body, _JSON + extra)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def value_answer(code: int, value: Any, content_type: str = "", *, as_yaml: bool = False) -> Answer:
    """A value to encode."""
    answer = json_answer(code, msgspec.json.encode(value), as_yaml=as_yaml)
    if content_type:
        headers = [(b"cache-control", b"public"), (b"content-type", content_type.encode())]
        return Answer(code, answer.body, headers)
    return answer


def refusal_answer(refusal: Refusal) -> Answer:
    """A Status of failure."""
    extra = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
    return Answer(refusal.code, msgspec.json.encode(refusal.body), _JSON + extra)


def text_answer(code: int, text: str) -> Answer:
    """Plain text, as health checks and unknown paths answer."""
    return Answer(code, text.encode(), _TEXT)


NO_SUCH_PAGE = text_answer(404, "404 page not found\n")


async def send_answer(send: Send, answer: Answer) -> None:
    """Write one response."""
    headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
