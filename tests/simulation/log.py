"""The log of the simulation: the in-memory implementation, driven synchronously, with events read
by position.

Services get `SimLog`: an append is a question to the world, a read is answered at once. The log can
be set back to a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Lease, LogIdentity, Lost, Mark, Outcome, Place
from shared.events.envelope import Envelope
from tests.simulation.fibers import Ask, at_once


class SimClock:
    """Virtual time; moved by the world only. `wall_ms` is how far the services' calendar is wrong,
    `log_ms` the log's: both may jump forth and back, what has passed (`monotonic_s`) never does."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.wall_ms = self.log_ms = 0

    def now_us(self) -> int:
        return (self.now_ms + self.wall_ms) * 1000

    def log_s(self) -> float:
        """The log's own clock, which leases are held by."""
        return (self.now_ms + self.log_ms) / 1000

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    async def sleep(self, delay_s: float) -> None:
        await Ask("sleep", self.now_ms + int(delay_s * 1000))


class SimLog:
    """The port as far as the loops use it, and a synchronous form for the world (`now` in the
    names).
    """

    def __init__(self, clock: SimClock) -> None:
        self._log = MemoryEventLog("simulation", clock.log_s)

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes: list[Outcome] = await Ask("append", list(commits))
        return outcomes

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        return self.read_now(after, limit)

    async def read_stream(
        self, stream: str, after_version: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        envelopes: list[Envelope] = at_once(self._log.read_stream(stream, after_version, limit))
        return envelopes

    async def head(self) -> int:
        return await self._log.head()

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        return await self._log.versions(streams)

    async def load_snapshot(
        self, projection: str, fingerprint: str, until: int | None = None
    ) -> tuple[Place, bytes] | None:
        return await self._log.load_snapshot(projection, fingerprint, until)

    async def save_snapshot(
        self, projection: str, fingerprint: str, place: Place, state: bytes
    ) -> None:
        await self._log.save_snapshot(projection, fingerprint, place, state)

    async def marks(self, projection: str) -> list[Mark]:
        return await self._log.marks(projection)

    async def save_mark(self, projection: str, mark: Mark) -> None:
        await self._log.save_mark(projection, mark)

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

    def copied(self) -> MemoryEventLog:
        """Return a copy of the current database."""
        twin = copy.copy(self._log)
        vars(twin).update(
            {
                name: copy.copy(kept)
                for name, kept in vars(twin).items()
                if isinstance(kept, list | dict)
            }
        )
        return twin

    def set_back(self, to: MemoryEventLog) -> None:
        """Replace the database by this copy."""
        self._log = to

    def identity_now(self) -> LogIdentity:
        identity: LogIdentity = at_once(self._log.identity())
        return identity

    def holds_now(self, place: Place) -> bool:
        """Whether `place` is one of this history."""
        return self._log._holds(place)

    def lost_now(self, lost: Lost, now_us: int) -> None:
        """Note that a reader misses events that it had read, so that a timeline may begin."""
        at_once(self._log.begin_timeline(now_us, lost))

    @property
    def end(self) -> int:
        return len(self._log._events)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the simulated log has no {name}: a loop asks for something new, give it here"
        )
