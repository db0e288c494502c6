"""The sockets that watches are read from."""

from __future__ import annotations

import asyncio
import socket

from shared.kube.connection import Connection


async def test_the_kernel_probes_a_quiet_watch() -> None:
    """A balancer that forgets quiet connections, or a machine that died, says nothing to either side."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection(f"http://127.0.0.1:{port}", max_connections=1)
        async with connection.streams.stream("GET", "/") as response:
            read_from: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
            assert read_from.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert read_from.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        await connection.close()
