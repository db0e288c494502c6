"""Migrated databases, copied from a template that is migrated once a session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres import PostgresEventLog
from tests.fixtures.servers import PostgresServer


def _migrate(url: str) -> None:
    """Migrate from any thread, whether or not a loop runs in this one."""
    thread = threading.Thread(target=lambda: asyncio.run(upgrade(url)))
    thread.start()
    thread.join()


def migrated_database(server: PostgresServer) -> str:
    """Return the URL of a new, migrated, empty log."""
    return server.create(server.template("event log", _migrate))


@pytest.fixture
def log_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Yield the URL of a migrated, empty log that only this test uses."""
    url = migrated_database(postgres_server)
    yield url
    postgres_server.drop(url)


@pytest.fixture
async def postgres_log(log_url: str) -> AsyncIterator[PostgresEventLog]:
    """Yield the Postgres adapter on a log that only this test uses."""
    log = await PostgresEventLog.open(log_url, retry_for_s=10.0)
    yield log
    await log.close()
