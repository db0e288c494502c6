"""Appends the observer's events in batches. The fold reaches them before the next comparison, so
that one change makes one event. Must not know lists, watches, nor which changes are events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.kinds import Observed, address, distinguished_by
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
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.surroundings_events import SurroundingEvent
from shared.kubelet.versions import is_recorded, support
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
    """The part of the scheduler's core that the observer reads."""

    @property
    def folded(self) -> SchedulerState: ...
    @property
    def scheduler_name(self) -> str: ...


class SchedulerFold(Protocol):
    """The part of the scheduler's projector that the observer needs."""

    @property
    def state(self) -> ObservedState: ...
    @property
    def place(self) -> Place: ...
    @property
    def position(self) -> int: ...
    async def wait_for(self, position: int, timeout_s: float) -> bool:
        """Wait until the fold reaches this position; False on timeout."""

    async def wait_live(self) -> None:
        """Wait until the fold has reached the end of the log once."""


class Relist(Exception):
    """The log or the cluster was replaced or set back: list everything again."""


class EventWriter:
    """Appends under the observer's lease. `generation` counts how often the log was replaced."""

    def __init__(self, log: EventLog, projector: SchedulerFold, clock: Clock) -> None:
        self._log = log
        self._projector = projector
        self._clock = clock
        self._acknowledged = Acknowledged()
        self._out = logs.get("observer")
        self._named_versions: set[str] = set()
        self.generation = 0

    def reset(self) -> None:
        """Note another log, timeline or history."""
        self.generation += 1
        self._acknowledged.clear()

    def folded(self, folded: Folded) -> None:
        """Note the fold's progress. Raises Refold if events appended here were lost with their
        history.
        """
        self._acknowledged.check(folded)

    def require(self, generation: int) -> None:
        """Raise Relist if the log was replaced since this generation."""
        if generation != self.generation:
            raise Relist

    async def append(self, events: Sequence[Observed], lease: Lease) -> None:
        """Append, and return once the fold has all of them. Raises Relist if the log is replaced,
        LeaseLost if another process leads.
        """
        seen, generation = self._projector.place, self.generation
        self._name_versions(events)
        for start in range(0, len(events), BATCH_EVENTS):
            last = await self._append(events[start : start + BATCH_EVENTS], lease, seen)
            while not await self._projector.wait_for(last, REACH_TIMEOUT_S):
                self.require(generation)
                self._out.warning(names.FOLD_BEHIND, position=last)
        self.require(generation)

    async def append_whole(self, commit: Commit) -> bool:
        """Append one commit at the versions that it expects, and return once the fold has it.
        Return False if another event came first. Raises as `append`."""
        generation = self.generation
        (outcome,) = await append_until_answered(self._log, self._clock, self._out, [commit])
        if isinstance(outcome, Fenced):
            raise LeaseLost(f"{ROLE}: a newer epoch than {commit.epoch} leads")
        if isinstance(outcome, Conflict):
            return False
        self._acknowledged.keep(commit, outcome, self._projector.position)
        while not await self._projector.wait_for(outcome.last, REACH_TIMEOUT_S):
            self.require(generation)
            self._out.warning(names.FOLD_BEHIND, position=outcome.last)
        self.require(generation)
        return True

    def _name_versions(self, events: Sequence[Observed]) -> None:
        """Log each kubelet version of which no decisions were recorded."""
        for event in events:
            if not isinstance(event, NodeObserved):
                continue
            version = event.kubelet_version
            if version in self._named_versions or is_recorded(version):
                continue
            self._named_versions.add(version)
            self._out.info(
                names.KUBELET_NOT_RECORDED,
                node=event.name,
                version=version or "unknown",
                rules=support(version),
            )

    async def _append(self, events: Sequence[Observed], lease: Lease, seen: Place) -> int:
        """Append one batch; returns the position of its last event."""
        commits = [self._commit(event, lease, seen) for event in events]
        outcomes = await append_until_answered(self._log, self._clock, self._out, commits)
        if repeats := recurring(commits, outcomes, seen):
            commits = repeats
            outcomes = await append_until_answered(self._log, self._clock, self._out, commits)
        if any(isinstance(outcome, Fenced) for outcome in outcomes):
            raise LeaseLost(f"{ROLE}: a newer epoch than {lease.epoch} leads")
        if any(isinstance(outcome, Conflict) for outcome in outcomes):
            # No version was expected, so the history is another one, and the fold has yet to see
            # it.
            await self._clock.sleep(PAUSE_S)
            raise Relist
        count(names.OBSERVED, len(commits))
        for commit, outcome in zip(commits, outcomes, strict=True):
            self._acknowledged.keep(commit, outcome, self._projector.position)
        return max(getattr(outcome, "last", 0) for outcome in outcomes)

    def _commit(self, event: Observed, lease: Lease, seen: Place) -> Commit:
        stream, uid, _ = address(event)
        suffix = f"/{event.node}" if isinstance(event, PodObserved) else ""
        if isinstance(event, SurroundingEvent):
            # An object that false lists ended may be observed again unchanged.
            suffix = f"@{seen.position}"
        return Commit(
            commit_id=f"kube/{uid}/{type(event).__name__}/{distinguished_by(event)}{suffix}",
            role=ROLE,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(stream, event),),
            trace=trace_of(names.SPAN_OBSERVE, "", pod=uid),
            seen=seen,
        )


def recurring(commits: Sequence[Commit], outcomes: Sequence[Outcome], seen: Place) -> list[Commit]:
    """Return the commits to send once more because an event recurs unchanged; empty if there is
    none.

    A commit id names the object and its version, so that two observers of one change append one
    event. But an object that false lists ended, or that a restored cluster has again, recurs at the
    same version, and the log takes it for a duplicate. It recurs if the log's event is not newer
    than `seen`: the fold had that event, and the comparison still found a change.
    """
    if not any(_recurs(outcome, seen) for outcome in outcomes):
        return []
    return [
        msgspec.structs.replace(commit, commit_id=f"{commit.commit_id}@{seen.position}")
        if _recurs(outcome, seen)
        else commit
        for commit, outcome in zip(commits, outcomes, strict=True)
    ]


def _recurs(outcome: Outcome, seen: Place) -> bool:
    return isinstance(outcome, Duplicate) and outcome.last <= seen.position
