"""Migrate the database to the newest revision, once, however many processes start together.

A process that sees the newest revision returns after one connection and loads neither SQLAlchemy
nor Alembic.
"""

from __future__ import annotations

from shared.eventlog.postgres_connection import LOST_CONNECTION, connect, unavailable
from shared.eventlog.revisions import newest_revision, revisions, works


async def upgrade_with_message(url: str) -> bool:
    """Migrate and report errors for operators. Raises LogNotMigrated, LogUnavailable."""
    try:
        return await upgrade(url)
    except _away() as error:
        raise unavailable(url, error) from error


async def upgrade(url: str) -> bool:
    """Migrate to the newest revision; return True if it changed anything. Raises LogNotMigrated, or
    the driver's exceptions.
    """
    if await _is_current(url):
        return False
    from shared.eventlog.alembic_upgrade import upgrade_locked

    return await upgrade_locked(url)


async def _is_current(url: str) -> bool:
    """Return whether this release works on the database's revision. Raises ConnectionError."""
    try:
        connection = await connect(url)
    except LOST_CONNECTION as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
    try:
        return works(*await revisions(connection), newest_revision())
    finally:
        await connection.close()


def _away() -> tuple[type[Exception], ...]:
    # Loaded only after an error.
    from shared.eventlog.alembic_upgrade import AWAY

    return AWAY
