"""Keeps the state of a pure fold up to date with the log: snapshot, replay, then live; and tells
who waits for a position.

The fold changes its state in place and may not read a clock; the projector never decides anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.limits import MAX_SNAPSHOT_BYTES
from shared.eventlog.port import EventLog, Place
from shared.eventlog.skips import skips
from shared.eventlog.snapshots import seal, unseal
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped
from shared.events.quarantine import UNFOLDABLE, QuarantinedStreams
from shared.runtime.consumer import Consumer, Refold
from shared.runtime.health import Health
from shared.runtime.marks import Differs, Marks, Promises
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge

S = TypeVar("S")

Folded = Sequence[tuple[Envelope, Event]]

AT_ONCE = 100
"""Facts that are decoded, folded and told of together: so few are still in the processor's cache, and so is what they leave."""


class Fold(msgspec.Struct, Generic[S], frozen=True):
    """`evolve` changes the state in place; what it returns is not looked at. `dump` and `load` make
    snapshots possible; `fingerprint` (`shared.eventlog.snapshots.fingerprint`) names everything
    that shapes the state. `promises` is what all releases must see alike (`shared.runtime.marks`).
    `pass_over` hears of a fact that is not folded (`shared.events.quarantine`), `set_aside` of a
    stream whose facts no longer are: what it is about must not be acted on."""

    initial: Callable[[], S]
    evolve: Callable[[S, Envelope, Event], object]
    fingerprint: str = ""
    dump: Callable[[S], bytes] | None = None
    load: Callable[[bytes], S] | None = None
    promises: Promises[S] | None = None
    pass_over: Callable[[S, Envelope], object] = lambda _state, _envelope: None
    set_aside: Callable[[S, str], object] = lambda _state, _stream: None

    @property
    def keeps_snapshots(self) -> bool:
        return bool(self.fingerprint and self.dump and self.load)


class Projector(Generic[S]):
    """`state` at `place`, the position of one history. `after(state, folded)` runs after each page,
    in the same turn: the state is consistent there.

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
        health: Health | None = None,
        differs: Differs = "wait",
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
        self._quarantined = QuarantinedStreams()
        self._told: set[str] = set()
        self._health = health or Health()
        self.consumer = Consumer(
            name, log, self._handle, on_reset=self._reset, health=self._health, **consumer
        )
        self._marks: Marks[S] | None = None
        if fold.promises is not None and fold.fingerprint:
            self._marks = Marks(name, fold.fingerprint, fold.promises, log, self._health, differs)
            self._health.check(f"{name}: marks", self._marks.problem)

    @property
    def position(self) -> int:
        """The position up to which the state is folded."""
        return self.place.position

    @property
    def live(self) -> bool:
        """Whether the state has reached the end of the log once since start or reset."""
        return self.consumer.live.is_set()

    @property
    def behind(self) -> bool:
        """Whether the log holds facts that this code could not read or fold."""
        return bool(self._quarantined.streams)

    @property
    def disagrees(self) -> bool:
        """Whether this code promises pods something else than the release at work, and is to wait
        until that is meant.
        """
        return self._marks is not None and bool(self._marks.problem())

    async def run(self) -> None:
        """Load the snapshot if there is a usable one, then follow the log until cancelled."""
        self._quarantined = await self.consumer.insist(self._skips)
        if self._fold.keeps_snapshots:
            await self._load()
        if self._marks is not None:
            await self._marks.begin(self._quarantined.skipped)
        await self.consumer.run()

    async def wait_for(self, position: int, timeout_s: float, hurry: bool = False) -> bool:
        """Wait until the state stands at `position` or beyond: how a writer reads its own writes.
        False on timeout.
        """
        return await self.consumer.wait_for(position, timeout_s, hurry)

    async def wait_live(self) -> None:
        """Wait until the state has caught up with the log."""
        await self.consumer.live.wait()

    async def _handle(self, page: Sequence[Envelope]) -> None:
        for run in self._runs(page):
            await self._fold_run(run)
            if (
                self._marks is not None
                and not self._quarantined.streams
                and self._marks.due(self.state, self.position, self.live)
            ):
                await self._marks.make(self.state, self.place, self.live)
        if self._fold.keeps_snapshots and self.position - self._saved_at >= self._snapshot_every:
            await self.save()

    def _runs(self, page: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
        """The page, cut behind each fact where a mark may be due, and into pieces."""
        first, start = page[0].position, 0
        for position in (
            self._marks.may_be_due(first, page[-1].position, self.live)
            if self._marks is not None
            else ()
        ):
            yield from _pieces(page[start : position - first + 1])
            start = position - first + 1
        yield from _pieces(page[start:] if start else page)

    async def _fold_run(self, page: Sequence[Envelope]) -> None:
        """Fold all of it. Hearers know before anybody else has a turn. Raises Refold at news of a
        skip.
        """
        folded: list[tuple[Envelope, Event]] = []
        try:
            events = self._quarantined.events_of(page)
            done = (
                self._fold_readable(list(zip(page, events, strict=True)), folded)
                if events is not None
                else 0
            )
            for envelope in page[done:]:
                self._fold_one(envelope, folded)
        finally:
            # What was folded before an error is part of the state, and its hearers must know it.
            if folded and self._after is not None:
                await _finished(self._after(self.state, folded))

    def _fold_readable(self, read: Folded, folded: list[tuple[Envelope, Event]]) -> int:
        """Fold facts as they come, without a look at each; returns how many were folded: all, or
        those before one that the fold cannot take, which sets its stream aside. Of a log that is
        read from its beginning this saves a twentieth."""
        evolve, state, done = self._fold.evolve, self.state, 0
        try:
            for envelope, event in read:
                evolve(state, envelope, event)
                done += 1
        except UNFOLDABLE as error:
            self._quarantined.quarantine(read[done][0], error)
        finally:
            folded += read[:done]
            if done:
                self._stands_behind(read[done - 1][0])
        return done

    def _fold_one(self, envelope: Envelope, folded: list[tuple[Envelope, Event]]) -> None:
        event = self._quarantined.event_of(envelope)
        if event is None:
            return self._pass_over(envelope)
        if isinstance(event, FactSkipped) and event.position not in self._quarantined.skipped:
            raise Refold(f"fact {event.position} is to be skipped")
        try:
            self._fold.evolve(self.state, envelope, event)
        except UNFOLDABLE as error:
            self._quarantined.quarantine(envelope, error)
            return self._pass_over(envelope)
        folded.append((envelope, event))
        return self._stands_behind(envelope)

    def _pass_over(self, envelope: Envelope) -> None:
        self._fold.pass_over(self.state, envelope)
        self._stands_behind(envelope)
        if envelope.stream in self._quarantined.streams:
            self._tell_aside(envelope.stream, envelope.position)

    def _stands_behind(self, envelope: Envelope) -> None:
        self.place = Place(envelope.position, envelope.chain)

    def _tell_aside(self, stream: str, position: int) -> None:
        """Once for each stream, at the fact that it is set aside for: red until an operator acts."""
        component, problem = (
            f"{self.name}: stream {stream} is set aside",
            self._quarantined.streams[stream],
        )
        if component in self._told:
            return
        self._told.add(component)
        self._fold.set_aside(self.state, stream)
        self._health.fail(
            component, f"{problem}; to go on without it: topolog log skip {position} --reason TEXT"
        )
        self._out.error(names.STREAM_QUARANTINED, stream=stream, position=position, problem=problem)
        set_gauge(names.STREAMS_QUARANTINED, len(self._told), projection=self.name)

    async def _skips(self) -> QuarantinedStreams:
        return QuarantinedStreams(await skips(self._log))

    async def _reset(self, _cause: str) -> None:
        self._quarantined = await self.consumer.insist(self._skips)
        for component in self._told:
            self._health.recover(component)
        self._told.clear()
        set_gauge(names.STREAMS_QUARANTINED, 0, projection=self.name)
        self.state, self.place, self._saved_at = self._fold.initial(), Place(), 0
        if self._marks is not None:
            await self._marks.begin(self._quarantined.skipped)
        if self._on_reset is not None:
            await _finished(self._on_reset(self.state))

    async def save(self) -> None:
        """Keep a snapshot of the state; a failure costs nothing but a longer replay."""
        if not self._fold.keeps_snapshots or self._fold.dump is None or self._quarantined.streams:
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
        if found is None or not self._quarantined.are_skips_known_at(found[0].position):
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


def _pieces(page: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
    return (page[first : first + AT_ONCE] for first in range(0, len(page), AT_ONCE))


async def _finished(result: Awaitable[None] | None) -> None:
    if inspect.isawaitable(result):
        await result
