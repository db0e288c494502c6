"""A snapshot's seal and key: what makes it safe to be a disposable cache.

The key is a fingerprint of everything that shapes the state: the source of the fold, of all that it
imports, of decoding and of what was registered for it. A state that was damaged, or made by other
code, is never used; the log is replayed instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import xxhash

from shared.eventlog.closure import code_fingerprint
from shared.events import codec

_MAGIC = b"TPLS1"


def fingerprint(fold: ModuleType, extra: str = "", registered: Iterable[object] = ()) -> str:
    """The key of snapshots that this module's fold makes: its import closure, that of decoding,
    what was `registered` at run time (in its order, with its modules and arguments), and `extra`
    (settings). Raises TypeError for what has no key."""
    code = code_fingerprint([fold.__name__, codec.__name__], registered)
    return f"{code}{xxhash.xxh3_64(extra.encode()).hexdigest()}"


def seal(state: bytes) -> bytes:
    """The state with a checksum before it."""
    return _MAGIC + xxhash.xxh3_128(state).digest() + state


def unseal(sealed: bytes) -> bytes | None:
    """The state, or None when as much as one bit of it is not what was sealed."""
    start = len(_MAGIC) + 16
    state = sealed[start:]
    if (
        sealed[: len(_MAGIC)] != _MAGIC
        or sealed[len(_MAGIC) : start] != xxhash.xxh3_128(state).digest()
    ):
        return None
    return state
