"""The codec: fact <-> JSON bytes, through the catalog and the upcasters. The only place that (de)serialises facts."""

from __future__ import annotations

import re

import msgspec

from shared.events.catalog import CATALOG, Fact
from shared.events.envelope import Envelope
from shared.events.upcasting import upcast

_encoder = msgspec.json.Encoder()
_NUL = b"\\u0000"
_REPLACEMENT = "\ufffd".encode()
_ESCAPE = re.compile(rb"\\u0000|\\.", re.DOTALL)
_decoder: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)


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
    entry = CATALOG.get(envelope.type)
    if entry is None:
        raise UndecodableFact(envelope, "unknown type")
    if envelope.schema > entry.schema:
        raise UndecodableFact(envelope, f"schema is newer than {entry.schema}")
    try:
        if envelope.schema == entry.schema:
            fact = _decoder.decode(envelope.payload)
            if type(fact) is not entry.struct:
                raise UndecodableFact(envelope, f"payload says that it is {type_of(fact)}")
            return fact
        old = msgspec.json.decode(envelope.payload, type=dict)
        new = upcast(envelope.type, envelope.schema, entry.schema, old)
        return msgspec.convert(new, entry.struct, str_keys=True)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UndecodableFact(envelope, str(error)) from error
