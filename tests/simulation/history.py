"""The log's database set back to an earlier copy: a lagging replica that was promoted, or a backup
that an operator restored.

Events since the copy are gone, and services learn of it from the log only; after a restore the
operator begins a timeline (docs/backup.md). Must not know how services react.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.eventlog.memory import MemoryEventLog
from tests.simulation.fibers import at_once
from tests.simulation.log import SimClock, SimLog
from tests.simulation.node import Add


class History:
    """`heard(restored)` is called before the log changes."""

    def __init__(self, log: SimLog, clock: SimClock, mark: Callable[[str], None]) -> None:
        self.log, self.clock, self.mark = log, clock, mark
        self.heard: Callable[[bool], None] = lambda _restored: None
        self._copy: MemoryEventLog | None = None

    def offer(self, add: Add) -> None:
        """Offer to take a copy, or to restore the last one."""
        add("back up", "the log", self._take)
        if self._copy is not None:
            add("set back", "the log", lambda: self._put_back(restored=False))
            add("restore", "the log", lambda: self._put_back(restored=True))

    def _take(self) -> str:
        self._copy = self.log.copied()
        return f"at {self.log.end}"

    def _put_back(self, restored: bool) -> str:
        assert self._copy is not None
        lost = self.log.end
        self.heard(restored)
        self.log.set_back(self._copy)
        self._copy = None
        lost -= self.log.end
        if restored:
            at_once(self.log._log.begin_timeline(self.clock.now_us()))
        self.mark("log restored" if restored else "log set back")
        return f"{lost} facts lost"
