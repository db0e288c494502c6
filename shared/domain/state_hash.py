"""The hash of a projection's state. Equal states have equal hashes, in whatever order they were
built. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec


def canonical(state: object) -> bytes:
    """Return a state of structs, dicts and lists as JSON in one canonical form."""
    return msgspec.json.encode(msgspec.to_builtins(state, str_keys=True, order="sorted"))


def canonical_parts(state: object) -> Iterator[bytes]:
    """Yield the canonical form in parts, because the plain values of a large state take as much
    memory as the state: each entry of the dicts of a struct apart."""
    if not isinstance(state, msgspec.Struct) or not _is_plain(state.__struct_config__):
        yield canonical(state)
        return
    separator = b"{"
    for field in sorted(msgspec.structs.fields(state), key=lambda field: field.encode_name):
        yield separator + msgspec.json.encode(field.encode_name) + b":"
        yield from _entries(getattr(state, field.name))
        separator = b","
    yield b"}" if separator == b"," else b"{}"


def _is_plain(config: msgspec.structs.StructConfig) -> bool:
    return not config.omit_defaults and config.tag is None and not config.array_like


def _entries(value: object) -> Iterator[bytes]:
    if not isinstance(value, dict) or not value or not all(type(key) is str for key in value):
        yield canonical(value)
        return
    separator = b"{"
    for key in sorted(value):
        yield separator + msgspec.json.encode(key) + b":" + canonical(value[key])
        separator = b","
    yield b"}"


def state_hash(state: object) -> str:
    """Return the first 16 hex digits of the SHA-256 of the canonical form."""
    digest = hashlib.sha256()
    for part in canonical_parts(state):
        digest.update(part)
    return digest.hexdigest()[:16]
