"""The codec: fact <-> JSON bytes, through the catalog and the upcasters. The only place that
(de)serialises facts.

What a row calls itself says how its payload is read, so that a replay looks at each payload once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from shared.events.catalog import CATALOG, Entry, Event
from shared.events.envelope import Envelope
from shared.events.upcasting import upcast

_encoder = msgspec.json.Encoder()
_NUL = b"\\u0000"
_REPLACEMENT = "\ufffd".encode()
_ESCAPE = re.compile(rb"\\u0000|\\.", re.DOTALL)
_UNREADABLE = (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError)


class UndecodableEvent(Exception):
    """A stored fact that this code cannot read: unknown type, newer schema, or damaged payload.
    Names position and type.
    """

    def __init__(self, envelope: Envelope, problem: str) -> None:
        super().__init__(
            f"fact {envelope.position} ({envelope.type} schema {envelope.schema} on {envelope.stream}): {problem}; "
            "run a release that knows it, or inspect it with: topolog replay log --from "
            f"{envelope.position} --limit 1"
        )
        self.envelope = envelope


def type_of(event: Event) -> str:
    """The name under which the catalog knows the fact."""
    return type(event).__name__


def encode(event: Event) -> bytes:
    """The payload as stored: JSON with the type tag inside. Texts come from outside and may hold
    the character 0, which Postgres' jsonb does not know: it becomes U+FFFD, so that every fact can
    be looked at."""
    payload = _encoder.encode(event)
    return (
        payload
        if _NUL not in payload
        else _ESCAPE.sub(lambda found: found[0].replace(_NUL, _REPLACEMENT), payload)
    )


def decode(envelope: Envelope) -> Event:
    """The fact in its newest form. Raises UndecodableFact."""
    schemas = _READERS.get(envelope.type)
    if schemas is None:
        raise UndecodableEvent(envelope, "unknown type")
    read = schemas.get(envelope.schema)
    if read is None:
        raise UndecodableEvent(
            envelope, f"schema is newer than {CATALOG[envelope.type].schema}, or none"
        )
    try:
        return read(envelope.payload)
    except _UNREADABLE as error:
        raise UndecodableEvent(envelope, str(error)) from error


def decode_all(page: Sequence[Envelope]) -> list[Event] | None:
    """All facts of a page, or None where one of them cannot be read: `decode` says which. A third
    cheaper than one by one.
    """
    readers = _READERS
    try:
        return [readers[envelope.type][envelope.schema](envelope.payload) for envelope in page]
    except _UNREADABLE:
        return None


def _older(type_name: str, schema: int, payload: bytes) -> Event:
    entry = CATALOG[type_name]
    old = msgspec.json.decode(payload, type=dict)
    return msgspec.convert(
        upcast(type_name, schema, entry.schema, old), entry.struct, str_keys=True
    )


def _readers(name: str, entry: Entry) -> dict[int, Callable[[bytes], Event]]:
    """Schema -> what reads it. A payload that says it is of another type is refused by it."""
    newest = msgspec.json.Decoder(entry.struct).decode
    return {
        entry.schema: newest,
        **{schema: partial(_older, name, schema) for schema in range(1, entry.schema)},
    }


_READERS = {name: _readers(name, entry) for name, entry in CATALOG.items()}
