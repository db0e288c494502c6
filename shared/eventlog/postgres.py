"""The event log in Postgres: reads, versions, checkpoints, snapshots and leases. Appending and
waiting have files of their own.

Ordinary queries use asyncpg's pool; appender, listener, reader and leases have a connection each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from shared.domain.secret_url import Address
from shared.eventlog.errors import LogPruned, LogUnavailable
from shared.eventlog.limits import KEPT_MARKS, MAX_PAGE, MAX_PAGE_BYTES, MAX_SNAPSHOT_BYTES
from shared.eventlog.port import Commit, Lease, LogIdentity, Lost, Mark, Outcome, Place, PodNames
from shared.eventlog.postgres_append import Appender
from shared.eventlog.postgres_archived import Archived
from shared.eventlog.postgres_connection import (
    LOST_CONNECTION,
    WRITER,
    connect,
    make_pool,
    unavailable,
)
from shared.eventlog.postgres_logins import require_limited_login, warn_if_not_durable
from shared.eventlog.postgres_pages import (
    READ,
    READ_SHORT,
    READ_STREAM,
    SHORT_PAGE,
    page_in,
    short_page_in,
)
from shared.eventlog.postgres_session import Session
from shared.eventlog.postgres_timelines import begin_timeline
from shared.eventlog.postgres_watch import HeadWatch
from shared.eventlog.retrying import retried
from shared.eventlog.revisions import require_current
from shared.eventlog.snapshots import is_checkpoint, superseded
from shared.eventlog.whole_stream import bisected
from shared.events.envelope import Envelope

T = TypeVar("T")

_POOL_TIMEOUT_S = 10.0

_IDENTITY = "SELECT log_id, timeline FROM counter"
_VERSIONS = """
SELECT s.stream, coalesce(h.version, p.version) AS version FROM unnest($1::text[]) AS s(stream)
    LEFT JOIN stream_head h ON h.stream = s.stream
    LEFT JOIN pruned_stream p ON h.stream IS NULL AND p.id = md5(s.stream)::uuid
"""
_PODS_NAMED = """
SELECT (SELECT {since} FROM pod_name_from) AS unlisted,
       ARRAY(SELECT position FROM pod_name WHERE hash = topolog_name_hash($1) ORDER BY position)
           AS positions
"""
# Of the newest event of a stream that is in files only, NULL if all of them are.
_PRUNED_VERSION = """
SELECT least((SELECT min(version) FROM fact WHERE stream = $1),
             (SELECT min(first_version) FROM archived_stream WHERE stream = $1)) - 1 AS version
"""
_CHECKPOINT = """
INSERT INTO checkpoint AS c (consumer, position)
    SELECT $1, $2 WHERE $3 = 0 OR EXISTS (SELECT 1 FROM checkpoint WHERE consumer = $1)
    ON CONFLICT (consumer) DO UPDATE SET position = excluded.position WHERE c.position = $3
    RETURNING true
"""
_SNAPSHOTS = """
SELECT {columns} FROM snapshot WHERE projection = $1 AND fingerprint = $2 AND {these}
UNION ALL SELECT {columns} FROM older_snapshot
    WHERE projection = $1 AND fingerprint = $2 AND {these} ORDER BY position DESC
"""
_SNAPSHOT_PLACES = _SNAPSHOTS.format(columns="position, chain", these="position <= $3")
_LOAD_SNAPSHOT = _SNAPSHOTS.format(columns="position, state", these="position = $3 AND chain = $4")
# The newest snapshot is in `snapshot`, where releases before 0009 look for it.
_KEEP_OLDER_SNAPSHOT = """
INSERT INTO older_snapshot (projection, fingerprint, position, chain, state)
    SELECT projection, fingerprint, position, chain, state FROM snapshot
        WHERE projection = $1 AND fingerprint = $2 AND position < $3
    ON CONFLICT (projection, fingerprint, position) DO UPDATE
    SET chain = excluded.chain, state = excluded.state, saved_at = now()
"""
_SAVE_SNAPSHOT = """
INSERT INTO snapshot AS s (projection, fingerprint, position, chain, state)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (projection, fingerprint) DO UPDATE
    SET position = excluded.position, chain = excluded.chain, state = excluded.state,
        saved_at = now()
    WHERE s.position <= excluded.position
       OR NOT EXISTS (SELECT 1 FROM fact f WHERE f.position = s.position AND f.chain = s.chain)
"""
_SNAPSHOT_SIZES = """
SELECT position, octet_length(state) AS bytes FROM snapshot
    WHERE projection = $1 AND fingerprint = $2
UNION SELECT position, octet_length(state) FROM older_snapshot
    WHERE projection = $1 AND fingerprint = $2
ORDER BY position DESC
"""
_DELETE_OLDER_SNAPSHOTS = """
DELETE FROM older_snapshot
    WHERE projection = $1 AND fingerprint = $2 AND position = ANY($3::bigint[])
"""
_DROP_OLD_SNAPSHOTS = """
WITH older AS (
    DELETE FROM older_snapshot WHERE projection = $1 AND fingerprint <> $2
        AND saved_at < now() - interval '7 days')
DELETE FROM snapshot
    WHERE projection = $1 AND fingerprint <> $2 AND saved_at < now() - interval '7 days'
"""

_MARKS = """
SELECT m.fingerprint, m.position, m.chain, m.digest FROM projection_mark m
    JOIN fact f ON f.position = m.position AND f.chain = m.chain
    WHERE m.projection = $1 ORDER BY m.position DESC
"""
_SAVE_MARK = """
INSERT INTO projection_mark AS m (projection, fingerprint, position, chain, digest)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (projection, fingerprint, position) DO UPDATE
    SET chain = excluded.chain, digest = excluded.digest, made_at = now()
    WHERE m.chain <> excluded.chain
"""
_DROP_OLD_MARKS = """
DELETE FROM projection_mark WHERE projection = $1 AND (
    fingerprint <> $2 AND made_at < now() - interval '7 days'
    OR fingerprint = $2 AND position NOT IN (
        SELECT m.position FROM projection_mark m
            JOIN fact f ON f.position = m.position AND f.chain = m.chain
            WHERE m.projection = $1 AND m.fingerprint = $2 ORDER BY m.position DESC LIMIT $3))
"""


class PostgresEventLog:
    """An EventLog on a migrated database. A lost database is hidden from callers for `retry_for_s`.
    `role` limits the rights of a user that has more. `archive` is the place of the files of pruned
    events, "" for the one where they were written."""

    def __init__(
        self,
        address: Address,
        *,
        pool_size: int = 6,
        retry_for_s: float = 30.0,
        settings: dict[str, str] | None = None,
        role: str = WRITER,
        archive: str = "",
    ) -> None:
        self._address, self._settings = address, settings
        self._retry_for_s = retry_for_s
        self._pool = make_pool(address, pool_size, settings, role)
        self._archived = Archived(self._fetch, archive)
        self._watch = HeadWatch(lambda: connect(address, settings, role=role), self._head_once)
        self._appender = Appender(
            lambda: connect(address, settings, role=role), self._watch.hinted, retry_for_s
        )
        self._session = Session(lambda: connect(address, settings, role=role))
        self._reader = Session(lambda: connect(address, settings, role=role))

    @classmethod
    async def open(
        cls, address: Address, *, production: bool | None = None, **options: Any
    ) -> PostgresEventLog:
        """Connect and check the revision. Raises LogUnavailable, LogNotMigrated. Services pass
        `production`: then a login that may change events raises LoginTooStrong, otherwise it is
        logged as a warning. A read-only login always raises LoginTooWeak. A database that may lose
        acknowledged events is logged as a warning."""
        log = cls(address, **options)
        try:
            await log._retried(require_current)
            if production is not None:
                await log._retried(lambda connection: require_limited_login(connection, production))
                await log._retried(warn_if_not_durable)
        except BaseException:
            await log.close()
            raise
        return log

    async def identity(self) -> LogIdentity:
        row = await self._retry(lambda: self._reading(lambda c: c.fetchrow(_IDENTITY)))
        return LogIdentity(row["log_id"], row["timeline"])

    async def begin_timeline(self, now_us: int, lost: Lost | None = None) -> LogIdentity:
        await begin_timeline(self._address, self._settings, now_us, lost)
        return await self.identity()

    async def head(self) -> int:
        return await self._retry(self._watch.ask)

    async def begins(self) -> int:
        return await self._archived.begins()

    async def size_bytes(self) -> int:
        return int(
            (await self._fetchrow("SELECT pg_database_size(current_database()) AS bytes"))["bytes"]
        )

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        return await self._appender.append(commits)

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        start, limit = max(after, 0), min(limit, MAX_PAGE)
        short = await self._short_page(start, min(limit, SHORT_PAGE))
        if short is not None:
            return short
        row = await self._retry(
            lambda: self._reading(lambda c: c.fetchrow(READ, start, limit, MAX_PAGE_BYTES))
        )
        page = page_in(row)
        return await self._archived.completed(page, start, limit)

    async def _short_page(self, after: int, limit: int) -> list[Envelope] | None:
        """Return the page if few events are known to be new and none is large, otherwise None."""
        until, largest = self._watch.known, MAX_PAGE_BYTES // SHORT_PAGE
        if not after < until <= after + limit:
            return None
        rows = await self._retry(
            lambda: self._reading(lambda c: c.fetch(READ_SHORT, after, limit, largest))
        )
        return short_page_in(rows, after, until)

    async def read_stream(
        self, stream: str, after_version: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        limit = min(limit, MAX_PAGE)
        page = page_in(
            await self._fetchrow(READ_STREAM, stream, after_version, limit, MAX_PAGE_BYTES)
        )
        return await self._archived.completed_stream(page, stream, after_version, limit)

    async def version_at(self, stream: str, position: int) -> int:
        version = await self._archived.version_at(stream, position)
        if version is not None:
            return version
        # A bisection must not search the files of what was pruned.
        row = await self._fetchrow(_PRUNED_VERSION, stream)
        return await bisected(self, stream, position, row["version"])

    async def pods_named(self, name: str) -> PodNames:
        return PodNames(**await self._fetchrow(_PODS_NAMED.format(since="position"), name))

    async def pods_on(self, node: str) -> PodNames:
        statement = _PODS_NAMED.format(since="nodes")
        return PodNames(**await self._fetchrow(statement, f"node/{node}"))

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        rows = await self._fetch(_VERSIONS, list(streams))
        return {row["stream"]: row["version"] or 0 for row in rows}

    async def wait(self, after: int, timeout_s: float) -> bool:
        return await self._watch.wait(after, timeout_s)

    async def acquire(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        epoch = await self._leasing(
            lambda c: c.fetchval("SELECT topolog_acquire($1, $2, $3)", role, holder, ttl_s)
        )
        return None if epoch is None else Lease(role, holder, epoch)

    async def release(self, lease: Lease) -> None:
        statement = "SELECT topolog_release($1, $2, $3)"
        await self._leasing(lambda c: c.execute(statement, lease.role, lease.holder, lease.epoch))

    async def members(self, role: str) -> list[Lease]:
        rows = await self._leasing(lambda c: c.fetch("SELECT * FROM topolog_members($1)", role))
        return [Lease(*row) for row in rows]

    async def load_checkpoint(self, consumer: str) -> int:
        row = await self._fetchrow("SELECT position FROM checkpoint WHERE consumer = $1", consumer)
        return row["position"] if row else 0

    async def save_checkpoint(self, consumer: str, position: int, expected: int) -> bool:
        row = await self._once(lambda c: c.fetchrow(_CHECKPOINT, consumer, position, expected))
        return row is not None

    async def load_snapshot(
        self, projection: str, fingerprint: str, until: int | None = None
    ) -> tuple[Place, bytes] | None:
        key, newest = (projection, fingerprint), until if until is not None else 2**63 - 1
        in_files = until is not None and is_checkpoint(projection)
        kept = await self._archived.state(*key, newest) if in_files else None
        for position, chain in await self._fetch(_SNAPSHOT_PLACES, *key, newest):
            if kept is not None and kept[0].position >= position:
                return kept
            # The event may be archived.
            try:
                page = await self.read(position - 1, 1)
            except LogPruned:
                continue
            if not page or (page[0].position, page[0].chain) != (position, chain):
                continue
            row = await self._fetchrow(_LOAD_SNAPSHOT, *key, position, chain)
            if row is not None:
                return Place(position, chain), row["state"]
        return kept

    async def save_snapshot(
        self, projection: str, fingerprint: str, place: Place, state: bytes
    ) -> None:
        if len(state) > MAX_SNAPSHOT_BYTES:
            raise ValueError(
                f"snapshot of {projection} has {len(state)} bytes; "
                f"the limit is {MAX_SNAPSHOT_BYTES}"
            )
        key = (projection, fingerprint)
        await self._retried(lambda c: c.execute(_KEEP_OLDER_SNAPSHOT, *key, place.position))
        values = (*key, place.position, place.chain, state)
        await self._retried(lambda c: c.execute(_SAVE_SNAPSHOT, *values))
        sizes = await self._fetch(_SNAPSHOT_SIZES, *key)
        # The files of pruned events have checkpoints of their own.
        dense_after = None
        if is_checkpoint(projection):
            dense_after = (await self._fetchrow("SELECT position FROM pruned"))["position"]
        deleted = superseded([(row["position"], row["bytes"]) for row in sizes], dense_after)
        await self._retried(lambda c: c.execute(_DELETE_OLDER_SNAPSHOTS, *key, deleted))
        await self._retried(lambda c: c.execute(_DROP_OLD_SNAPSHOTS, *key))

    async def marks(self, projection: str) -> list[Mark]:
        rows = await self._fetch(_MARKS, projection)
        return [
            Mark(row["fingerprint"], Place(row["position"], row["chain"]), row["digest"])
            for row in rows
        ]

    async def save_mark(self, projection: str, mark: Mark) -> None:
        values = (projection, mark.fingerprint, mark.place.position, mark.place.chain, mark.digest)
        await self._retried(lambda c: c.execute(_SAVE_MARK, *values))
        await self._retried(
            lambda c: c.execute(_DROP_OLD_MARKS, projection, mark.fingerprint, KEPT_MARKS)
        )

    async def close(self) -> None:
        await self._appender.close()
        await self._watch.close()
        await self._session.close()
        await self._reader.close()
        (await self._pool).terminate()

    async def _head_once(self) -> int:
        return int(await self._reading(lambda c: c.fetchval("SELECT position FROM counter")))

    async def _fetch(self, query: str, *values: object) -> list[Any]:
        return await self._retried(lambda c: c.fetch(query, *values))

    async def _fetchrow(self, query: str, *values: object) -> Any:
        return await self._retried(lambda c: c.fetchrow(query, *values))

    async def _reading(self, use: Callable[[Any], Awaitable[T]]) -> T:
        """Read on a dedicated connection, which costs a third of a pooled one: every consumer of a
        process reads pages, identity and head all the time."""
        try:
            return await self._reader.run(use)
        except LOST_CONNECTION as error:
            raise self._unavailable(error) from error

    async def _retried(self, use: Callable[[Any], Awaitable[T]]) -> T:
        return await self._retry(lambda: self._once(use))

    async def _retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a repeatable call for as long as a lost connection may be hidden."""
        return await retried(ask, (LogUnavailable,), self._retry_for_s)

    async def _leasing(self, use: Callable[[Any], Awaitable[T]]) -> T:
        """Run without retries: a lease that cannot be renewed in time counts as lost."""
        try:
            return await self._session.run(use)
        except LOST_CONNECTION as error:
            raise self._unavailable(error) from error

    async def _once(self, use: Callable[[Any], Awaitable[T]]) -> T:
        """Run `use` with a pooled connection. Raises LogUnavailable if the connection was lost."""
        try:
            async with (await self._pool).acquire(timeout=_POOL_TIMEOUT_S) as connection:
                try:
                    return await use(connection)
                except LOST_CONNECTION:
                    connection.terminate()
                    raise
        except LOST_CONNECTION as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> LogUnavailable:
        return unavailable(self._address, error)
