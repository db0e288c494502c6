"""The in-memory implementation of the bus, for tests and for simulations in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from shared.bus import subjects
from shared.bus.buffers import Doorbell, LatestReports, position_in
from shared.bus.port import BusUnavailable, Message

_DEDUPLICATED = 10_000


class MemoryBus:
    """A Bus in dicts. `down = True` makes it unavailable, like a server that is away."""

    def __init__(self) -> None:
        self.down = False
        self.event_messages: list[Message] = []
        self._newest: dict[str, Message] = {}
        self._seen: dict[str, None] = {}
        self._sequence = 0
        self._readers: list[LatestReports] = []
        self._bells: list[Doorbell] = []
        self._closed = False

    async def ensure_streams(self) -> None:
        self._check("streams")

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        self._check(subject)
        is_report = subject.startswith("topolog.report.")
        if not is_report and self._is_repeated(headers.get(subjects.MSG_ID, "")):
            return
        self._sequence += 1
        message = Message(subject, bytes(data), dict(headers), self._sequence)
        if is_report:
            self._reported(message)
        else:
            self._announced(message)

    async def publish_many(self, messages: list[Message]) -> None:
        for message in messages:
            await self.publish(message.subject, message.data, message.headers)

    def reports(self) -> AsyncIterator[list[Message]]:
        reader = LatestReports()
        self._readers.append(reader)
        for message in self._newest.values():
            reader.put(message)
        if self._closed:
            reader.close()
        return reader.batches()

    def events(self) -> AsyncIterator[int]:
        bell = Doorbell()
        self._bells.append(bell)
        if self._closed:
            bell.close()
        return bell.positions()

    async def connected(self) -> bool:
        return not self.down and not self._closed

    def since_echo_s(self) -> float:
        return float("inf") if self.down or self._closed else 0.0

    async def close(self) -> None:
        self._closed = True
        for reader in self._readers:
            reader.close()
        for bell in self._bells:
            bell.close()

    def _check(self, subject: str) -> None:
        if self.down or self._closed:
            raise BusUnavailable(
                f"the in-memory bus is {'closed' if self._closed else 'down'}; "
                f"{subject} was not sent"
            )
        if not subject.startswith(("topolog.report.", "topolog.fact.", "streams")):
            raise BusUnavailable(f"no stream takes the subject {subject}; use shared.bus.subjects")

    def _is_repeated(self, message_id: str) -> bool:
        if not message_id or message_id in self._seen:
            return bool(message_id)
        self._seen[message_id] = None
        if len(self._seen) > _DEDUPLICATED:
            del self._seen[next(iter(self._seen))]
        return False

    def _reported(self, message: Message) -> None:
        self._newest[message.subject] = message
        for reader in self._readers:
            reader.put(message)

    def _announced(self, message: Message) -> None:
        self.event_messages = [*self.event_messages[-_DEDUPLICATED:], message]
        position = position_in(message.headers.get(subjects.POSITION, ""))
        for bell in self._bells if position else ():
            bell.ring(position)
