"""The hash of a projection's state. Equal states have equal hashes, in whatever order they were
built. Pure.
"""

from __future__ import annotations

import hashlib

import msgspec


def canonical(state: object) -> bytes:
    """Return a state of structs, dicts and lists as JSON in one canonical form."""
    return msgspec.json.encode(msgspec.to_builtins(state, str_keys=True, order="sorted"))


def state_hash(state: object) -> str:
    """Return the first 16 hex digits of the SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(state)).hexdigest()[:16]
