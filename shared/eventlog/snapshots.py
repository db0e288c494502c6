"""A snapshot's seal and key: what makes it safe to be a disposable cache.

The key is a fingerprint of everything that shapes the state: the fold's source, the catalog's schemas, the upcasters. A
state that was damaged, or made by other code, is never used; the log is replayed instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType

import xxhash

from shared.events import upcasting
from shared.events.catalog import CATALOG

_MAGIC = b"TPLS1"


def fingerprint(fold: Iterable[ModuleType], extra: str = "") -> str:
    """The key of snapshots made by these modules (their source), the catalog, the upcasters, and `extra` (settings)."""
    digest = xxhash.xxh3_128()
    for module in sorted([*fold, upcasting], key=lambda module: module.__name__):
        digest.update(f"\0{module.__name__}\0{inspect.getsource(module)}".encode())
    for name in sorted(CATALOG):
        digest.update(f"\0{name}\0{CATALOG[name].schema}\0{inspect.getsource(CATALOG[name].struct)}".encode())
    digest.update(f"\0{extra}".encode())
    return digest.hexdigest()


def seal(state: bytes) -> bytes:
    """The state with a checksum before it."""
    return _MAGIC + xxhash.xxh3_128(state).digest() + state


def unseal(sealed: bytes) -> bytes | None:
    """The state, or None when as much as one bit of it is not what was sealed."""
    start = len(_MAGIC) + 16
    state = sealed[start:]
    if sealed[: len(_MAGIC)] != _MAGIC or sealed[len(_MAGIC) : start] != xxhash.xxh3_128(state).digest():
        return None
    return state
