"""Prune archived blocks: their events stay in files only, and of each ended stream a compact row.

Role `topolog_pruner` may do this and nothing else; a session with more rights takes it. Each block
is one transaction of `topolog_prune` (migration 0012), which checks again that every consumer has
passed it. An interruption leaves whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import asyncpg
import msgspec

from shared.eventlog.errors import LoginTooWeak
from shared.eventlog.history_file import pack, unpack
from shared.eventlog.postgres_care import connected, rewriting
from shared.eventlog.postgres_connection import PRUNER
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.envelope import Envelope

_PRUNED = "SELECT position, archive, (SELECT partition_size FROM counter) AS size FROM pruned"
_BLOCKS = "SELECT first, last FROM archived_block WHERE first > $1 ORDER BY first"
_PRUNE = "SELECT topolog_prune($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


class Range(msgspec.Struct, frozen=True):
    """The archived blocks of a partition that are not pruned, by their first positions. `behind`
    names what has not passed them, "" if everything has."""

    first: int
    last: int
    blocks: tuple[int, ...]
    behind: str = ""


class Prunable(msgspec.Struct, frozen=True):
    """The files of positions 1 to `pruned_to` are in `archive`."""

    pruned_to: int
    archive: str
    ranges: tuple[Range, ...]


async def prunable(url: str) -> Prunable:
    """Return what could be pruned, oldest first. Raises LogUnavailable."""
    async with connected(url) as connection:
        row = await connection.fetchrow(_PRUNED)
        pruned_to, size = row["position"], row["size"]
        partitions: dict[int, list[tuple[int, int]]] = {}
        for first, last in await connection.fetch(_BLOCKS, pruned_to):
            partitions.setdefault((first - 1) // size, []).append((first, last))
        ranges = []
        for blocks in partitions.values():
            last = blocks[-1][1]
            behind = await connection.fetchval("SELECT topolog_unpassed($1) LIMIT 1", last)
            firsts = tuple(first for first, _ in blocks)
            ranges.append(Range(firsts[0], last, firsts, behind or ""))
        return Prunable(pruned_to, row["archive"], tuple(ranges))


async def prune(url: str, blocks: Iterable[int], archive: str) -> None:
    """Prune the blocks that begin at these positions; their files are in `archive`. Raises LogBusy,
    LoginTooWeak, LogUnavailable."""
    async with connected(url, PRUNER) as connection:
        try:
            await connection.execute(*_call(None, archive, []))
            for first in blocks:
                async with rewriting(connection):
                    data = await connection.fetchval(
                        "SELECT data FROM archived_block WHERE first = $1", first
                    )
                    if data is not None:
                        await connection.execute(*_call(first, archive, unpack(data)))
        except asyncpg.InsufficientPrivilegeError as error:
            raise LoginTooWeak(
                f"this login may not prune; give the owner's, or a member of role {PRUNER}"
            ) from error


def _call(first: int | None, archive: str, block: list[Envelope]) -> tuple[Any, ...]:
    begun: dict[str, int] = {}
    newest: dict[str, Envelope] = {}
    for event in block:
        begun.setdefault(event.stream, event.version)
        newest[event.stream] = event
    ended = [
        event
        for event in newest.values()
        if event.type == PodEnded.__name__ and event.stream.startswith(streams.pod(""))
    ]
    kept = [event for event in block if event.stream == streams.LOG or event is block[-1]]
    packed = [pack([event]) for event in kept]
    return (
        _PRUNE,
        first,
        archive,
        list({event.commit_id for event in block}),
        list(begun),
        list(begun.values()),
        [event.stream for event in ended],
        [event.version for event in ended],
        [event.position for event in kept],
        [sha256(data).digest() for data in packed],
        packed,
        [event.version if event.stream == streams.LOG else 0 for event in kept],
    )
