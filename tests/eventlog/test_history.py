"""The history of a log in Postgres: rows older than chains, the release before, a database set
back, an altered row; leases under a clock that was set back; the view for people over payloads that
are no JSON for Postgres."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection

from services.replay.commands import verify
from shared.eventlog.chain import BEGINNING, linked
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Appended, Commit, Conflict, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_batch import APPEND, arguments, encode_commit
from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_engine import make_engine
from shared.eventlog.revisions import MIGRATIONS
from shared.events.cluster_events import PodEnded
from tests.eventlog.words import commit, draft, given, place, seen
from tests.fixtures.servers import PostgresServer, database_name

# Arguments of `topolog_append`. Releases up to migration 0002 pass the first 17 of them, up to 0006
# the first 20, up to 0010 all.
_TYPES = (
    *("text[]", "int[]", "text[]", "int[]", "bigint[]", "bigint[]", "text[]", "bigint[]", "text[]"),
    *("int[]", "int[]", "text[]", "int[]", "bigint[]", "text[]", "int[]", "bytea[]"),
    *("int[]", "bigint[]", "bytea[]", "int[]"),
)


@pytest.fixture
async def owner(log_url: str) -> AsyncIterator[Any]:
    """Yield the owner's connection."""
    connection = await connect(log_url)
    yield connection
    await connection.close()


def _earlier_arguments(commits: Sequence[Commit]) -> list[list[Any]]:
    """Return the arguments for commits of different ids that were decided nowhere."""
    (ids, roles, epochs, times, correlations, causations, traces, *_, ends, streams) = arguments(
        [encode_commit(item) for item in commits]
    )[:12]
    expected, types, schemas, payloads = arguments([encode_commit(item) for item in commits])[12:16]
    owners = [index for index, item in enumerate(commits, 1) for _ in item.drafts]
    starts = [1, *(end + 1 for end in ends[:-1])]
    nowhere = [0] * len(ids)
    return [
        *(ids, _roots(ids), roles, _roots(roles), epochs, times, correlations, causations, traces),
        *(starts, owners, streams, _roots(streams), expected, types, schemas, payloads),
        *(nowhere, [], [], nowhere),
    ]


def _roots(names: Sequence[str]) -> list[int]:
    """Return the 1-based index of the first occurrence of each name."""
    return [names.index(name) + 1 for name in names]


async def append_as_an_earlier_release(connection: Any, count: int, *commits: Commit) -> None:
    given = ", ".join(f"${number}::{kind}" for number, kind in enumerate(_TYPES[:count], 1))
    row = await connection.fetchrow(
        f"SELECT * FROM topolog_append({given})",
        *_earlier_arguments(commits)[:count],
    )
    assert set(row["outcome"]) == {0}


def _to_0002(connection: Connection) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    command.upgrade(config, "0002")


async def test_rows_older_than_chains_are_vouched_for_by_the_first_that_has_one(
    database_url: str,
) -> None:
    engine = make_engine(database_url)
    async with engine.connect() as connection:
        await connection.run_sync(_to_0002)
        await connection.commit()
    await engine.dispose()
    old = await connect(database_url)
    await append_as_an_earlier_release(
        old, 17, commit("a", draft("s"), draft("t", 0, "é")), commit("b")
    )
    await upgrade(database_url)
    log = await PostgresEventLog.open(database_url)
    try:
        await given(log, "x", "y")
        chain, rows = BEGINNING, await log.read(0)
        for row in rows:
            chain = linked(chain, row)
        assert [bool(row.chain) for row in rows] == [False, False, False, True, True]
        assert rows[-1].chain == chain
        assert (await verify(log, [])).ok
        await old.execute("ALTER TABLE fact DISABLE TRIGGER fact_immutable")
        await old.execute("UPDATE fact SET time_us = 7 WHERE position = 2")
        assert [
            (result.invariant, result.position) for result in (await verify(log, [])).violations
        ] == [("history", 4)]
    finally:
        await log.close()
        await old.close()


@pytest.mark.parametrize("arguments_given", [17, 20, 21])
async def test_services_of_earlier_releases_append_to_the_same_chain(
    arguments_given: int, postgres_log: PostgresEventLog, owner: Any
) -> None:
    await given(postgres_log, "a")
    await append_as_an_earlier_release(owner, arguments_given, commit("b"), commit("c"))
    await given(postgres_log, "d")
    assert (await verify(postgres_log, [])).ok
    assert await postgres_log.head() == 4


@pytest.mark.parametrize(
    "change", ["time_us = 1000001", "payload = payload || ' '", "role = 'other'", "chain = ''"]
)
async def test_an_altered_row_is_named_by_verify(
    postgres_log: PostgresEventLog, owner: Any, change: str
) -> None:
    await given(postgres_log, *"abcde")
    await owner.execute("ALTER TABLE fact DISABLE TRIGGER fact_immutable")
    await owner.execute(f"UPDATE fact SET {change} WHERE position = 3")
    result = (await verify(postgres_log, [])).violations
    assert ("history", 3) in [(item.invariant, item.position) for item in result]


async def test_what_was_decided_before_the_database_was_set_back_is_not_appended_after_it(
    postgres_server: PostgresServer, log_url: str
) -> None:
    earlier = await PostgresEventLog.open(log_url)
    await given(earlier, *"abc")
    await earlier.close()
    backup = postgres_server.create(database_name(log_url))
    lost, restored = [await PostgresEventLog.open(url) for url in (log_url, backup)]
    try:
        await given(lost, "node", "d")
        decided = seen("decided on what is lost", await place(lost, 5))
        await given(restored, "node", "other", "another")
        assert await restored.append([decided]) == [Conflict("log", 5, 6)], (
            "although the stream has the version it expects"
        )
        again = seen("decided anew", await place(restored, 6))
        assert isinstance((await restored.append([again]))[0], Appended)
    finally:
        await lost.close()
        await restored.close()
        postgres_server.drop(backup)


async def test_a_clock_that_was_set_back_keeps_no_role_without_a_leader(
    postgres_log: PostgresEventLog, owner: Any
) -> None:
    dead = await postgres_log.acquire("role", "dead", 0.3)
    assert dead is not None
    await owner.execute("UPDATE lease SET expires_at = expires_at + interval '1 hour'")
    async with asyncio.timeout(30):
        while (lease := await postgres_log.acquire("role", "alive", 0.3)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert lease.epoch > dead.epoch


async def test_a_holder_that_renews_keeps_its_lease_whatever_the_clock_does(
    postgres_log: PostgresEventLog, owner: Any
) -> None:
    lease = await postgres_log.acquire("role", "me", 30)
    await owner.execute("UPDATE lease SET expires_at = expires_at + interval '1 hour'")
    assert await postgres_log.acquire("role", "other", 0.1) is None
    assert await owner.fetchval(
        "SELECT expires_at <= clock_timestamp() + interval '30 seconds' FROM lease"
    )
    assert await postgres_log.acquire("role", "me", 30) == lease


async def test_the_view_for_people_shows_payloads_that_postgres_would_not_take_as_json(
    postgres_log: PostgresEventLog, owner: Any
) -> None:
    await postgres_log.append(
        [commit("nul", Draft("pod/u", PodEnded("u", "failed", "n", "why", "a\x00b")))]
    )
    await postgres_log.append([commit("plain", draft("pod/u"))])
    await owner.execute("ALTER TABLE fact DISABLE TRIGGER fact_immutable")
    await owner.execute("UPDATE fact SET payload = '\\xff00' WHERE position = 2")
    shown = [
        json.loads(row["payload"])
        for row in await owner.fetch("SELECT payload FROM fact_json ORDER BY position")
    ]
    assert shown[0]["message"] == "a\ufffdb"
    assert shown[1] == {"unreadable": "/wA="}


async def test_a_change_of_lease_waits_for_the_append_in_flight(
    postgres_log: PostgresEventLog, owner: Any, log_url: str
) -> None:
    """Otherwise an append of the old epoch would be committed after the new holder has begun."""
    old = await postgres_log.acquire("role", "old", 0.01)
    assert old is not None
    in_flight = owner.transaction()
    await in_flight.start()
    row = await owner.fetchrow(
        APPEND, *arguments([encode_commit(commit("late", role="role", epoch=old.epoch))])
    )
    assert row["outcome"] == [0]
    taking = asyncio.create_task(postgres_log.acquire("role", "new", 30))
    watcher = await connect(log_url)
    waits = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
        "wait_event_type = 'Lock'"
    )
    while not taking.done() and not await watcher.fetchval(waits):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert not taking.done(), (
        "the lease changed hands while an append of the old epoch was under way"
    )
    await in_flight.commit()
    new = await taking
    await watcher.close()
    assert new is not None
    assert new.epoch > old.epoch
    assert await postgres_log.head() == 1
