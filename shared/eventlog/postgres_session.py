"""The connection on which a process acquires its leases; the leases end with it.

If it breaks while the process lives, the next renewal moves the leases to a new connection, unless
another process has acquired them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from shared.eventlog.postgres_connection import LOST_CONNECTION

T = TypeVar("T")


class Session:
    """One query at a time, on a connection that is opened on demand. Raises the driver's
    exceptions."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._turn = asyncio.Lock()

    async def run(self, use: Callable[[Any], Awaitable[T]]) -> T:
        """Return the result of `use`, called with the connection."""
        async with self._turn:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            try:
                return await use(self._connection)
            except LOST_CONNECTION:
                self._drop()
                raise

    async def close(self) -> None:
        """Disconnect; every lease ends."""
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
