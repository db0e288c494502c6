"""Migrate the database to the newest revision, once, however many processes start together.

A process that sees the newest revision returns after one query and does not import Alembic.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.eventlog.errors import LogNotMigrated
from shared.eventlog.postgres_connection import LOST_CONNECTION, unavailable
from shared.eventlog.postgres_engine import make_engine
from shared.eventlog.revisions import MIGRATIONS, foreign_database, is_ours, newest_revision, works

_LOCK_KEY = 0x746F706F6C6F67
_AWAY: tuple[type[Exception], ...] = (*LOST_CONNECTION, DBAPIError)


async def current_revision(connection: AsyncConnection) -> str | None:
    exists = await connection.scalar(
        text("SELECT to_regclass('public.alembic_version') IS NOT NULL")
    )
    if not exists:
        return None
    revision: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


async def _works_from(connection: AsyncConnection) -> str:
    """Return the oldest revision that still works on the schema, "" if the schema is older than
    that table."""
    exists = await connection.scalar(
        text("SELECT to_regclass('public.schema_works_from') IS NOT NULL")
    )
    oldest = (
        await connection.scalar(text("SELECT revision FROM schema_works_from")) if exists else None
    )
    await connection.rollback()
    return str(oldest or "")


async def upgrade_with_message(url: str) -> bool:
    """Migrate and report errors for operators. Raises LogNotMigrated, LogUnavailable."""
    try:
        return await upgrade(url)
    except _AWAY as error:
        raise unavailable(url, error) from error


async def upgrade(url: str) -> bool:
    """Migrate to the newest revision; return True if it changed anything. Raises LogNotMigrated, or
    the driver's exceptions.
    """
    engine = make_engine(url)
    try:
        async with engine.connect() as connection:
            revision = await current_revision(connection)
            await connection.rollback()
            if revision is not None and works(
                revision, await _works_from(connection), newest_revision()
            ):
                return False
            return await _upgrade_locked(connection, revision)
    finally:
        await engine.dispose()


async def _upgrade_locked(connection: AsyncConnection, revision: str | None) -> bool:
    if revision is not None and not is_ours(revision):
        raise foreign_database(revision)
    if revision is not None and revision > newest_revision():
        raise LogNotMigrated(
            f"the log has revision {revision}, this release knows {newest_revision()}; "
            "run a newer release"
        )
    # A session lock, which the connection releases when it closes. The transaction after it sees
    # what the previous holder committed.
    await connection.execute(text("SET lock_timeout = '60s'"))
    await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
    await connection.commit()
    if await current_revision(connection) == newest_revision():
        return False
    try:
        await connection.run_sync(_run_alembic)
    except DBAPIError as error:
        raise LogNotMigrated(
            f"migration to revision {newest_revision()} failed: {error.orig}"
        ) from error
    await connection.commit()
    return True


def _run_alembic(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    command.upgrade(config, "head")
