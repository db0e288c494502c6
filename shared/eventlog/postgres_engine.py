"""SQLAlchemy's engine over asyncpg, for Alembic. Services use the pool of `postgres_connection`."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shared.eventlog.postgres_connection import LOST_CONNECTION, connect, plain_url


def make_engine(url: str) -> AsyncEngine:
    """Return an engine with one connection."""
    plain_url(url)

    async def creator() -> Any:
        try:
            return await connect(url)
        except LOST_CONNECTION as error:
            # SQLAlchemy would wrap the driver's errors (57P03: the database is starting up) in an
            # error that callers do not expect.
            raise ConnectionError(str(error) or type(error).__name__) from error

    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=creator,
        pool_size=1,
        max_overflow=0,
        pool_timeout=10.0,
    )
