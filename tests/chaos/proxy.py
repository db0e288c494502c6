"""A TCP proxy on loopback that can cut its connections, turn callers away and make bytes late.
Knows no protocol.
"""

from __future__ import annotations

import asyncio
import contextlib

CHUNK_BYTES = 1 << 16


class Proxy:
    """Forwards `port` to `target_port`. While it is `away`, it rejects connections. Every chunk is
    delayed by `delay_s`.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port, self.port = target_port, 0
        self.away, self.delay_s = False, 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Reject all connections for good."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Cut every connection, and return their number."""
        for task in self._tasks:
            task.cancel()
        return len(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            to_server, back = await asyncio.open_connection("127.0.0.1", self.target_port)
            ends.append(back)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back))
                group.create_task(self._pump(to_server, writer))
        except (OSError, ExceptionGroup):
            pass  # If one side closed the connection, the code below closes the other side.
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(chunk)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        raise ConnectionResetError
