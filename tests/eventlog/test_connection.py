"""Connections to servers that are there no more, or are primary no more."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER, connect
from tests.eventlog.words import given


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_a_server_whose_machine_died_is_noticed_by_the_kernel(database_url: str) -> None:
    """The machine answers nothing, not even with a refusal. Otherwise a statement would wait for
    its own timeout of a minute.
    """
    parts = urlsplit(database_url)
    local = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.{parse_qs(parts.query)['port'][0]}"

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_unix_connection(local)
        await asyncio.gather(_pump(reader, on), _pump(back, writer))

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = await connect(f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}")
        used: socket.socket = connection._transport.get_extra_info("socket")
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_a_connection_to_a_former_primary_is_closed(
    postgres_log: PostgresEventLog,
) -> None:
    """Managed databases keep connections to a server that they demote."""
    await given(postgres_log, "a")
    await postgres_log.acquire("r", "me", 5.0)
    for connection in (postgres_log._appender._connection, postgres_log._session._connection):
        await connection.execute("SET default_transaction_read_only = on")
    await given(postgres_log, "b")
    with pytest.raises(LogUnavailable, match="accepts no writes"):
        await postgres_log.acquire("r", "me", 5.0)
    assert await postgres_log.acquire("r", "me", 5.0) is not None


async def test_a_standby_is_not_written_to_until_it_is_promoted(log_url: str) -> None:
    name = urlsplit(log_url).path.removeprefix("/")
    operator = await connect(log_url)
    await operator.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    with pytest.raises(LogUnavailable, match="accepts no writes, like a standby"):
        await PostgresEventLog.open(log_url, retry_for_s=0.1)
    reader = await PostgresEventLog.open(log_url, retry_for_s=0.1, role=READER)
    assert await reader.head() == 0
    await reader.close()
    opening = asyncio.create_task(PostgresEventLog.open(log_url, retry_for_s=30.0))
    await asyncio.sleep(0.3)
    await operator.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    await operator.close()
    log = await opening
    await given(log, "a")
    await log.close()
