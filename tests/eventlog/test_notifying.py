"""Listeners are notified of a lone append at once, and of many at most once an interval."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from shared.eventlog import postgres_append
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_append import NOTIFY_BURST, NOTIFY_EVERY_S, Appender
from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_watch import CHANNEL
from tests.eventlog.words import commit
from tests.runtime.helpers import until


@pytest.fixture
async def heard(log_url: str) -> AsyncIterator[list[int]]:
    """Yield the positions that a listener was notified of."""
    connection, positions = await connect(log_url), list[int]()
    await connection.add_listener(CHANNEL, lambda *given: positions.append(int(given[-1])))
    yield positions
    await connection.close()


async def test_a_lone_append_notifies_in_its_own_transaction(
    postgres_log: PostgresEventLog, heard: list[int]
) -> None:
    for number in (1, 2):
        await postgres_log.append([commit(f"c{number}")])
        await until(lambda number=number: heard == list(range(1, number + 1)))  # type: ignore[misc]
        await asyncio.sleep(2 * NOTIFY_EVERY_S)


async def test_appends_in_a_row_share_notifications_and_the_last_is_notified_of(
    postgres_log: PostgresEventLog, heard: list[int]
) -> None:
    begun_s = time.monotonic()
    for number in range(60):
        await postgres_log.append([commit(f"c{number}")])
    at_most = (time.monotonic() - begun_s) / NOTIFY_EVERY_S + NOTIFY_BURST + 1
    await until(lambda: heard[-1:] == [60])
    assert len(heard) <= at_most


async def test_a_process_that_ends_notifies_of_its_last_append(
    log_url: str, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_append, "NOTIFY_EVERY_S", 60.0)
    log = await PostgresEventLog.open(log_url)
    for number in range(5):
        await log.append([commit(f"c{number}")])
    await log.close()
    await until(lambda: heard[-1:] == [5])


async def test_an_append_whose_answer_was_lost_is_notified_of(
    log_url: str, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_append, "NOTIFY_EVERY_S", 2.0)
    lost = list[bool]()

    class Losing:
        """A connection that loses the answer of the first append that does not notify."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection
            self.fetchval, self.terminate = connection.fetchval, connection.terminate

        async def fetchrow(self, *request: Any) -> Any:
            row = await self._connection.fetchrow(*request)
            lost.append(not request[-1] and not any(lost))
            if lost[-1]:
                raise asyncpg.ConnectionDoesNotExistError("connection was closed")
            return row

    async def losing() -> Losing:
        return Losing(await connect(log_url))

    appender = Appender(losing, lambda _position: None)
    for number in range(NOTIFY_BURST + 1):
        await appender.append([commit(f"c{number}")])
    await until(lambda: heard[-1:] == [NOTIFY_BURST + 1])
    await appender.close()
    assert lost.count(True) == 1


async def test_a_listener_that_pauses_receives_later_and_loses_nothing(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    listener, heard = await connect(log_url), list[int]()
    await listener.add_listener(CHANNEL, lambda *given: heard.append(int(given[-1])))
    for _ in range(2):
        listener.pause_reading(2.0)
    await postgres_log.append([commit("c1")])
    await asyncio.sleep(0.1)
    assert heard == []
    await until(lambda: heard == [1])
    listener.pause_reading(0.05)
    await listener.close()
