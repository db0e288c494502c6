"""The log of the simulation: the in-memory twin, driven synchronously, with facts read by position.

`SimLog` is what services get: appending is a question to the world, reading is answered at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Lease, Outcome, Place
from shared.events.envelope import Envelope
from tests.simulation.fibers import Ask, at_once


class SimClock:
    """Virtual time; moved by the world only."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def now_us(self) -> int:
        return self.now_ms * 1000

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    async def sleep(self, delay_s: float) -> None:
        await Ask("sleep", self.now_ms + int(delay_s * 1000))


class SimLog:
    """The port as far as the loops use it, and its synchronous face for the world (`now` in the names)."""

    def __init__(self, clock: SimClock) -> None:
        self._log = MemoryEventLog("simulation", clock.monotonic_s)

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes: list[Outcome] = await Ask("append", list(commits))
        return outcomes

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        return self.read_now(after, limit)

    async def read_stream(self, stream: str, after_version: int = 0, limit: int = 1000) -> list[Envelope]:
        found: list[Envelope] = at_once(self._log.read_stream(stream, after_version, limit))
        return found

    async def head(self) -> int:
        return await self._log.head()

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        return await self._log.versions(streams)

    async def load_snapshot(self, projection: str, fingerprint: str) -> tuple[Place, bytes] | None:
        return await self._log.load_snapshot(projection, fingerprint)

    async def save_snapshot(self, projection: str, fingerprint: str, place: Place, state: bytes) -> None:
        await self._log.save_snapshot(projection, fingerprint, place, state)

    def append_now(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes: list[Outcome] = at_once(self._log.append(commits))
        return outcomes

    def read_now(self, after: int, limit: int = 1000) -> list[Envelope]:
        page: list[Envelope] = at_once(self._log.read(after, limit))
        return page

    def acquire_now(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        lease: Lease | None = at_once(self._log.acquire(role, holder, ttl_s))
        return lease

    def renew_now(self, lease: Lease, ttl_s: float) -> bool:
        if self._log._epochs.get(lease.role) != lease.epoch:
            return False
        return self.acquire_now(lease.role, lease.holder, ttl_s) == lease

    def members_now(self, role: str) -> list[Lease]:
        members: list[Lease] = at_once(self._log.members(role))
        return members

    @property
    def end(self) -> int:
        position: int = at_once(self._log.head())
        return position

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulated log has no {name}: a loop asks for something new, give it here")
