"""What a database reports about its log, for operators: a few queries, read-only."""

from __future__ import annotations

import time

import msgspec

from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_logins import not_durable, rights_of
from shared.eventlog.revisions import newest_revision, revisions, works

# Growth is measured over at most this many of the newest events.
SPAN_FACTS = 100_000

# The time left of a lease that its holder released.
GIVEN_UP_S = -1e9


_ROW_BYTES = """
SELECT (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits
            WHERE inhparent = 'fact'::regclass)
        / greatest(c.position - (SELECT coalesce(max(last), 0) FROM archived_block), 1)
    + (pg_total_relation_size('commit_seen') + pg_total_relation_size('stream_head'))
        / greatest(c.position - (SELECT position FROM pruned), 1)
    FROM counter c
"""


class Inspection(msgspec.Struct, frozen=True):
    """`row_bytes` is what an event takes in rows, with its commit id and version.
    `works`: this release works on the schema; otherwise only the revisions are known. `rank`
    says as what the login may change events, "" if it may not. `leases` are the seconds left by
    role, negative after expiry. `span_*` measure growth over the newest events: their number, how
    many of them reserve a pod, and the seconds from first to last. `clock_skew_s` is the database's
    clock minus this machine's. `longest_*` is the stream with the most events.
    `not_durable` are settings by which a crash may lose acknowledged events."""

    revision: str
    newest_revision: str
    works: bool = True
    login: str = ""
    rank: str = ""
    head: int = 0
    relayed: int = 0
    size_bytes: int = 0
    row_bytes: float = 0.0
    clock_skew_s: float = 0.0
    leases: dict[str, float] = {}
    longest_stream: str = ""
    longest_events: int = 0
    span_events: int = 0
    span_pods: int = 0
    span_s: float = 0.0
    not_durable: tuple[str, ...] = ()


async def inspect(url: str) -> Inspection:
    """Query once. Raises what the driver raises."""
    connection = await connect(url, timeout_s=10.0)
    try:
        revision, works_from = await revisions(connection)
        if not works(revision, works_from, newest_revision()):
            return Inspection(revision, newest_revision(), works=False)
        rights = await rights_of(connection)
        before_s = time.time()
        clock_s = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
        skew_s = clock_s - (before_s + time.time()) / 2
        head = int(await connection.fetchval("SELECT position FROM counter"))
        span = await connection.fetchrow(
            "SELECT count(*) AS facts, count(*) FILTER (WHERE type = 'PodReserved') AS pods,"
            " coalesce(max(time_us) - min(time_us), 0) AS span_us FROM fact WHERE position > $1",
            max(head - SPAN_FACTS, 0),
        )
        leases = await connection.fetch(
            "SELECT role, extract(epoch FROM expires_at - clock_timestamp()) AS left_s FROM lease"
        )
        longest = await connection.fetchrow(
            "SELECT stream, version FROM stream_head ORDER BY version DESC LIMIT 1"
        )
        return Inspection(
            revision=revision,
            newest_revision=newest_revision(),
            login=rights.user,
            rank=rights.rank,
            head=head,
            relayed=int(
                await connection.fetchval(
                    "SELECT coalesce(max(position), 0) FROM checkpoint WHERE consumer = 'relay'"
                )
            ),
            size_bytes=int(
                await connection.fetchval("SELECT pg_database_size(current_database())")
            ),
            row_bytes=float(await connection.fetchval(_ROW_BYTES)),
            clock_skew_s=skew_s,
            leases={row["role"]: max(float(row["left_s"]), GIVEN_UP_S) for row in leases},
            longest_stream=longest["stream"] if longest else "",
            longest_events=longest["version"] if longest else 0,
            span_events=span["facts"],
            span_pods=span["pods"],
            span_s=span["span_us"] / 1e6,
            not_durable=await not_durable(connection),
        )
    finally:
        await connection.close()
