"""Keep the state of a pure fold up to date with the log: snapshot, replay, then live; and wake
waiters for a position.

The fold changes its state in place and reads no clock; the projector decides nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from shared.domain.state_hash import canonical
from shared.eventlog.checkpoints import (
    EVERY,
    Checkpoint,
    Form,
    nearest_checkpoint,
    oldest_checkpoint,
)
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.limits import MAX_SNAPSHOT_BYTES
from shared.eventlog.port import EventLog, Place
from shared.eventlog.skips import skips
from shared.eventlog.snapshots import seal, unseal
from shared.events import streams
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped
from shared.events.quarantine import UNFOLDABLE, QuarantinedStreams
from shared.runtime.checkpointing import Checkpointing
from shared.runtime.consumer import Consumer, Refold
from shared.runtime.health import Health
from shared.runtime.marks import Differs, Marks, Promises
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge

S = TypeVar("S")

Folded = Sequence[tuple[Envelope, Event]]

# Events that are decoded, folded and reported together: few enough to stay in the CPU's cache.
AT_ONCE = 100
# Events of a page of the proof that a checkpoint may be used.
PAGE = 1000


class Fold(msgspec.Struct, Generic[S], frozen=True):
    """`evolve` changes the state in place; its result is ignored. `dump` and `load` make snapshots
    possible; `fingerprint` (`shared.eventlog.snapshots.fingerprint`) covers everything that shapes
    the state. `promises` are what all releases must compute alike (`shared.runtime.marks`).
    `pass_over` is called for an event that is not folded (`shared.events.quarantine`), `set_aside`
    for a stream that is quarantined: its subject must not be acted on. With `form` the fold also
    writes checkpoints, from which a release with other code starts; `weight` is the number of pods
    or nodes in the state. A large state has no other snapshots."""

    initial: Callable[[], S]
    evolve: Callable[[S, Envelope, Event], object]
    fingerprint: str = ""
    dump: Callable[[S], bytes] | None = None
    load: Callable[[bytes], S] | None = None
    promises: Promises[S] | None = None
    pass_over: Callable[[S, Envelope], object] = lambda _state, _envelope: None
    set_aside: Callable[[S, str], object] = lambda _state, _stream: None
    form: Form | None = None
    weight: Callable[[S], int] = lambda _state: 0

    @property
    def keeps_snapshots(self) -> bool:
        return bool(self.fingerprint and self.dump and self.load)


class Projector(Generic[S]):
    """`state` at `place`, a position of one history. `after(state, folded)` runs after each page in
    the same turn, so that the state is consistent.

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
        self._reported: set[str] = set()
        self._health = health or Health()
        self.consumer = Consumer(
            name, log, self._handle, on_reset=self._reset, health=self._health, **consumer
        )
        self._checkpoints: Checkpointing[S] | None = None
        if fold.form is not None and fold.dump is not None:
            self._checkpoints = Checkpointing(
                name, log, fold.fingerprint, fold.form, fold.dump, fold.weight
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
        """True if the state has reached the end of the log since start or reset."""
        return self.consumer.live.is_set()

    @property
    def behind(self) -> bool:
        """True if the log holds events that this release could not read or fold."""
        return bool(self._quarantined.streams)

    @property
    def disagrees(self) -> bool:
        """True if this release computes other promises than the running release and must wait for
        an operator.
        """
        return self._marks is not None and bool(self._marks.problem())

    async def run(self) -> None:
        """Load a usable snapshot, then follow the log until cancelled."""
        self._quarantined = await self.consumer.insist(self._skips)
        if self._fold.keeps_snapshots and not await self._load():
            await self.consumer.insist(self._load_checkpoint)
        if self._marks is not None:
            await self._marks.begin(self._quarantined.skipped)
        try:
            await self.consumer.run()
        finally:
            await self._stop_children()

    async def wait_for(self, position: int, timeout_s: float, hurry: bool = False) -> bool:
        """Wait until the state is at `position` or beyond, so that a writer reads its own writes;
        return False on timeout."""
        return await self.consumer.wait_for(position, timeout_s, hurry)

    async def wait_live(self) -> None:
        await self.consumer.live.wait()

    async def _stop_children(self) -> None:
        if self._checkpoints is not None:
            await self._checkpoints.stop()
        if self._marks is not None:
            await self._marks.stop()

    async def _handle(self, page: Sequence[Envelope]) -> None:
        for run in self._runs(page):
            await self._fold_run(run)
            if (
                self._marks is not None
                and not self._quarantined.streams
                and self._marks.due(self.state, self.position, self.live)
            ):
                await self._marks.make(self.state, self.place, self.live)
            checkpoints = self._checkpoints
            if checkpoints is not None and checkpoints.due(self.state, self.position, self.live):
                await self._begin_checkpoint()
        if self.position - self._saved_at >= self._snapshot_every and not self._is_large:
            await self.save()

    def _runs(self, page: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
        """Cut the page after each position of a mark or checkpoint, and into pieces."""
        first, last, start = page[0].position, page[-1].position, 0
        ends = set(range(first + -first % EVERY, last + 1, EVERY))
        if self._marks is not None:
            ends.update(self._marks.may_be_due(first, last, self.live))
        for position in sorted(ends):
            yield from _pieces(page[start : position - first + 1])
            start = position - first + 1
        yield from _pieces(page[start:] if start else page)

    async def _fold_run(self, page: Sequence[Envelope]) -> None:
        """Fold a run in one turn of the event loop. Raises Refold at a new FactSkipped."""
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
            # Events before an error are part of the state, so `after` must receive them.
            if folded and self._after is not None:
                await _finished(self._after(self.state, folded))

    def _fold_readable(self, read: Folded, folded: list[tuple[Envelope, Event]]) -> int:
        """Fold events in one fast loop. Return how many were folded: all, or those before an event
        that the fold rejects, which quarantines its stream. The loop saves a twentieth of a
        replay."""
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
                self._set_place(read[done - 1][0])
        return done

    def _fold_one(self, envelope: Envelope, folded: list[tuple[Envelope, Event]]) -> None:
        event = self._quarantined.event_of(envelope)
        if event is None:
            return self._pass_over(envelope)
        if isinstance(event, FactSkipped) and event.position not in self._quarantined.skipped:
            raise Refold(f"event {event.position} is to be skipped")
        try:
            self._fold.evolve(self.state, envelope, event)
        except UNFOLDABLE as error:
            self._quarantined.quarantine(envelope, error)
            return self._pass_over(envelope)
        folded.append((envelope, event))
        return self._set_place(envelope)

    def _pass_over(self, envelope: Envelope) -> None:
        self._fold.pass_over(self.state, envelope)
        self._set_place(envelope)
        if envelope.stream in self._quarantined.streams:
            self._report_quarantine(envelope.stream, envelope.position)

    def _set_place(self, envelope: Envelope) -> None:
        self.place = Place(envelope.position, envelope.chain)

    def _report_quarantine(self, stream: str, position: int) -> None:
        """Report a quarantined stream once: red until an operator acts."""
        component, problem = (
            f"{self.name}: stream {stream} is quarantined",
            self._quarantined.streams[stream],
        )
        if component in self._reported:
            return
        self._reported.add(component)
        self._fold.set_aside(self.state, stream)
        effect = ""
        if streams.carries_safety(stream):
            effect = "; it may restrict every decision, so this service decides nothing"
        self._health.fail(
            component,
            f"{problem}{effect}; to continue without it: topolog log skip {position} --reason TEXT",
        )
        self._out.error(names.STREAM_QUARANTINED, stream=stream, position=position, problem=problem)
        set_gauge(names.STREAMS_QUARANTINED, len(self._reported), projection=self.name)

    async def _skips(self) -> QuarantinedStreams:
        return QuarantinedStreams(await skips(self._log))

    async def _reset(self, _cause: str) -> None:
        await self._stop_children()
        self._quarantined = await self.consumer.insist(self._skips)
        for component in self._reported:
            self._health.recover(component)
        self._reported.clear()
        set_gauge(names.STREAMS_QUARANTINED, 0, projection=self.name)
        self.state, self.place, self._saved_at = self._fold.initial(), Place(), 0
        if self._marks is not None:
            await self._marks.begin(self._quarantined.skipped)
        begun = await self.consumer.insist(self._load_oldest)
        if not begun and self._on_reset is not None:
            await _finished(self._on_reset(self.state))

    @property
    def _is_large(self) -> bool:
        return self._checkpoints is not None and self._checkpoints.is_large(self.state)

    async def save(self) -> None:
        """Keep a snapshot, or a checkpoint if the state is large; a failure only makes the next
        replay longer."""
        if self._is_large:
            return await self.save_checkpoint()
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

    async def save_checkpoint(self) -> None:
        """Keep a checkpoint of this moment, unless a stream is quarantined."""
        await self._begin_checkpoint()
        if self._checkpoints is not None:
            await self._checkpoints.finished()

    async def _begin_checkpoint(self) -> None:
        if self._checkpoints is not None and not self._quarantined.streams:
            await self._checkpoints.begin(self.state, self.place, self.live)

    async def _load(self) -> bool:
        """Start from the newest snapshot or checkpoint of this code. Return False if there is
        none."""
        try:
            snapshot = await self._log.load_snapshot(self.name, self._fold.fingerprint)
            newest = await self._checkpoint()
        except LogUnavailable:
            snapshot = newest = None
        place, dumped = (snapshot[0], unseal(snapshot[1])) if snapshot else (Place(), None)
        if (
            newest
            and newest.code == self._fold.fingerprint
            and newest.place.position > place.position
        ):
            place, dumped = newest.place, newest.state
        if not place.position or not self._quarantined.are_skips_known_at(place.position):
            count(names.SNAPSHOTS, projection=self.name, result="absent")
            return False
        state = self._loaded(dumped)
        if state is None:
            self._out.warning(names.SNAPSHOT_UNUSABLE, position=place.position)
            count(names.SNAPSHOTS, projection=self.name, result="unusable")
            return False
        await self._begin(state, place)
        count(names.SNAPSHOTS, projection=self.name, result="loaded")
        return True

    async def _begin(self, state: S, place: Place) -> None:
        self.state, self.place, self._saved_at = state, place, place.position
        self.consumer.seek(place.position, place.chain)
        if self._on_reset is not None:
            await _finished(self._on_reset(state))

    async def _load_checkpoint(self) -> None:
        """Start from the newest checkpoint, whatever code made it, if this code folds the events
        between the checkpoint before it and this one to the same state."""
        newest = await self._checkpoint()
        if newest is None:
            return None
        state = self._loaded(newest.state)
        if state is None or not await self._proves(newest):
            self._out.warning(
                names.SNAPSHOT_UNUSABLE, position=newest.place.position, code=newest.code
            )
            await self._load_oldest()
            return count(names.SNAPSHOTS, projection=self.name, result="differs")
        await self._begin(state, newest.place)
        return count(names.SNAPSHOTS, projection=self.name, result="checkpoint")

    async def _load_oldest(self) -> bool:
        """Start from the oldest checkpoint if the beginning of the log was pruned. Return False
        if the fold starts at the beginning."""
        if self._fold.form is None or await self._log.begins() == 1:
            return False
        oldest = await oldest_checkpoint(self._log, self.name, self._fold.form)
        if oldest is None or not self._quarantined.are_skips_known_at(oldest.place.position):
            return False
        state = self._loaded(oldest.state)
        if state is not None:
            await self._begin(state, oldest.place)
        return state is not None

    async def _checkpoint(self, until: int | None = None) -> Checkpoint | None:
        if self._fold.form is None:
            return None
        newest = await nearest_checkpoint(self._log, self.name, self._fold.form, until)
        if newest is None or not self._quarantined.are_skips_known_at(newest.place.position):
            return None
        return newest

    async def _proves(self, newest: Checkpoint) -> bool:
        """Return whether a fold from the checkpoint before, or from the beginning of the log, leads
        to the state of this one."""
        older = await self._checkpoint(newest.place.position - 1)
        if older is None and await self._log.begins() > 1:
            return False
        state = self._fold.initial() if older is None else self._loaded(older.state)
        if state is None or self._fold.dump is None:
            return False
        position = older.place.position if older is not None else 0
        quarantined = await self._skips()
        while position < newest.place.position:
            page = await self._log.read(position, min(PAGE, newest.place.position - position))
            if not page or page[0].position != position + 1:
                return False
            for envelope in page:
                event = quarantined.event_of(envelope)
                if event is None:
                    self._fold.pass_over(state, envelope)
                else:
                    try:
                        self._fold.evolve(state, envelope, event)
                    except UNFOLDABLE:
                        return False
            position = page[-1].position
        return not quarantined.streams and _same(self._fold.dump(state), newest.state)

    def _loaded(self, state: bytes | None) -> S | None:
        if state is None or self._fold.load is None:
            return None
        try:
            return self._fold.load(state)
        except Exception:
            # A snapshot is a cache: whatever is wrong with it, a replay is the fix.
            return None


def _same(first: bytes, second: bytes) -> bool:
    """Return whether two dumped states are equal, in whatever order they were built."""
    return first == second or canonical(_plain(first)) == canonical(_plain(second))


def _plain(dumped: bytes) -> Any:
    if dumped.startswith(b"{"):
        return msgspec.json.decode(dumped)
    return msgspec.msgpack.decode(dumped, strict=False)


def _pieces(page: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
    return (page[first : first + AT_ONCE] for first in range(0, len(page), AT_ONCE))


async def _finished(result: Awaitable[None] | None) -> None:
    if inspect.isawaitable(result):
        await result
