"""A reader of the log: it passes pages of events to a handler, in order and once, and detects
another history.

The cursor decides; this module does the I/O. The bus is a doorbell and may be absent, because the
log's own notification and a poll reach everything. An event that cannot be handled halts this
consumer only, visibly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from shared.cancellation import pass_on_cancellation
from shared.eventlog import cursor as cursors
from shared.eventlog.cursor import Cursor, Phase, Reset
from shared.eventlog.errors import LogBroken, LogUnavailable
from shared.eventlog.port import EventLog, LogIdentity, Lost
from shared.events.codec import UndecodableEvent
from shared.events.envelope import Envelope
from shared.runtime.clock import SYSTEM_CLOCK, Clock
from shared.runtime.health import Health
from shared.runtime.reading_ahead import ReadingAhead
from shared.runtime.waiting import set_within
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge, timed

T = TypeVar("T")
Handler = Callable[[Sequence[Envelope]], Awaitable[None]]
Doorbell = Callable[[], AsyncIterator[int]]
MAX_WAITERS = 10_000


class ConsumerOptions(msgspec.Struct, frozen=True):
    """`page_events` bounds a page (1,000 instead of 4,000 make a replay a twelfth slower). `poll_s`
    is the time between checks of head and identity without news. `pause_s` is the pause after the
    log was unavailable. `linger_s` is the minimum time between pages, so that close events share a
    page, except for waiters in a hurry (`wait_for`); an event after a pause is read at once."""

    page_events: int = 4000
    poll_s: float = 1.0
    pause_s: float = 0.5
    linger_s: float = 0.025


class Overtaken(Exception):
    """Another process moved this consumer's checkpoint: two processes do the same job, and this one
    must stop.
    """


class Refold(Exception):
    """Raised by a handler: discard the state and read everything again, for the named cause."""

    def lost(self, _identity: LogIdentity | None) -> Lost | None:
        """Return what the log with this identity lost; None if that is not the cause."""
        return None


class HistoryLost(Refold):
    """Raised by a handler: another event is at the position where the log acknowledged a commit."""

    def __init__(self, position: int, commit_id: str) -> None:
        super().__init__("other_history")
        self.position, self.commit_id = position, commit_id

    def lost(self, identity: LogIdentity | None) -> Lost | None:
        if identity is None:
            return None
        return Lost(identity.timeline, identity.timeline, self.position, commit_id=self.commit_id)


class Consumer:
    """One reader. `handle` receives each page; `on_reset(cause)` must discard the folded state.

    With `checkpoint`, reading begins after the saved position, and the end of each page is saved
    after its handler returned (compare-and-set: two consumers of one name cannot both go on).
    `start` is the position of the initial state. A consumer that `vouches` begins a timeline if the
    log lost what it had read, because no other process may know of it.
    """

    def __init__(
        self,
        name: str,
        log: EventLog,
        handle: Handler,
        *,
        start: int = 0,
        checkpoint: bool = False,
        on_reset: Callable[[str], Awaitable[None]] | None = None,
        doorbell: Doorbell | None = None,
        health: Health | None = None,
        gates_readiness: bool = True,
        vouches: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        options: ConsumerOptions = ConsumerOptions(),  # noqa: B008 - frozen
    ) -> None:
        self.name = name
        self.live = asyncio.Event()
        self._log = log
        self._pages = ReadingAhead(log)
        self._handle = handle
        self._cursor = Cursor(position=start)
        self._checkpoint = checkpoint
        self._on_reset = on_reset
        self._vouches = vouches
        self._doorbell = doorbell
        self._health = health or Health()
        self._clock = clock
        self._options = options
        self._rung = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[bool]]] = []
        self._hurry = asyncio.Event()
        self._looked_s = self._read_s = 0.0
        self._hinted = 0
        self._promised = 0
        self._trouble = ""
        self._out = logs.get(f"consumer {name}")
        if gates_readiness:
            self._health.check(f"consumer {name}", self._waiting_for)

    @property
    def position(self) -> int:
        """The position up to which everything was handled."""
        return self._cursor.position

    @property
    def phase(self) -> Phase:
        return self._cursor.phase

    def seek(self, position: int, chain: bytes | None = None) -> None:
        """Set the start before `run`: a snapshot was loaded for `position`, where the event has
        `chain`, if known.
        """
        self._cursor = Cursor(position=position, chain=chain)

    async def run(self) -> None:
        """Consume until cancelled. Raises what the handler raises, unless it only halts this
        consumer.
        """
        bell = asyncio.create_task(self._listen()) if self._doorbell else None
        try:
            if self._checkpoint:
                self.seek(await self._checkpoint_now())
            while True:
                await self._one_step()
                pass_on_cancellation()
        except (UndecodableEvent, LogBroken) as error:
            await self._halt(error)
        finally:
            self._pages.drop()
            if bell is not None:
                bell.cancel()
                await asyncio.gather(bell, return_exceptions=True)

    async def wait_for(self, position: int, timeout_s: float, hurry: bool = False) -> bool:
        """Wait until everything up to `position`, an acknowledged one, was handled; return False on
        timeout or reset. `hurry` reads it at once in a page of its own, which costs more."""
        if self.position >= position:
            return True
        self._promised = max(self._promised, position)
        if len(self._waiters) >= MAX_WAITERS:
            raise RuntimeError(
                f"consumer {self.name}: {MAX_WAITERS} waiters already; is it running?"
            )
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = (position, reached)
        self._waiters.append(waiter)
        if hurry:
            self._hurry.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await reached
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(waiter)

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the log until it answers; readiness reports the problem meanwhile."""
        while True:
            try:
                answer = await ask()
            except LogUnavailable as error:
                self._trouble = str(error)
                self._out.warning(names.LOG_UNAVAILABLE, problem=self._trouble)
                await self._clock.sleep(self._options.pause_s)
            else:
                self._trouble = ""
                return answer

    # -- steps -------------------------------------------------------------------------------------

    async def _one_step(self) -> None:
        self._cursor, self._hinted = cursors.hinted(self._cursor, self._hinted), 0
        self._cursor, self._promised = cursors.promised(self._cursor, self._promised), 0
        step = cursors.next_step(self._cursor)
        if (
            isinstance(step, cursors.Open)
            or self._clock.monotonic_s() - self._looked_s > 5 * self._options.poll_s
        ):
            await self._look()
        elif isinstance(step, cursors.Read):
            await self._read(step.after)
        else:
            await self._wait(step.after)

    async def _look(self) -> None:
        """Read identity and head, and verify the event at this reader's position."""
        identity = await self.insist(self._log.identity)
        head = await self.insist(self._log.head)
        self._looked_s = self._clock.monotonic_s()
        self._cursor, reset = cursors.opened(self._cursor, identity, head)
        if reset is not None:
            await self._reset(reset)
        await self._read(cursors.reading(self._cursor).after)

    async def _reset(self, reset: Reset) -> None:
        self._out.warning(names.CONSUMER_RESET, cause=reset.cause)
        count(names.CONSUMER_RESETS, consumer=self.name, cause=reset.cause)
        self.live.clear()
        self._promised = 0
        for _, reached in self._waiters:
            if not reached.done():
                reached.set_result(False)
        if self._vouches and reset.lost is not None:
            await self._vouch(reset.lost)
        if self._on_reset is not None:
            await self._on_reset(reset.cause)
        if self._checkpoint:
            begins = await self.insist(self._log.begins)
            # The log keeps the last pruned event, so that readers continue behind it.
            start = begins if begins > 1 else 0
            await self._save(start, await self._checkpoint_now())
            if start:
                self.seek(start)

    async def _vouch(self, lost: Lost) -> None:
        """Report a loss to the log, which verifies it and begins a timeline unless another process
        was first.
        """
        identity = await self.insist(lambda: self._log.begin_timeline(self._clock.now_us(), lost))
        self._cursor = Cursor()
        if identity.timeline != lost.timeline:
            self._out.error(names.HISTORY_LOST, position=lost.position, timeline=identity.timeline)

    async def _read(self, after: int) -> None:
        overlap = self._cursor.position - after
        page = await self.insist(
            lambda: self._pages.read(after, self._options.page_events + overlap)
        )
        self._read_s = self._clock.monotonic_s()
        moved, fresh = cursors.received(self._cursor, page)
        if isinstance(fresh, Reset):
            self._cursor = moved
            return await self._reset(fresh)
        if fresh:
            if moved.phase is Phase.REPLAYING:
                await self._pages.ask(cursors.reading(moved).after, self._options.page_events + 1)
            try:
                with timed(names.HANDLER_LATENCY, consumer=self.name):
                    await self._handle(fresh)
            except Refold as refold:
                self._cursor = Cursor()
                return await self._reset(Reset(str(refold), refold.lost(moved.identity)))
            if self._checkpoint:
                await self._save(fresh[-1].position, self._cursor.position)
        self._cursor = moved
        return self._report(fresh)

    async def _save(self, position: int, expected: int) -> None:
        """Move the checkpoint. Raises Overtaken."""
        uncertain = False
        while True:
            try:
                moved = await self._log.save_checkpoint(self.name, position, expected)
            except LogUnavailable:
                uncertain = True
                await self._clock.sleep(self._options.pause_s)
                continue
            # After a lost answer the checkpoint may already have its new value.
            if moved or (uncertain and await self._checkpoint_now() == position):
                return
            raise Overtaken(
                f"consumer {self.name}: its checkpoint is no longer {expected}; "
                "another process moved it"
            )

    async def _checkpoint_now(self) -> int:
        return await self.insist(lambda: self._log.load_checkpoint(self.name))

    def _report(self, fresh: Sequence[Envelope]) -> None:
        position = self._cursor.position
        for waiter in self._waiters:
            if waiter[0] <= position and not waiter[1].done():
                waiter[1].set_result(True)
        if all(reached.done() for _, reached in self._waiters):
            self._hurry.clear()
        behind = max(self._cursor.known - position, 0)
        set_gauge(names.CONSUMER_POSITION, position, consumer=self.name)
        set_gauge(names.CONSUMER_LAG_FACTS, behind, consumer=self.name)
        age_s = (self._clock.now_us() - fresh[-1].time_us) / 1e6 if fresh and behind else 0.0
        set_gauge(names.CONSUMER_LAG_SECONDS, max(age_s, 0.0), consumer=self.name)
        if fresh:
            count(names.CONSUMER_FACTS, len(fresh), consumer=self.name)
        if self.phase is Phase.LIVE and not self.live.is_set():
            self.live.set()
            self._out.info(names.CONSUMER_LIVE, position=position)

    async def _wait(self, after: int) -> None:
        if not await self._woken(after):
            return await self._look()
        pause_s = self._read_s + self._options.linger_s - self._clock.monotonic_s()
        if pause_s > 0:
            await set_within(self._hurry, pause_s)
        return None

    async def _woken(self, after: int) -> bool:
        """Wait for the log or the doorbell; return False after a poll interval without either."""
        head_moved = self._log.wait(after, self._options.poll_s)
        try:
            woken = await (head_moved if self._doorbell is None else self._or_rung(head_moved))
        except LogUnavailable:
            await self._clock.sleep(self._options.pause_s)
            return False
        if woken:
            self._cursor = cursors.hinted(self._cursor, after + 1)
        return woken

    async def _or_rung(self, head_moved: Coroutine[Any, Any, bool]) -> bool:
        self._rung.clear()
        waits = {asyncio.ensure_future(head_moved), asyncio.ensure_future(self._rung.wait())}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            # Look at every result, so that no error is lost.
            return sum(bool(wait.result()) for wait in done) > 0
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _listen(self) -> None:
        """Follow the doorbell; if it breaks, the log's notification and polling remain."""
        assert self._doorbell is not None
        while True:
            with contextlib.suppress(Exception):
                async for position in self._doorbell():
                    self._hinted = max(self._hinted, position)
                    self._rung.set()
            await self._clock.sleep(self._options.pause_s)

    # -- errors ------------------------------------------------------------------------------------

    async def _halt(self, error: Exception) -> None:
        """Stop and be red until an operator acts; the process and its other consumers go on."""
        self._out.error(names.CONSUMER_HALTED, position=self.position, problem=str(error))
        set_gauge(names.CONSUMER_STOPPED, 1, consumer=self.name)
        self._health.fail(f"consumer {self.name}", str(error))
        await asyncio.Event().wait()

    def _waiting_for(self) -> str:
        if self._trouble or self.live.is_set():
            return self._trouble
        return f"{self.phase.value} at {self.position} of {self._cursor.known}"
