"""Bring the database to the newest revision: once, by one process, however many start together.

A process that finds the newest revision in place returns after one query and does not import
Alembic.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.eventlog.errors import LogNotMigrated
from shared.eventlog.postgres_connection import LOST_CONNECTION, unavailable
from shared.eventlog.postgres_engine import make_engine
from shared.eventlog.revisions import MIGRATIONS, foreign, is_ours, newest_revision, works

_LOCK_KEY = 0x746F706F6C6F67
_AWAY: tuple[type[Exception], ...] = (*LOST_CONNECTION, DBAPIError)


async def current_revision(connection: AsyncConnection) -> str | None:
    """The revision of the database, None for an empty one."""
    exists = await connection.scalar(
        text("SELECT to_regclass('public.alembic_version') IS NOT NULL")
    )
    if not exists:
        return None
    revision: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


async def _works_from(connection: AsyncConnection) -> str:
    """The oldest revision whose code works on the schema; "" where the schema is too old to say so."""
    exists = await connection.scalar(
        text("SELECT to_regclass('public.schema_works_from') IS NOT NULL")
    )
    oldest = (
        await connection.scalar(text("SELECT revision FROM schema_works_from")) if exists else None
    )
    await connection.rollback()
    return str(oldest or "")


async def upgrade_or_tell(url: str) -> bool:
    """The same for a person's eyes. Raises LogNotMigrated, LogUnavailable."""
    try:
        return await upgrade(url)
    except _AWAY as error:
        raise unavailable(url, error) from error


async def upgrade(url: str) -> bool:
    """Migrate to the newest revision; True when there was anything to do. Raises LogNotMigrated, or
    what the driver raises.
    """
    engine = make_engine(url)
    try:
        async with engine.connect() as connection:
            found = await current_revision(connection)
            await connection.rollback()
            if found is not None and works(found, await _works_from(connection), newest_revision()):
                return False
            return await _upgrade_locked(connection, found)
    finally:
        await engine.dispose()


async def _upgrade_locked(connection: AsyncConnection, found: str | None) -> bool:
    if found is not None and not is_ours(found):
        raise foreign(found)
    if found is not None and found > newest_revision():
        raise LogNotMigrated(
            f"the log has revision {found}, this release knows {newest_revision()}; run a newer release"
        )
    # A session's lock, given up with the connection; the transaction after it sees what the holder
    # before has committed.
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
