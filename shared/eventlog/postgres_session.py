"""The one connection on which a process takes its leases: it lives as long as the process, and the
leases end with it.

Where it breaks while the process lives, the next renewal takes the leases into a new one, unless
somebody else was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from shared.eventlog.postgres_connection import LOST_CONNECTION

T = TypeVar("T")


class Session:
    """One query at a time, on a connection that is made when it is first needed. Raises what the
    driver raises.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._turn = asyncio.Lock()

    async def run(self, use: Callable[[Any], Awaitable[T]]) -> T:
        """The answer of `use`, given the connection."""
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
