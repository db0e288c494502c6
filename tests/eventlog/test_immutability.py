"""Events cannot be changed: a trigger stops their owner, and grants stop the roles that services
use.
"""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.eventlog.errors import LogNotMigrated
from shared.eventlog.port import Appended
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_batch import APPEND, arguments, encode_commit
from shared.eventlog.postgres_connection import READER, WRITER, connect, masked_url
from shared.eventlog.postgres_engine import make_engine
from tests.eventlog.schema import COLUMNS
from tests.eventlog.words import commit, given

_PART = "fact_0000000000000001"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fact SET time_us = 0",
        "DELETE FROM fact WHERE position = 1",
        "TRUNCATE fact",
        f"UPDATE {_PART} SET payload = ''",
        f"DELETE FROM {_PART}",
        f"TRUNCATE {_PART}",
        "INSERT INTO fact SELECT * FROM fact ON CONFLICT (position) DO UPDATE SET type = 'x'",
    ],
)
async def test_even_the_owner_cannot_change_events(
    log_url: str, postgres_log: PostgresEventLog, statement: str
) -> None:
    await given(postgres_log, "a", "b")
    owner = await connect(log_url)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="append-only"):
        await owner.execute(statement)
    await owner.close()
    assert len(await postgres_log.read(0)) == 2


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("topolog_writer", "UPDATE fact SET time_us = 0"),
        ("topolog_writer", "DELETE FROM fact"),
        ("topolog_writer", "TRUNCATE fact"),
        ("topolog_writer", "INSERT INTO fact SELECT * FROM fact"),
        ("topolog_writer", f"DELETE FROM {_PART}"),
        ("topolog_writer", "UPDATE counter SET position = 0"),
        ("topolog_writer", "UPDATE stream_head SET version = 0"),
        ("topolog_writer", "DELETE FROM commit_seen"),
        ("topolog_writer", "UPDATE writer SET epoch = 0"),
        ("topolog_writer", "UPDATE lease SET holder = 'me'"),
        ("topolog_writer", "SELECT topolog_begin_timeline()"),
        ("topolog_writer", "SELECT topolog_roll(1)"),
        ("topolog_writer", "CREATE TABLE mine (a int)"),
        ("topolog_reader", "SELECT topolog_acquire('r', 'h', 1)"),
        ("topolog_reader", "SELECT topolog_history_lost(1, 2, 3, '', '')"),
        ("topolog_reader", "INSERT INTO checkpoint VALUES ('c', 1)"),
        ("topolog_reader", "DELETE FROM fact"),
    ],
)
async def test_a_role_may_do_no_more_than_its_work(log_url: str, role: str, statement: str) -> None:
    connection = await connect(log_url)
    await connection.execute(f"SET ROLE {role}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


async def test_the_writer_role_can_append_lease_and_keep_checkpoints_and_the_reader_can_read(
    log_url: str,
) -> None:
    connection = await connect(log_url)
    await connection.execute("SET ROLE topolog_writer")
    row = await connection.fetchrow(APPEND, *arguments([encode_commit(commit("c"))]))
    assert row["lasts"] == [1]
    assert await connection.fetchval("SELECT topolog_acquire('r', 'h', 5)") == 1
    await connection.execute("INSERT INTO checkpoint VALUES ('c', 1)")
    await connection.execute("SET ROLE topolog_reader")
    assert await connection.fetchval("SELECT payload ->> 'uid' FROM fact_json") == "u"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.fetchrow(APPEND, *arguments([encode_commit(commit("d"))]))
    await connection.close()


async def test_a_service_with_the_owners_url_works_as_the_writer_and_a_reader_reads(
    log_url: str,
) -> None:
    for role, may_append in ((WRITER, True), (READER, False)):
        connection = await connect(log_url, role=role)
        assert await connection.fetchval("SELECT current_user") == role
        asked = (
            "SELECT bool_and(has_function_privilege(oid, 'EXECUTE') = $1) FROM pg_proc"
            " WHERE proname = 'topolog_append'"
        )
        assert await connection.fetchval(asked, may_append)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("UPDATE counter SET position = 0")
        await connection.close()


async def test_where_a_role_does_not_exist_the_user_works_as_it_is(log_url: str) -> None:
    connection = await connect(log_url, role="topolog_nobody")
    assert await connection.fetchval("SELECT current_user = session_user")
    await connection.close()


async def test_the_log_is_opened_and_written_by_member_users_only(log_url: str) -> None:
    """As in a deployment with separate users for services."""
    owner, name = await connect(log_url), f"service_{uuid4().hex[:12]}"
    await owner.execute(f"CREATE ROLE {name} LOGIN IN ROLE topolog_writer")
    try:
        log = await PostgresEventLog.open(log_url.replace("//postgres@", f"//{name}@"))
        assert isinstance((await log.append([commit("c")]))[0], Appended)
        assert len(await log.read(0)) == 1
        await log.close()
    finally:
        await owner.execute(f"DROP ROLE {name}")
        await owner.close()


def _columns(connection: object) -> dict[str, set[str]]:
    look = inspect(connection)
    return {table: {column["name"] for column in look.get_columns(table)} for table in COLUMNS}


async def test_the_migrations_make_the_listed_tables(log_url: str) -> None:
    engine: AsyncEngine = make_engine(log_url)
    async with engine.connect() as connection:
        result = await connection.run_sync(_columns)
    await engine.dispose()
    assert result == {table: set(columns.split()) for table, columns in COLUMNS.items()}


async def test_a_log_that_is_not_migrated_is_reported_with_the_remedy(database_url: str) -> None:
    with pytest.raises(LogNotMigrated, match="topolog up"):
        await PostgresEventLog.open(database_url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db:5432/topolog?password=hunter2",
        "postgresql+asyncpg://me:hunter2@db/x",
    ],
)
def test_a_logged_url_has_no_credentials(url: str) -> None:
    assert "hunter2" not in masked_url(url)
    assert "db" in masked_url(url)
