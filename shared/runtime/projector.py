"""Keeps the state of a pure fold up to date with the log: snapshot, replay, then live; and tells who waits for a position.

The fold changes its state in place and may not read a clock; the projector never decides anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.limits import MAX_SNAPSHOT_BYTES
from shared.eventlog.port import EventLog, Place
from shared.eventlog.snapshots import seal, unseal
from shared.events.catalog import Fact
from shared.events.codec import decode
from shared.events.envelope import Envelope
from shared.runtime.consumer import Consumer
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

S = TypeVar("S")

Folded = Sequence[tuple[Envelope, Fact]]


class Fold(msgspec.Struct, Generic[S], frozen=True):
    """`evolve` changes the state in place; what it returns is not looked at. `dump` and `load` make snapshots possible;
    `fingerprint` (`shared.eventlog.snapshots.fingerprint`) names everything that shapes the state."""

    initial: Callable[[], S]
    evolve: Callable[[S, Envelope, Fact], object]
    fingerprint: str = ""
    dump: Callable[[S], bytes] | None = None
    load: Callable[[bytes], S] | None = None

    @property
    def keeps_snapshots(self) -> bool:
        return bool(self.fingerprint and self.dump and self.load)


class Projector(Generic[S]):
    """`state` at `place`, the position of one history. `after(state, folded)` runs after each page, in the same turn: the state
    is consistent there.

    Takes the keyword arguments of `Consumer` (doorbell, health, clock, options).
    """

    def __init__(
        self,
        name: str,
        log: EventLog,
        fold: Fold[S],
        *,
        after: Callable[[S, Folded], Awaitable[None] | None] | None = None,
        on_reset: Callable[[S], Awaitable[None] | None] | None = None,
        snapshot_every: int = 50_000,
        **consumer: Any,
    ) -> None:
        self.name = name
        self.state = fold.initial()
        self.place = Place()
        self._log = log
        self._fold = fold
        self._after = after
        self._on_reset = on_reset
        self._snapshot_every = snapshot_every
        self._saved_at = 0
        self._out = logs.get(f"projector {name}")
        self.consumer = Consumer(name, log, self._handle, on_reset=self._reset, **consumer)

    @property
    def position(self) -> int:
        """The position up to which the state is folded."""
        return self.place.position

    @property
    def live(self) -> bool:
        """Whether the state has reached the end of the log once since start or reset."""
        return self.consumer.live.is_set()

    async def run(self) -> None:
        """Load the snapshot if there is a usable one, then follow the log until cancelled."""
        if self._fold.keeps_snapshots:
            await self._load()
        await self.consumer.run()

    async def wait_for(self, position: int, timeout_s: float) -> bool:
        """Wait until the state stands at `position` or beyond: how a writer reads its own writes. False on timeout."""
        return await self.consumer.wait_for(position, timeout_s)

    async def wait_live(self) -> None:
        """Wait until the state has caught up with the log."""
        await self.consumer.live.wait()

    async def _handle(self, page: Sequence[Envelope]) -> None:
        folded: list[tuple[Envelope, Fact]] = []
        try:
            for envelope in page:
                fact = decode(envelope)
                self._fold.evolve(self.state, envelope, fact)
                self.place = Place(envelope.position, envelope.chain)
                folded.append((envelope, fact))
        finally:
            # What was folded before an undecodable fact is part of the state, and its hearers must know it.
            if folded and self._after is not None:
                await _finished(self._after(self.state, folded))
        if self._fold.keeps_snapshots and self.position - self._saved_at >= self._snapshot_every:
            await self.save()

    async def _reset(self, _cause: str) -> None:
        self.state, self.place, self._saved_at = self._fold.initial(), Place(), 0
        if self._on_reset is not None:
            await _finished(self._on_reset(self.state))

    async def save(self) -> None:
        """Keep a snapshot of the state; a failure costs nothing but a longer replay."""
        if not self._fold.keeps_snapshots or self._fold.dump is None:
            return None
        self._saved_at = self.position
        sealed = seal(self._fold.dump(self.state))
        if len(sealed) > MAX_SNAPSHOT_BYTES:
            return count(names.SNAPSHOTS, projection=self.name, result="too_large")
        try:
            await self._log.save_snapshot(self.name, self._fold.fingerprint, self.place, sealed)
        except LogUnavailable:
            return count(names.SNAPSHOTS, projection=self.name, result="unsaved")
        return count(names.SNAPSHOTS, projection=self.name, result="saved")

    async def _load(self) -> None:
        try:
            found = await self._log.load_snapshot(self.name, self._fold.fingerprint)
        except LogUnavailable:
            found = None
        if found is None:
            return count(names.SNAPSHOTS, projection=self.name, result="absent")
        state = self._loaded(found[1])
        if state is None:
            self._out.warning(names.SNAPSHOT_UNUSABLE, position=found[0].position)
            return count(names.SNAPSHOTS, projection=self.name, result="unusable")
        self.state, self.place, self._saved_at = state, found[0], found[0].position
        self.consumer.seek(self.place.position, self.place.chain)
        if self._on_reset is not None:
            await _finished(self._on_reset(self.state))
        return count(names.SNAPSHOTS, projection=self.name, result="loaded")

    def _loaded(self, sealed: bytes) -> S | None:
        state = unseal(sealed)
        if state is None or self._fold.load is None:
            return None
        try:
            return self._fold.load(state)
        except Exception:
            # Whatever is wrong with a cache, the remedy is the same: replay.
            return None


async def _finished(result: Awaitable[None] | None) -> None:
    if inspect.isawaitable(result):
        await result
