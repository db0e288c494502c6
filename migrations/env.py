"""Connect Alembic to the database: by the connection of `shared.eventlog.migrate`, or by
TOPOLOG_DATABASE_URL.
"""

from __future__ import annotations

import asyncio
import os

from alembic import context
from sqlalchemy.engine import Connection

from shared.eventlog.postgres_engine import make_engine
from shared.runtime.secret_file import value_or_file


def run(connection: Connection) -> None:
    """Run the pending revisions in one transaction."""
    context.configure(connection=connection, target_metadata=None, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


async def run_from_environment() -> None:
    """Run the revisions for the alembic command."""
    url = value_or_file(os.environ, "TOPOLOG_DATABASE_URL")
    if not url:
        raise SystemExit(
            "TOPOLOG_DATABASE_URL is not set; try: TOPOLOG_DATABASE_URL=postgresql://... alembic upgrade head"  # noqa: E501
        )
    engine = make_engine(url)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(run)
            await connection.commit()
    finally:
        await engine.dispose()


connection_given = context.config.attributes.get("connection")
if connection_given is not None:
    run(connection_given)
else:
    asyncio.run(run_from_environment())
