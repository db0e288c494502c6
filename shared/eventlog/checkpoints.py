"""Checkpoints of a fold: states that a release with other fold code may start from (ADR 44).

A snapshot is keyed by the code of its fold. A checkpoint is keyed by the form of the stored state,
and names the code that made it. Upcasters convert an older form to the next one, as for events.
Checkpoints are written, checked for damage and thinned out as snapshots are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import msgspec

from shared.eventlog.port import EventLog, Place
from shared.eventlog.snapshots import checkpoints_of, seal, unseal

# Positions between two checkpoints. The size of a partition is a multiple of it, so that each
# partition begins right after a checkpoint.
EVERY = 25_000
# Of zlib: a checkpoint is written while the service works.
LEVEL = 1


class Form(msgspec.Struct, frozen=True):
    """The stored form of a fold's state. If a release cannot read the former version, raise
    `version` and add an upcaster under the former number. It converts the dumped state to the next
    version.
    """

    version: int = 1
    upcasters: Mapping[int, Callable[[bytes], bytes]] = {}


class Checkpoint(msgspec.Struct, frozen=True):
    """The dumped `state` at `place`, in the current form. `code` is the key of the fold's code."""

    place: Place
    code: str
    state: bytes


class _Stored(msgspec.Struct, frozen=True):
    code: str
    state: bytes


async def save_checkpoint(
    log: EventLog, projection: str, form: Form, checkpoint: Checkpoint
) -> None:
    """Keep a checkpoint. Raises LogUnavailable."""
    await save_packed(log, projection, form, checkpoint.place, packed(checkpoint))


async def save_packed(
    log: EventLog, projection: str, form: Form, place: Place, content: bytes
) -> None:
    """Keep a checkpoint at `place` with the content that `packed` returned. Raises
    LogUnavailable.
    """
    await log.save_snapshot(*key_of(projection, form.version), place, content)


def packed(checkpoint: Checkpoint) -> bytes:
    """Return the content of a stored checkpoint: a packed `_Stored`, made without another copy of
    the state, which may have hundreds of megabytes."""
    # MessagePack's empty `bin 8` at the end becomes a `bin 32` with the state's length.
    state = checkpoint.state
    head = msgspec.msgpack.encode(_Stored(checkpoint.code, b"")).removesuffix(b"\xc4\x00")
    compressor = zlib.compressobj(LEVEL)
    parts = [compressor.compress(head + b"\xc6" + len(state).to_bytes(4))]
    parts += [compressor.compress(state), compressor.flush()]
    return seal(b"".join(parts))


async def nearest_checkpoint(
    log: EventLog, projection: str, form: Form, until: int | None = None, after: int = 0
) -> Checkpoint | None:
    """Return the newest checkpoint of this history at or before `until` (None: the head); None also
    if it lies at or before `after`, or cannot be read. Raises LogUnavailable."""
    newest: tuple[Place, bytes] | None = None
    version = form.version
    for number in range(form.version, 0, -1):
        snapshot = await log.load_snapshot(*key_of(projection, number), until)
        if snapshot is not None and (newest is None or snapshot[0].position > newest[0].position):
            newest, version = snapshot, number
        if number - 1 not in form.upcasters:
            break
    if newest is None or newest[0].position <= after:
        return None
    try:
        stored = msgspec.msgpack.decode(zlib.decompress(unseal(newest[1]) or b""), type=_Stored)
        state = stored.state
        for number in range(version, form.version):
            state = form.upcasters[number](state)
    except (zlib.error, msgspec.MsgspecError, ValueError, KeyError, TypeError):
        # A checkpoint is a cache, so the caller replays the log instead.
        return None
    return Checkpoint(newest[0], stored.code, state)


async def oldest_checkpoint(log: EventLog, projection: str, form: Form) -> Checkpoint | None:
    """Return the oldest checkpoint after which every event can be read. Raises LogUnavailable."""
    oldest = await nearest_checkpoint(log, projection, form)
    while oldest is not None and (
        older := await nearest_checkpoint(log, projection, form, oldest.place.position - 1)
    ):
        oldest = older
    return oldest


def key_of(projection: str, version: int) -> tuple[str, str]:
    """Return the name and the key under which the log keeps the checkpoints of a form."""
    return checkpoints_of(projection), f"form {version}"
