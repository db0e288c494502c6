"""The codec: fact <-> JSON bytes, through the catalog and the upcasters. The only place that (de)serialises facts.

What a row calls itself says how its payload is read, so that a replay looks at each payload once.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from shared.events.catalog import CATALOG, Fact
from shared.events.envelope import Envelope
from shared.events.upcasting import upcast

_encoder = msgspec.json.Encoder()
_NUL = b"\\u0000"
_REPLACEMENT = "\ufffd".encode()
_ESCAPE = re.compile(rb"\\u0000|\\.", re.DOTALL)
_READERS: dict[str, tuple[int, Callable[[bytes], Fact]]] = {
    name: (entry.schema, msgspec.json.Decoder(entry.struct).decode) for name, entry in CATALOG.items()
}
"""Type -> its newest schema, and what reads that. A payload that says it is of another type is refused by it."""


class UndecodableFact(Exception):
    """A stored fact that this code cannot read: unknown type, newer schema, or damaged payload. Names position and type."""

    def __init__(self, envelope: Envelope, problem: str) -> None:
        super().__init__(
            f"fact {envelope.position} ({envelope.type} schema {envelope.schema} on {envelope.stream}): {problem}; "
            "run a release that knows it, or inspect it with: topolog replay log --from "
            f"{envelope.position} --limit 1"
        )
        self.envelope = envelope


def type_of(fact: Fact) -> str:
    """The name under which the catalog knows the fact."""
    return type(fact).__name__


def encode(fact: Fact) -> bytes:
    """The payload as stored: JSON with the type tag inside. Texts come from outside and may hold the character 0, which Postgres'
    jsonb does not know: it becomes U+FFFD, so that every fact can be looked at."""
    payload = _encoder.encode(fact)
    return payload if _NUL not in payload else _ESCAPE.sub(lambda found: found[0].replace(_NUL, _REPLACEMENT), payload)


def decode(envelope: Envelope) -> Fact:
    """The fact in its newest form. Raises UndecodableFact."""
    reader = _READERS.get(envelope.type)
    if reader is None:
        raise UndecodableFact(envelope, "unknown type")
    newest, read = reader
    try:
        return read(envelope.payload) if envelope.schema == newest else _older(envelope, newest)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UndecodableFact(envelope, str(error)) from error


def _older(envelope: Envelope, newest: int) -> Fact:
    if envelope.schema > newest:
        raise UndecodableFact(envelope, f"schema is newer than {newest}")
    old = msgspec.json.decode(envelope.payload, type=dict)
    new = upcast(envelope.type, envelope.schema, newest, old)
    return msgspec.convert(new, CATALOG[envelope.type].struct, str_keys=True)
