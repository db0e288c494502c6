"""The sockets that statements go by."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.eventlog.postgres_connection import connect


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_a_server_whose_machine_died_is_noticed_by_the_kernel(database_url: str) -> None:
    """Nothing comes from there, not even a refusal; without this a statement waits for its own end, a minute."""
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
