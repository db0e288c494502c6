"""Connections to our HTTP ports send at once: the second part of an answer waits for no
acknowledgement.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from shared.runtime.listening import listener


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_accepted_connection_has_no_delay(host: str) -> None:
    seen = asyncio.get_running_loop().create_future()

    async def let_in(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(
            writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        )
        writer.close()

    try:
        listening = listener(host, 0)
    except OSError:
        assert host == "::1", "this machine has no IPv6"
        return
    async with await asyncio.start_server(let_in, sock=listening):
        _, writer = await asyncio.open_connection(host, listening.getsockname()[1])
        assert await asyncio.wait_for(seen, 10)
        writer.close()
