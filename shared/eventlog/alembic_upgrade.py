"""Run the pending migrations with Alembic, under a lock in the database. Loaded only if a database
is not at the newest revision, because SQLAlchemy and Alembic take half a second to load.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.eventlog.errors import LogNotMigrated
from shared.eventlog.postgres_connection import LOST_CONNECTION
from shared.eventlog.postgres_engine import make_engine
from shared.eventlog.revisions import MIGRATIONS, foreign_database, is_ours, newest_revision

_LOCK_KEY = 0x746F706F6C6F67
AWAY: tuple[type[Exception], ...] = (*LOST_CONNECTION, DBAPIError)


async def upgrade_locked(url: str) -> bool:
    """Migrate to the newest revision; return False if another process did. Raises LogNotMigrated,
    or the driver's exceptions.
    """
    engine = make_engine(url)
    try:
        async with engine.connect() as connection:
            revision = await current_revision(connection)
            await connection.rollback()
            return await _upgrade_locked(connection, revision)
    finally:
        await engine.dispose()


async def current_revision(connection: AsyncConnection) -> str | None:
    exists = await connection.scalar(
        text("SELECT to_regclass('public.alembic_version') IS NOT NULL")
    )
    if not exists:
        return None
    revision: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


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
