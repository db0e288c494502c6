"""Facts of the cluster told to the log, a batch at a time: the fold reaches them before anything
else is compared with it, so that one change is told once. Must not know lists, watches, nor what is
a fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.kinds import Observed, address, told_apart_by
from shared.eventlog.port import (
    Commit,
    Conflict,
    Draft,
    Duplicate,
    EventLog,
    Fenced,
    Lease,
    Outcome,
    Place,
)
from shared.events.cluster_events import PodObserved
from shared.events.surroundings_events import SurroundingEvent
from shared.runtime.acknowledged import Acknowledged
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Folded
from shared.telemetry import logs, names
from shared.telemetry.instruments import count
from shared.telemetry.propagation import trace_of

ROLE = "observer"
BATCH_EVENTS = 500
PAUSE_S = 0.5
REACH_TIMEOUT_S = 30.0


class ObservedState(Protocol):
    """What the observer reads of the scheduler's fold."""

    @property
    def folded(self) -> SchedulerState: ...
    @property
    def scheduler_name(self) -> str: ...


class SchedulerFold(Protocol):
    """The projector of the scheduler, as far as the observer needs it."""

    @property
    def state(self) -> ObservedState: ...
    @property
    def place(self) -> Place: ...
    @property
    def position(self) -> int: ...
    async def wait_for(self, position: int, timeout_s: float) -> bool:
        """Wait until the fold reaches this position; False on timeout."""

    async def wait_live(self) -> None:
        """Wait until the fold reaches the end of the log once."""


class Relist(Exception):
    """The log began anew: everything must be told again."""


class EventWriter:
    """Appends under the observer's lease. `generation` counts how often the log became another one."""

    def __init__(self, log: EventLog, projector: SchedulerFold, clock: Clock) -> None:
        self._log = log
        self._projector = projector
        self._clock = clock
        self._acknowledged = Acknowledged()
        self._out = logs.get("observer")
        self.generation = 0

    def reset(self) -> None:
        """Another log, timeline or history."""
        self.generation += 1
        self._acknowledged.clear()

    def folded(self, folded: Folded) -> None:
        """The fold went on. Raises Refold where what was told here was lost with the history that
        it stood in.
        """
        self._acknowledged.check(folded)

    def require(self, generation: int) -> None:
        """Raises Relist where the log is another one than it was."""
        if generation != self.generation:
            raise Relist

    async def tell(self, events: Sequence[Observed], lease: Lease) -> None:
        """Returns once the fold has all of them. Raises Relist where the log begins anew, LeaseLost
        where another one leads.
        """
        seen, generation = self._projector.place, self.generation
        for start in range(0, len(events), BATCH_EVENTS):
            last = await self._append(events[start : start + BATCH_EVENTS], lease, seen)
            while not await self._projector.wait_for(last, REACH_TIMEOUT_S):
                self.require(generation)
                self._out.warning(names.FOLD_BEHIND, position=last)
        self.require(generation)

    async def _append(self, events: Sequence[Observed], lease: Lease, seen: Place) -> int:
        """The position of the last of them."""
        commits = [self._commit(event, lease, seen) for event in events]
        outcomes = await append_until_answered(self._log, self._clock, self._out, commits)
        if repeats := again(commits, outcomes, seen):
            commits, outcomes = (
                repeats,
                await append_until_answered(self._log, self._clock, self._out, repeats),
            )
        if any(isinstance(outcome, Fenced) for outcome in outcomes):
            raise LeaseLost(f"{ROLE}: a newer epoch than {lease.epoch} leads")
        if any(isinstance(outcome, Conflict) for outcome in outcomes):
            # No version is expected: it is the history that is another, and the fold has yet to see
            # it.
            await self._clock.sleep(PAUSE_S)
            raise Relist
        count(names.OBSERVED, len(commits))
        for commit, outcome in zip(commits, outcomes, strict=True):
            self._acknowledged.keep(commit, outcome, self._projector.position)
        return max(getattr(outcome, "last", 0) for outcome in outcomes)

    def _commit(self, event: Observed, lease: Lease, seen: Place) -> Commit:
        stream, uid, about = address(event)
        suffix = f"/{event.node}" if isinstance(event, PodObserved) else ""
        if isinstance(event, SurroundingEvent):
            suffix = (
                f"@{seen.position}"  # what was ended by false lists may be told again as it was
            )
        return Commit(
            commit_id=f"kube/{uid}/{type(event).__name__}/{told_apart_by(event)}{suffix}",
            role=ROLE,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(stream, event),),
            correlation=about,
            trace=trace_of(names.SPAN_OBSERVE, "", pod=uid),
            seen=seen,
        )


def again(commits: Sequence[Commit], outcomes: Sequence[Outcome], seen: Place) -> list[Commit]:
    """The commits as they are to be sent once more, empty where nothing recurs. `seen` is where the
    fold was when these were found to be news."""
    if not any(_recurs(outcome, seen) for outcome in outcomes):
        return []
    return [
        _once_more(each, seen) if _recurs(one, seen) else each
        for each, one in zip(commits, outcomes, strict=True)
    ]


def _recurs(outcome: Outcome, seen: Place) -> bool:
    return isinstance(outcome, Duplicate) and outcome.last <= seen.position


def _once_more(commit: Commit, seen: Place) -> Commit:
    return msgspec.structs.replace(commit, commit_id=f"{commit.commit_id}@{seen.position}")
