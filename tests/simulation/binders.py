"""The binder's processes: the fold of what is to be bound, and the binding loop while it believes to lead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from services.binder import core
from services.binder.handlers import ROLE, Binder
from services.binder.settings import BinderSettings
from shared.eventlog.port import Lease
from shared.runtime.leadership import LeaseLost
from tests.simulation.cluster import SimKube
from tests.simulation.fibers import Fiber
from tests.simulation.log import SimClock, SimLog
from tests.simulation.node import Add
from tests.simulation.process import Folded, Process

TTL_S = 5.0


class BinderProcess(Process):
    """`lease` is what it believes to hold; a paused leader goes on believing until the log says no."""

    def __init__(self, name: str, log: SimLog, clock: SimClock, mark: Callable[[str], None]) -> None:
        super().__init__(name, log, mark)
        self.clock = clock
        self.lease: Lease | None = None
        self.begin()

    def begin(self) -> None:
        log, clock, kube = cast(Any, self.log), cast(Any, self.clock), cast(Any, SimKube())
        self.state = core.initial()
        self.lease = None
        settings = BinderSettings(concurrency=3, resend_after_s=0.2, resend_at_most_every_s=1.0)
        self.binder = Binder(log, kube, cast(Any, self), settings, clock)

    def evolve(self, envelope: Any, fact: Any) -> None:
        core.evolve(self.state, envelope, fact)

    def folded(self, folded: Folded) -> None:
        self.binder.folded(self.state, cast(Any, folded))

    def failed(self, fiber: Fiber, error: Exception) -> None:
        if isinstance(error, LeaseLost):
            self.mark("fenced binder")
            self.resign()
        else:
            super().failed(fiber, error)

    def offer(self, add: Add) -> None:
        """Everything that this process could do next."""
        if self.lease is None:
            if self.live:
                add("lead", f"{self.name} binder", self.lead)
            return
        if self.position < self.binder._must_reach:
            return
        if any(work.stage == "reserved" for work in self.state.work.values()) and not self.runs("intend"):
            add("intend", self.name, self.intend)
        if not self.runs("intend") and any(work.stage == "intended" and self._due(work.uid) for work in self.state.work.values()):
            add("call", self.name, self.call)

    def _due(self, uid: str) -> bool:
        due = self.binder._due.get(uid)
        return uid not in self.binder._busy and (due is None or due.at_s <= self.clock.monotonic_s())

    def lead(self) -> str:
        """Try for the lease."""
        self.lease = self.log.acquire_now(ROLE, self.holder, TTL_S)
        self.binder._busy.clear()
        return "another leads" if self.lease is None else f"epoch {self.lease.epoch}"

    def resign(self) -> None:
        """The lease is another's: every call under way is dropped, which does not call it back."""
        self.lease = None
        self.drop(self.fibers)

    def intend(self) -> str:
        """Intents for what is reserved."""
        assert self.lease is not None
        self.spawn("intend", self.binder._intend(self.lease))
        return f"at {self.position}"

    def call(self) -> str:
        """Start the calls that are due."""
        assert self.lease is not None
        before = len(self.fibers)
        self.binder._start_calls(cast(Any, self), self.lease)
        return f"{len(self.fibers) - before} calls"

    def create_task(self, work: Any) -> None:
        """A task group, to the binding loop."""
        self.spawn("carry out", work)
