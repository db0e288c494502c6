"""Limit how long a client may take to send a request, and how many connections may wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.runtime.http_access import TLS

# Seconds from the connection, or from the first byte of a later request, to the last byte.
READ_LIMIT_S = 5.0

# Beyond this, the connection that has waited longest for its request is closed.
MAX_CONNECTIONS = 1000


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a time limit for requests."""

    read_limit_s = READ_LIMIT_S
    most_connections = MAX_CONNECTIONS
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.most_connections:
            self.give_up_longest(self.connections)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.transport.get_extra_info("peercert"):
            self.scope["extensions"] = {TLS: {}}
        if self.reading is None:
            self._await_request()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def give_up_longest(self, connections: Iterable[object]) -> None:
        """Close the connection that has waited longest for its request, if one waits."""
        waiting = [
            connection
            for connection in connections
            if isinstance(connection, TimedProtocol) and connection.reading is not None
        ]
        if waiting:
            min(waiting, key=_due_s).give_up()

    def give_up(self) -> None:
        self._stop_waiting()
        self.transport.abort()

    def _await_request(self) -> None:
        self.reading = self.loop.call_later(self.read_limit_s, self.give_up)

    def _stop_waiting(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None


def _due_s(protocol: TimedProtocol) -> float:
    return protocol.reading.when() if protocol.reading is not None else 0.0
