"""How long a client may take to send a request, and how many may try at once: nobody's slowness
keeps others from an answer.

Knows bytes and time, and nothing of what is asked.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.runtime.http_access import TLS

READ_LIMIT_S = 5.0
"""From the connection, or the first byte of a later request, to its last byte."""

MAX_CONNECTIONS = 1000
"""Beyond, the connection that has waited longest for its client gives way."""


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with an end to waiting for a request."""

    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [
                each
                for each in self.connections
                if isinstance(each, TimedProtocol) and each.reading is not None
            ]
            min(waiting, key=_due_s).give_up()

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

    def give_up(self) -> None:
        """Close a connection whose request did not come in time."""
        self._stop_waiting()
        self.transport.abort()

    def _await_request(self) -> None:
        self.reading = self.loop.call_later(READ_LIMIT_S, self.give_up)

    def _stop_waiting(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None


def _due_s(protocol: TimedProtocol) -> float:
    return protocol.reading.when() if protocol.reading is not None else 0.0
