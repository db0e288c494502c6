"""What services may not do to the tables of a log: its owner imports a history and masks payloads,
its keeper archives. Also reports its sizes.

Each operation is one transaction, and an advisory lock keeps two of them from running at once. An
interruption leaves the log as it was, and what a transaction has read does not change before it
writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import asyncpg
import msgspec

from shared.eventlog.chain import BEGINNING, linked
from shared.eventlog.errors import LogBusy, LoginTooWeak, LogUnavailable
from shared.eventlog.history_file import BLOCK_BYTES, BLOCK_FACTS, Header, pack, unpack
from shared.eventlog.port import Commit, LogIdentity
from shared.eventlog.postgres_batch import APPEND, arguments, encode_commit
from shared.eventlog.postgres_connection import (
    LOST_CONNECTION,
    PRUNER,
    SERVER_SETTINGS,
    connect,
    unavailable,
)
from shared.eventlog.postgres_pages import READ, READ_THESE, page_in
from shared.events.envelope import Envelope

COLUMNS = Envelope.__struct_fields__
MASKED_AT_ONCE = 500
_REWRITE_KEY, _REWRITE_WAIT_S = 0x746F706F72777274, 30
_LOCK = "SELECT position, log_id FROM counter FOR UPDATE"
_FILL_HEADS = """
INSERT INTO stream_head (stream, version)
    SELECT stream, max(version) FROM fact GROUP BY stream;
INSERT INTO commit_seen (commit_id, first, last)
    SELECT topolog_commit_key(commit_id), min(position), max(position) FROM fact
    GROUP BY commit_id;
INSERT INTO writer (role, epoch) SELECT role, max(epoch) FROM fact WHERE epoch > 0 GROUP BY role
    ON CONFLICT (role) DO UPDATE SET epoch = greatest(writer.epoch, excluded.epoch);
"""
_LIST_POD = """
INSERT INTO pod_name (hash, position)
    SELECT topolog_name_hash(n.name), $1 FROM topolog_pod_keys($2, true) AS n(name)
        WHERE n.name IS NOT NULL
    ON CONFLICT DO NOTHING
"""
_PARTITIONS = """
SELECT c.oid::regclass::text AS name, substring(c.relname FROM 6)::bigint AS first,
       pg_total_relation_size(c.oid) AS bytes
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'fact'::regclass ORDER BY first
"""
_GROWING = """
SELECT c.relname, pg_total_relation_size(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relname IN ('archived_block', 'archived_stream', 'commit_seen',
        'stream_head', 'snapshot', 'older_snapshot', 'projection_mark', 'pod_name', 'pruned_stream')
"""


class NotEmpty(Exception):
    """The log is not empty; `log_id` identifies its history."""

    def __init__(self, events: int, log_id: str) -> None:
        super().__init__(f"the log already holds {events} events")
        self.log_id = log_id


class Partition(msgspec.Struct, frozen=True):
    """Positions `first`..`last`; `full` if appends no longer reach it. `newest_us` is the time of
    its last event.
    """

    name: str
    first: int
    last: int
    bytes: int
    full: bool
    newest_us: int = 0


class Status(msgspec.Struct, frozen=True):
    """Sizes of the log: rows and archive. `lowest` is the lowest position of a consumer or a
    snapshot; nothing above it is archived. Events up to `pruned_to` are in files only. `bytes` is
    the size of the database, `tables` the size of each growing table with its indexes,
    `archived_bytes` the size of the compressed blocks."""

    log_id: str
    timeline: int
    head: int
    lowest: int
    bytes: int
    events_in_rows: int
    archived_to: int
    archived_bytes: int
    begins_us: int
    checkpoints: dict[str, int]
    partitions: list[Partition]
    tables: dict[str, int] = {}
    pruned_to: int = 0


async def take_in(
    url: str,
    header: Header,
    blocks: Iterable[Sequence[Envelope]],
    opening: Callable[[LogIdentity], Sequence[Commit]],
) -> LogIdentity:
    """Fill an empty log with a whole history and begin a new timeline with the commits of
    `opening`, in one transaction. Raises NotEmpty, LogBusy, LogUnavailable."""
    async with _owner(url) as connection, rewriting(connection):
        counter = await connection.fetchrow(_LOCK)
        if counter["position"]:
            raise NotEmpty(*counter)
        chain = BEGINNING
        for block in blocks:
            await connection.execute("SELECT topolog_roll($1)", block[-1].position)
            for envelope in block:
                chain = envelope.chain or linked(chain, envelope)
            rows = [msgspec.structs.astuple(envelope) for envelope in block]
            await connection.copy_records_to_table("fact", records=rows, columns=COLUMNS)
        await connection.execute(_FILL_HEADS)
        await connection.executemany(
            "INSERT INTO checkpoint (consumer, position) VALUES ($1, $2)",
            list(header.checkpoints.items()),
        )
        await connection.execute(
            "UPDATE counter SET position = $1, chain = $2, log_id = $3, timeline = $4",
            *(header.last, chain, header.log_id, header.timeline),
        )
        begun = LogIdentity(
            header.log_id, await connection.fetchval("SELECT topolog_begin_timeline()")
        )
        for commit in opening(begun):
            await connection.fetchrow(APPEND, *arguments([encode_commit(commit)]))
    return begun


# Returns the replacement of a payload on a stream, None to keep it.
Masked = Callable[[str, bytes], bytes | None]


async def mask(url: str, positions: Collection[int], masked: Masked) -> int:
    """Replace the payloads at these positions, in rows and in the archive, with the result of
    `masked`. Snapshots, which may hold the old text, are deleted. Returns the number of payloads.
    Raises LogBusy, LogUnavailable."""
    async with _owner(url) as connection:
        async with rewriting(connection):
            done = await _mask_archived(connection, positions, masked)
            done += await _mask_rows(connection, sorted(positions), masked)
            await connection.execute("DELETE FROM older_snapshot")
            await connection.execute("DELETE FROM snapshot")
        await connection.execute("VACUUM fact, archived_block")
    return done


async def _mask_rows(connection: Any, positions: Sequence[int], masked: Masked) -> int:
    # This lock blocks appends, but not readers.
    await connection.execute("ALTER TABLE fact DISABLE TRIGGER fact_immutable")
    done = start = 0
    while start < len(positions):
        chunk = positions[start : start + MASKED_AT_ONCE]
        page = page_in(await connection.fetchrow(READ_THESE, chunk, BLOCK_BYTES))
        start = bisect_right(positions, page[-1].position) if page else start + len(chunk)
        page = [masked_event(event, masked) for event in page]
        await connection.executemany(
            "UPDATE fact SET payload = $2 WHERE position = $1",
            [(event.position, event.payload) for event in page],
        )
        await _list_again(connection, page)
        done += len(page)
    await connection.execute("ALTER TABLE fact ENABLE TRIGGER fact_immutable")
    return done


async def _mask_archived(connection: Any, positions: Collection[int], masked: Masked) -> int:
    done = 0
    for first, last in await connection.fetch(
        "SELECT first, last FROM archived_block ORDER BY first"
    ):
        covered = {position for position in positions if first <= position <= last}
        if covered:
            data = await connection.fetchval(
                "SELECT data FROM archived_block WHERE first = $1", first
            )
            events = [
                masked_event(event, masked) if event.position in covered else event
                for event in unpack(data)
            ]
            packed = pack(events)
            await connection.execute(
                "UPDATE archived_block SET data = $2, sha256 = $3 WHERE first = $1",
                first,
                packed,
                sha256(packed).digest(),
            )
            await _list_again(connection, [event for event in events if event.position in covered])
            done += len(covered)
    return done


async def _list_again(connection: Any, masked: Sequence[Envelope]) -> None:
    """List the pods that these masked events observe by their new names."""
    listed = await connection.fetch(
        "DELETE FROM pod_name WHERE position = ANY($1) RETURNING position",
        [event.position for event in masked],
    )
    positions = {row["position"] for row in listed}
    await connection.executemany(
        _LIST_POD,
        [(event.position, event.payload) for event in masked if event.position in positions],
    )


def masked_event(envelope: Envelope, masked: Masked) -> Envelope:
    """Return the event with its payload as `masked` replaces it."""
    payload = masked(envelope.stream, envelope.payload)
    return envelope if payload is None else msgspec.structs.replace(envelope, payload=payload)


async def require_keeper(url: str) -> None:
    """Raise LoginTooWeak or LogUnavailable early, before there is anything to do."""
    async with _keeper(url):
        pass


async def archive(url: str, partition: Partition) -> None:
    """Replace the rows of a full partition with compressed blocks that the log reads like rows, one
    block at a time. A partition that another process has archived since is left alone. Raises
    LogBusy, LoginTooWeak, LogUnavailable."""
    async with _keeper(url) as connection, rewriting(connection):
        if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", partition.name):
            return
        async for block in _blocks(connection, partition):
            streams = _streams(block)
            packed = pack(block)
            await connection.execute(
                "SELECT topolog_archive_block($1, $2, $3, $4, $5, $6, $7)",
                *(block[0].position, block[-1].position, sha256(packed).digest(), packed),
                list(streams),
                *map(list, zip(*streams.values(), strict=True)),
            )
        await connection.execute("SELECT topolog_drop_partition($1)", partition.first)


async def _blocks(connection: Any, partition: Partition) -> AsyncIterator[list[Envelope]]:
    """Yield the partition's events in blocks of at most BLOCK_FACTS and about BLOCK_BYTES."""
    position = partition.first - 1
    while position < partition.last:
        page = page_in(
            await connection.fetchrow(
                READ, position, min(BLOCK_FACTS, partition.last - position), BLOCK_BYTES
            )
        )
        if not page or [event.position for event in page] != list(
            range(position + 1, position + 1 + len(page))
        ):
            raise LogUnavailable(
                f"partition {partition.name} lacks events after {position}: nothing was archived; "
                "run: topolog replay verify"
            )
        position += len(page)
        yield page


def _streams(block: Sequence[Envelope]) -> dict[str, tuple[int, int]]:
    """Return each stream with its first and last version in the block."""
    versions: dict[str, tuple[int, int]] = {}
    for envelope in block:
        first, _ = versions.get(envelope.stream, (envelope.version, 0))
        versions[envelope.stream] = first, envelope.version
    return versions


async def status(url: str) -> Status:
    """Read the status; any login that may read the log is enough. Raises LoginTooWeak,
    LogUnavailable."""
    try:
        async with connected(url) as connection:
            return await _status(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise LoginTooWeak(
            f"{error}; give --database-url with the login topolog_viewer, or another that may read"
        ) from error


async def _status(connection: Any) -> Status:
    head = await connection.fetchrow(
        "SELECT position, log_id, timeline, partition_size FROM counter"
    )
    checkpoints = dict(await connection.fetch("SELECT consumer, position FROM checkpoint"))
    snapshots = await connection.fetch(
        "SELECT max(position) AS position FROM snapshot"
        " WHERE projection NOT LIKE '%.checkpoint' GROUP BY projection"
    )
    archived = await connection.fetchrow(
        "SELECT coalesce(max(last), 0) AS last, coalesce(sum(length(data)), 0)::bigint AS bytes"
        " FROM archived_block"
    )
    begins_us = await connection.fetchval("SELECT time_us FROM fact ORDER BY position LIMIT 1")
    partitions = [
        await _partition(connection, row, head) for row in await connection.fetch(_PARTITIONS)
    ]
    return Status(
        head["log_id"],
        head["timeline"],
        head["position"],
        min([head["position"], *checkpoints.values(), *(row["position"] for row in snapshots)]),
        int(await connection.fetchval("SELECT pg_database_size(current_database())")),
        head["position"] - archived["last"],
        archived["last"],
        archived["bytes"],
        begins_us or 0,
        checkpoints,
        partitions,
        {
            "fact": sum(partition.bytes for partition in partitions),
            **dict(await connection.fetch(_GROWING)),
        },
        int(await connection.fetchval("SELECT position FROM pruned")),
    )


async def _partition(connection: Any, row: Any, head: Any) -> Partition:
    last = row["first"] + head["partition_size"] - 1
    full = last <= head["position"]
    newest = (
        await connection.fetchval("SELECT time_us FROM fact WHERE position = $1", last)
        if full
        else 0
    )
    return Partition(
        row["name"],
        row["first"],
        min(last, max(head["position"], row["first"] - 1)),
        row["bytes"],
        full,
        newest or 0,
    )


@asynccontextmanager
async def _owner(url: str) -> AsyncIterator[Any]:
    """A connection with the owner's rights. Raises LoginTooWeak for any other login, LogUnavailable
    if the database goes away.
    """
    async with connected(url) as connection:
        if not await connection.fetchval(
            "SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class"
            " WHERE oid = to_regclass('public.fact')"
        ):
            raise LoginTooWeak(
                "only the owner of the log may do this; give --database-url with the owner's login"
            )
        yield connection


@asynccontextmanager
async def _keeper(url: str) -> AsyncIterator[Any]:
    """A connection that may archive. Raises LoginTooWeak, LogBusy, LogUnavailable."""
    async with connected(url, PRUNER) as connection:
        if not await connection.fetchval(
            "SELECT has_function_privilege('topolog_drop_partition(bigint)', 'EXECUTE')"
        ):
            raise LoginTooWeak(
                "this login may not archive; give --database-url with the login topolog_keeper, or "
                "the owner's (topolog database roles)"
            )
        yield connection


@asynccontextmanager
async def connected(url: str, role: str = "") -> AsyncIterator[Any]:
    """A connection without a limit of time, as `role` if the login may take it."""
    connection = None
    try:
        connection = await connect(
            url, {"statement_timeout": "0"}, role=role, command_timeout_s=None
        )
        yield connection
    except asyncpg.LockNotAvailableError as error:
        raise LogBusy(
            "a long transaction reads the log (a dump?); try again when it has ended"
        ) from error
    except asyncpg.ObjectInUseError as error:
        raise LogBusy(f"{error}; run the command again later") from error
    except LOST_CONNECTION as error:
        raise unavailable(url, error) from error
    finally:
        if connection is not None:
            await connection.close()


@asynccontextmanager
async def rewriting(connection: Any) -> AsyncIterator[None]:
    """A transaction that excludes every other rewrite of the history. The lock is acquired before
    anything is read and released with the transaction. Raises LogBusy."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_REWRITE_WAIT_S}s'")
        try:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _REWRITE_KEY)
        except asyncpg.LockNotAvailableError as error:
            raise LogBusy(
                "another archive, redaction or import runs on this log; try again when it has ended"
            ) from error
        await connection.execute(f"SET LOCAL lock_timeout = '{SERVER_SETTINGS['lock_timeout']}'")
        yield
