"""Seal and key of a snapshot: they make it a disposable cache.

The key is a fingerprint of everything that shapes the state: the source of the fold and of its
imports, of decoding, and of what was registered for it. A state that is damaged or was made by
other code is never used; the log is replayed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import xxhash

from shared.eventlog.closure import code_fingerprint
from shared.events import codec

_MAGIC = b"TPLS1"
_CHECKPOINT = ".checkpoint"

# Per projection and code. A state of 150,000 pods takes about 30 MB.
KEPT_SNAPSHOTS = 64
KEPT_SNAPSHOT_BYTES = 256 << 20
# A twentieth of what an event takes in rows.
KEPT_BYTES_AN_EVENT = 50


def fingerprint(fold: str, extra: str = "", registered: Iterable[object] = ()) -> str:
    """Return the key of snapshots of the fold in the module `fold`: its import closure, decoding,
    `registered` objects (in order, with modules and arguments) and `extra` (settings). Raises
    TypeError for an object without a key."""
    code = code_fingerprint([fold, codec.__name__], registered)
    return f"{code}{xxhash.xxh3_64(extra.encode()).hexdigest()}"


def checkpoints_of(projection: str) -> str:
    """Return the name under which the checkpoints of a projection are kept."""
    return f"{projection}{_CHECKPOINT}"


def is_checkpoint(projection: str) -> bool:
    return projection.endswith(_CHECKPOINT)


def superseded(kept: Sequence[tuple[int, int]], dense_after: int | None = None) -> list[int]:
    """Return the positions of snapshots to delete.

    `kept` is (position, bytes), the newest first. The newest always stays. Older ones let questions
    about the past start near their answer: at most `KEPT_SNAPSHOTS` and `KEPT_SNAPSHOT_BYTES` of
    them stay. The first to go is the one with the smallest gap between its neighbours compared with
    its age, so that the past is covered evenly on a logarithmic scale.

    Those after position `dense_after` are kept apart, because most questions are about their time:
    they stay while they take `KEPT_BYTES_AN_EVENT`, then evenly thinned.
    """
    newest = kept[0][0]
    edge = newest if dense_after is None else min(dense_after, newest)
    dense = [snapshot for snapshot in kept if snapshot[0] > edge]
    sparse = [kept[0], *(snapshot for snapshot in kept[1:] if snapshot[0] <= edge)]
    deleted = _thinned(sparse, KEPT_SNAPSHOTS, KEPT_SNAPSHOT_BYTES, lambda age: max(1, age))
    bound = max(KEPT_SNAPSHOT_BYTES, KEPT_BYTES_AN_EVENT * (newest - edge))
    return deleted + _thinned(dense, len(dense), bound, lambda _: 1)


def _thinned(
    kept: Sequence[tuple[int, int]], most: int, most_bytes: int, scale: Callable[[int], int]
) -> list[int]:
    staying, deleted = list(kept), list[int]()
    total = sum(size for _, size in staying[1:])
    while len(staying) > 1 and (len(staying) > most or total > most_bytes):
        index = min(
            range(1, len(staying)),
            key=lambda index: _gap(staying, index) / scale(staying[0][0] - staying[index][0]),
        )
        position, size = staying.pop(index)
        deleted.append(position)
        total -= size
    return deleted


def _gap(staying: Sequence[tuple[int, int]], index: int) -> int:
    older = staying[index + 1][0] if index + 1 < len(staying) else 0
    return staying[index - 1][0] - older


def seal(state: bytes) -> bytes:
    """Return the state with a checksum before it."""
    return _MAGIC + xxhash.xxh3_128(state).digest() + state


def unseal(sealed: bytes) -> bytes | None:
    """Return the state, or None if any bit differs from the sealed one."""
    start = len(_MAGIC) + 16
    state = sealed[start:]
    if (
        sealed[: len(_MAGIC)] != _MAGIC
        or sealed[len(_MAGIC) : start] != xxhash.xxh3_128(state).digest()
    ):
        return None
    return state
