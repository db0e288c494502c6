"""The codec: events to JSON bytes and back, through the catalog and the upcasters. No other module
encodes or decodes events.

The type and schema of a row say how its payload is read, so that a replay parses each payload once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from shared.domain.version import VERSION
from shared.events import streams
from shared.events.catalog import CATALOG, Entry, Event
from shared.events.envelope import Envelope
from shared.events.upcasting import upcast

_encoder = msgspec.json.Encoder()
_RELEASE = b',"release":"%s"}' % VERSION.encode()
_NUL = b"\\u0000"
_REPLACEMENT = "\ufffd".encode()
_ESCAPE = re.compile(rb"\\u0000|\\.", re.DOTALL)
# A foreign text in a message.
_RELEASE_CHARS = 40
_UNREADABLE = (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError)


class _Written(msgspec.Struct, frozen=True):
    release: str = ""


class UndecodableEvent(Exception):
    """A stored event that this code cannot read: its type is unknown, its schema is newer, or its
    payload is damaged."""

    def __init__(self, envelope: Envelope, problem: str) -> None:
        super().__init__(
            f"event {envelope.position} ({envelope.type} schema {envelope.schema} on "
            f"{envelope.stream}): {problem}; "
            "run a release that knows it, or inspect it with: topolog replay log --from "
            f"{envelope.position} --limit 1"
        )
        self.envelope = envelope


def type_of(event: Event) -> str:
    """Return the event's name in the catalog."""
    return type(event).__name__


def encode(event: Event) -> bytes:
    """Return the payload as stored: JSON with the type tag inside.

    Texts come from outside and may contain the character 0, which Postgres' jsonb rejects: it
    becomes U+FFFD."""
    payload = _encoder.encode(event)
    if _NUL not in payload:
        return payload
    return _ESCAPE.sub(lambda escape: escape[0].replace(_NUL, _REPLACEMENT), payload)


def encode_on(stream: str, event: Event) -> bytes:
    """Return the payload as stored on this stream.

    On streams that carry safety events it names the release that wrote it, as one more key that
    decoders ignore: a service that cannot read the event stops, and says which release can.
    """
    payload = encode(event)
    if not streams.carries_safety(stream):
        return payload
    return payload[:-1] + _RELEASE


def decode(envelope: Envelope) -> Event:
    """Return the event in its newest form. Raises UndecodableEvent."""
    schemas = _READERS.get(envelope.type)
    if schemas is None:
        raise UndecodableEvent(envelope, f"unknown type, {_writer(envelope)}")
    read = schemas.get(envelope.schema)
    if read is None:
        raise UndecodableEvent(
            envelope,
            f"this release reads schema 1 to {CATALOG[envelope.type].schema}, {_writer(envelope)}",
        )
    try:
        return read(envelope.payload)
    except _UNREADABLE as error:
        raise UndecodableEvent(envelope, str(error)) from error


def _writer(envelope: Envelope) -> str:
    written = datetime.fromtimestamp(envelope.time_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"written at {written} by role {envelope.role}, epoch {envelope.epoch}, of "
        f"{_release(envelope)}"
    )


def _release(envelope: Envelope) -> str:
    """Return the release that wrote an event, as far as the event names it."""
    try:
        release = msgspec.json.decode(envelope.payload, type=_Written).release
    except (msgspec.MsgspecError, ValueError):
        release = ""
    schema = f"a release with schema {envelope.schema} of {envelope.type}"
    return f"Topolog {ascii(release[:_RELEASE_CHARS])[1:-1]}, {schema}" if release else schema


def decode_all(page: Sequence[Envelope]) -> list[Event] | None:
    """Return all events of a page, or None if one cannot be read (`decode` says which). A third
    cheaper than one by one."""
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
    """Return schema -> decoder. A decoder rejects a payload with the tag of another type."""
    newest = msgspec.json.Decoder(entry.struct).decode
    return {
        entry.schema: newest,
        **{schema: partial(_older, name, schema) for schema in range(1, entry.schema)},
    }


_READERS = {name: _readers(name, entry) for name, entry in CATALOG.items()}
