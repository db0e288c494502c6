"""The binder's processes: the fold of pending bindings, and the binding and evicting loops while it
believes to lead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from services.binder import core, evicting
from services.binder.evicting import Eviction
from services.binder.evictor import Evictor
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


class OneByOne(Evictor):
    """Sends dry runs one after the other, because no event loop could send several at once."""

    async def _ask_all(self, victims: Sequence[Eviction]) -> list[Any]:
        return [await self._ask(each, dry_run=True) for each in victims]


class Group:
    """A task group for the binder's loops."""

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name

    def create_task(self, work: Any) -> None:
        """Begin the work."""
        self.process.spawn(self.name, work)


class BinderProcess(Process):
    """`lease` is the lease that the binder assumes to have. A paused leader assumes so until the
    log refuses an append.
    """

    def __init__(
        self, name: str, log: SimLog, clock: SimClock, mark: Callable[[str], None]
    ) -> None:
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
        self.evictor = OneByOne(log, kube, cast(Any, self), settings, clock)

    def reset(self) -> None:
        self.state = core.initial()
        self.binder.reset(self.state)
        self.evictor.reset(self.state)

    @property
    def awaits(self) -> int:
        return 0 if self.lease is None else max(self.binder._must_reach, self.evictor._must_reach)

    def evolve(self, envelope: Any, event: Any) -> None:
        core.evolve(self.state, envelope, event)

    def folded(self, folded: Folded) -> None:
        self.binder.folded(self.state, cast(Any, folded))
        self.evictor.folded(self.state, cast(Any, folded))

    def failed(self, fiber: Fiber, error: Exception) -> None:
        if isinstance(error, LeaseLost):
            self.mark("fenced binder")
            self.resign()
        else:
            super().failed(fiber, error)

    def offer(self, add: Add) -> None:
        """Return every action that this process could do next."""
        if self.lease is None:
            if self.live:
                add("lead", f"{self.name} binder", self.lead)
            return
        add("renew", f"{self.name} binder", self.renew)
        if self.position >= self.evictor._must_reach and self._evictions_due():
            add("evict", self.name, self.evict)
        if self.position < self.binder._must_reach:
            return
        if any(work.stage == "reserved" for work in self.state.work.values()) and not self.runs(
            "intend"
        ):
            add("intend", self.name, self.intend)
        if not self.runs("intend") and any(
            work.stage == "intended" and self._due(work.uid) for work in self.state.work.values()
        ):
            add("call", self.name, self.call)

    def _due(self, uid: str) -> bool:
        due = self.binder._due.get(uid)
        return uid not in self.binder._busy and (
            due is None or due.at_s <= self.clock.monotonic_s()
        )

    def _evictions_due(self) -> bool:
        evictions, evictor = self.state.evictions, self.evictor
        asked = [
            (f"rehearse/{uid}", victims) for uid, victims in evicting.rehearsals(evictions).items()
        ]
        asked += [(each.uid, [each]) for each in evictions.values() if each.intended]
        return any(
            key not in evictor._busy and all(map(evictor._is_due, victims))
            for key, victims in asked
        )

    def renew(self) -> str:
        """Renew the lease, or find that it is another's."""
        assert self.lease is not None
        if self.log.renew_now(self.lease, TTL_S):
            return "renewed"
        self.resign()
        return "lost"

    def lead(self) -> str:
        """Try for the lease."""
        self.lease = self.log.acquire_now(ROLE, self.holder, TTL_S)
        self.binder._busy.clear()
        self.evictor._busy.clear()
        return "another leads" if self.lease is None else f"epoch {self.lease.epoch}"

    def resign(self) -> None:
        """Drop every call under way, because another process holds the lease. The calls may still
        arrive.
        """
        self.lease = None
        self.drop(self.fibers)

    def intend(self) -> str:
        """Write intents for reservations."""
        assert self.lease is not None
        self.spawn("intend", self.binder._intend(self.lease))
        return f"at {self.position}"

    def call(self) -> str:
        """Start the calls that are due."""
        assert self.lease is not None
        fibers_before = len(self.fibers)
        self.binder._start_calls(cast(Any, Group(self, "carry out")), self.lease)
        return f"{len(self.fibers) - fibers_before} calls"

    def evict(self) -> str:
        """Rehearse, call and settle the evictions that are due."""
        assert self.lease is not None
        fibers_before = len(self.fibers)
        self.evictor._start(cast(Any, Group(self, "evict")), self.lease)
        return f"{len(self.fibers) - fibers_before} of {len(self.state.evictions)}"
