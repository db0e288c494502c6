"""The hash of a fold's state: the same for the same state, in whatever order it was built. Pure."""

from __future__ import annotations

import hashlib

import msgspec


def canonical(state: object) -> bytes:
    """A state of structs, dicts and lists as JSON in one form."""
    return msgspec.json.encode(msgspec.to_builtins(state, str_keys=True, order="sorted"))


def state_hash(state: object) -> str:
    """The first 16 hex digits of SHA-256 over that."""
    return hashlib.sha256(canonical(state)).hexdigest()[:16]
