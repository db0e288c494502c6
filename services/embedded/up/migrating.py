"""Migrate the log's database of a run. Must not know how it was started."""

from __future__ import annotations

from services.embedded.errors import OutsideServerError
from shared.eventlog.errors import LogNotMigrated, LogUnavailable
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres_connection import masked_url
from shared.telemetry.reasons import plain


async def migrate(database_url: str) -> None:
    """Migrate the database to the newest revision. Raises OutsideServerError."""
    try:
        await upgrade(database_url)
    except _refusals() as error:
        raise OutsideServerError(
            f"the database at {masked_url(database_url)} cannot hold the log: {plain(error)}",
            "Use a database that Topolog may own, or the release that created it",
        ) from error


def _refusals() -> tuple[type[Exception], ...]:
    # Loaded only after an error.
    from sqlalchemy.exc import SQLAlchemyError

    return (LogNotMigrated, LogUnavailable, SQLAlchemyError, OSError)
