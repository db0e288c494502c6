"""What the simulated services have in common: a fold of the log at its own pace, and loops that
wait for answers.

A crash drops everything but the log. `Process` is a Projector to the loops (state, position,
wait_for); it follows the log by the production cursor, which notices when the log is set back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from shared.eventlog import cursor as machine
from shared.eventlog.cursor import Cursor, Reset
from shared.eventlog.port import Place
from shared.events.codec import decode
from shared.events.envelope import Envelope
from shared.runtime.consumer import Refold
from tests.simulation.fibers import Ask, Fiber
from tests.simulation.log import SimClock, SimLog

Folded = list[tuple[Any, Any]]


class Process:
    """A process of a service. Subclasses name the fold (`fresh`, `fold`) and start loops; `marks`
    collects the rare branches that ran.
    """

    clock: SimClock

    def __init__(self, name: str, log: SimLog, mark: Callable[[str], None]) -> None:
        self.name = name
        self.log = log
        self.mark = mark
        self.alive = True
        self.cursor = Cursor()
        self.state: Any = None
        self.fibers: list[Fiber] = []
        self.errors: list[Exception] = []
        self.abandoned: Callable[[Ask], None] = lambda _ask: None
        self._starts = 1

    @property
    def holder(self) -> str:
        """The name under which leases are held: another after every start."""
        return f"{self.name}-{self._starts}"

    # -- a projector, to the loops
    # ----------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The position up to which everything is folded."""
        return self.cursor.position

    @property
    def place(self) -> Place:
        """The position of the fold."""
        return Place(self.position, self.cursor.chain or b"") if self.position else Place()

    @property
    def live(self) -> bool:
        """Whether the fold has reached the head, as far as it can know."""
        return self.position == self.log.end

    @property
    def astray(self) -> bool:
        """Return whether the log is not the one that was folded or written. The process has yet to
        notice that.
        """
        identity, promised = self.cursor.identity, max(self.cursor.promised, self.awaits)
        return (
            not self.log.holds_now(self.place)
            or identity not in (None, self.log.identity_now())
            or self.log.end < promised
        )

    @property
    def awaits(self) -> int:
        """The position of the loops' appends, for which they wait before their next turn
        (`wait_for`).
        """
        return 0

    async def wait_for(self, position: int, timeout_s: float) -> bool:
        """Return True once the fold is there; False if the world lets it time out, or the log is
        another.
        """
        if position <= self.position:
            return True
        self.cursor = machine.promised(self.cursor, position)
        return bool(await Ask("reach", position))

    async def wait_live(self) -> None:
        """Wait for the head. Of a log that was set back behind the fold there is nothing to wait
        for but to notice it.
        """
        while not self.live:
            if self.log.end < self.position:
                await Ask("reach", self.position + 1)
            else:
                await self.wait_for(self.log.end, 0)

    # -- folding
    # ----------------------------------------------------------------------------------------------

    def fold(self, most: int) -> None:
        """Fold at most this many events, or notice that the log is another one."""
        promised = machine.promised(self.cursor, self.awaits)
        self.cursor, reset = machine.opened(promised, self.log.identity_now(), self.log.end)
        if reset is None:
            position = machine.reading(self.cursor).after
            page = self.log.read_now(position, most + self.position - position)
            self.cursor, fresh = machine.received(self.cursor, page)
            if not isinstance(fresh, Reset):
                try:
                    return self.folded([(envelope, self._evolved(envelope)) for envelope in fresh])
                except Refold as again:
                    fresh = Reset(f"again: {again}", again.lost(self.cursor.identity))
                    self.cursor = Cursor()
            reset = fresh
        self.mark(f"reset {reset.cause}")
        if reset.lost is not None:
            self.log.lost_now(reset.lost, self.clock.now_us())
            self.cursor = Cursor()
        self.reset()
        waiting = [
            fiber for fiber in self.fibers if fiber.ask is not None and fiber.ask.kind == "reach"
        ]
        for fiber in waiting:
            fiber.resume(False)
        return self.settle()

    def _evolved(self, envelope: Envelope) -> Any:
        event = decode(envelope)
        self.evolve(envelope, event)
        return event

    def reset(self) -> None:
        """Begin the state again and notify the loops, because the log is another one."""
        raise NotImplementedError

    def evolve(self, envelope: Any, event: Any) -> None:
        """Fold one event."""
        raise NotImplementedError

    def folded(self, folded: Folded) -> None:
        """React to a folded page."""

    # -- loops
    # ----------------------------------------------------------------------------------------------

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> Fiber:
        """Begin a loop's turn."""
        fiber = Fiber(name, work)
        self.fibers.append(fiber)
        self.settle()
        return fiber

    def runs(self, name: str) -> bool:
        """Whether a turn of that name is under way."""
        return any(fiber.name == name for fiber in self.fibers)

    def settle(self) -> None:
        """Remove finished turns; subclasses get their results."""
        for fiber in [fiber for fiber in self.fibers if fiber.ask is None]:
            self.fibers.remove(fiber)
            if fiber.error is not None:
                self.failed(fiber, fiber.error)

    def failed(self, fiber: Fiber, error: Exception) -> None:
        """Fail, because a turn ended with an error."""
        self.errors.append(error)

    def crash(self) -> str:
        """Lose everything in memory."""
        self.drop(self.fibers)
        self.alive = False
        return f"at {self.position}"

    def drop(self, fibers: list[Fiber]) -> None:
        """Give up turns. Their questions may still be carried out."""
        for fiber in list(fibers):
            if fiber.ask is not None and fiber.ask.answer is None:
                self.abandoned(fiber.ask)
            fiber.close()
            self.fibers.remove(fiber)

    def start(self) -> str:
        """Begin again from the log."""
        self.alive, self.cursor = True, Cursor()
        self._starts += 1
        self.begin()
        return ""

    def begin(self) -> None:
        """Make a fresh state."""
        raise NotImplementedError
