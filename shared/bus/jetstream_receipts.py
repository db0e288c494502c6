"""How an exporter learns that the stream has stored a report.

The report stream sends no acknowledgements: NATS checks a client's permissions on the subject that
it publishes to, not on the reply subject, so an acknowledgement would let any exporter write to any
subject of the account. Instead the stream republishes the headers of each stored report to a
subject that it derives from the report's own subject (`subjects.receipt`). A header of the client
identifies the message there. The reply subject only serves for two answers to the client itself: of
the server if no stream exists, and of a stream that an older release has configured.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Set
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import NoStreamResponseError

from shared.bus import subjects

_STATUS, _NO_RESPONDERS = "Status", "503"


async def barrier(client: Client) -> None:
    """Return once the server has processed everything that was sent before. nats-py writes a
    flush's PING ahead of buffered messages, so only the second one follows them.

    The flushes go on if the caller gives up: a PONG whose future was cancelled makes nats-py 2.16
    close the connection (InvalidStateError in `_process_pong`).
    """
    flushes = asyncio.ensure_future(_flush_twice(client))
    flushes.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    await asyncio.shield(flushes)


async def _flush_twice(client: Client) -> None:
    await client.flush()
    await client.flush()


class ReportReceipts:
    """The pending receipts of one client. `are_allowed` is False if this client's permissions, made
    by an older release, do not include receipts; then it only waits for the server.
    """

    def __init__(self) -> None:
        self.are_allowed = True
        self._client: Client | None = None
        self._inbox = ""
        self._subscribed: set[str] = set()
        self._pending: dict[str, asyncio.Future[None]] = {}

    async def subscribe(self, client: Client, reports: Set[str]) -> None:
        """Subscribe to the receipts of these reports' subjects."""
        if client is not self._client:
            self._client, self._inbox = client, client.new_inbox()
            self._subscribed, self.are_allowed = set(), True
            await client.subscribe(f"{self._inbox}.*", cb=self._answered)
        added = reports - self._subscribed
        for subject in added:
            await client.subscribe(subjects.receipt(subject), cb=self._stored)
        if added:
            await barrier(client)
            self._subscribed |= added

    def expect(self, headers: dict[str, str]) -> tuple[str, asyncio.Future[None]]:
        """Add the identifying header; return the reply subject and the future of the receipt."""
        token = secrets.token_hex(8)
        headers[subjects.SENT] = token
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending[token] = future
        return f"{self._inbox}.{token}", future

    def forget(self) -> None:
        """Drop pending receipts, which arrived or are requested again."""
        for future in self._pending.values():
            if not future.done():
                future.cancel()
        self._pending.clear()

    def note_error(self, problem: str) -> None:
        """Recognise that the server denied a subscription to receipts, or a report."""
        text = problem.lower()
        if "permissions violation for subscription" in text and subjects.RECEIPTS in text:
            self.are_allowed = False
        elif "permissions violation for publish" in text:
            for token in list(self._pending):
                self._resolve(token, NatsError(problem))

    async def _stored(self, message: Any) -> None:
        self._resolve((message.headers or {}).get(subjects.SENT, ""), None)

    async def _answered(self, message: Any) -> None:
        missing = (message.headers or {}).get(_STATUS) == _NO_RESPONDERS
        error = NoStreamResponseError() if missing else None
        self._resolve(message.subject.rpartition(".")[2], error)

    def _resolve(self, token: str, error: Exception | None) -> None:
        future = self._pending.get(token)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
