"""The in-memory implementation of the log, for tests and for simulations in one process.

It gives the same answers as Postgres and is simple on purpose: tests compare the two operation by
operation. It keeps nothing after close.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from shared.eventlog.chain import BEGINNING, linked
from shared.eventlog.limits import KEPT_MARKS, MAX_PAGE, check_commit, check_payload
from shared.eventlog.opening import opening
from shared.eventlog.pages import page_of
from shared.eventlog.port import (
    ANY_VERSION,
    Appended,
    Commit,
    Conflict,
    Draft,
    Duplicate,
    Fenced,
    Lease,
    LogIdentity,
    Lost,
    Mark,
    Outcome,
    Place,
    PodNames,
)
from shared.eventlog.snapshots import is_checkpoint, superseded
from shared.events import streams
from shared.events.catalog import CATALOG
from shared.events.codec import encode_on, type_of
from shared.events.envelope import Envelope


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _expected(commit: Commit) -> dict[str, int]:
    """Return the version that the commit expects of each stream, if it expects one."""
    firsts = {draft.stream: draft.expected for draft in reversed(commit.drafts)}
    return {stream: version for stream, version in firsts.items() if version != ANY_VERSION}


class MemoryEventLog:
    """An EventLog in lists and dicts. `now_s` is the clock of the leases (default: the loop's)."""

    def __init__(self, log_id: str = "", now_s: Callable[[], float] = _loop_time) -> None:
        self._identity = LogIdentity(log_id or str(uuid.uuid4()), 1)
        self._now_s = now_s
        self._events: list[Envelope] = []
        self._heads: dict[str, int] = defaultdict(int)
        self._seen: dict[str, tuple[int, int]] = {}
        self._epochs: dict[str, int] = {}
        self._leases: dict[str, tuple[Lease, float, float]] = {}
        self._checkpoints: dict[str, int] = {}
        self._snapshots: dict[tuple[str, str], list[tuple[Place, bytes]]] = {}
        self._marks: dict[str, list[Mark]] = {}
        self._grown = asyncio.Condition()

    async def identity(self) -> LogIdentity:
        return self._identity

    async def begin_timeline(self, now_us: int, lost: Lost | None = None) -> LogIdentity:
        if lost is not None and (lost.timeline != self._identity.timeline or self._has(lost)):
            return self._identity
        highest = max(self._identity.timeline, lost.followed if lost is not None else 0)
        self._identity = LogIdentity(self._identity.log_id, highest + 1)
        self._epochs = {role: epoch + 1 for role, epoch in self._epochs.items()}
        self._leases = {
            role: (Lease(role, "", lease.epoch), 0.0, 0.0)
            for role, (lease, _, _) in self._leases.items()
        }
        await self.append([opening(self._identity, now_us, lost)])
        return self._identity

    def _has(self, lost: Lost) -> bool:
        if lost.position > len(self._events) or lost.followed > self._identity.timeline:
            return False
        is_unseen = lost.commit_id and lost.commit_id not in self._seen
        if is_unseen and self._events[lost.position - 1].commit_id != lost.commit_id:
            return False
        return not lost.chain or self._events[lost.position - 1].chain == lost.chain

    async def head(self) -> int:
        return len(self._events)

    async def begins(self) -> int:
        return 1

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        for commit in commits:
            check_commit(commit)
            for draft in commit.drafts:
                check_payload(commit, draft.stream, encode_on(draft.stream, draft.event))
        appended: dict[str, bool] = {}
        outcomes: list[Outcome] = []
        for commit in commits:
            outcomes.append(
                self._append_one(commit, not commit.follows or appended.get(commit.follows, False))
            )
            appended[commit.commit_id] = isinstance(outcomes[-1], Appended)
        async with self._grown:
            self._grown.notify_all()
        return outcomes

    def _append_one(self, commit: Commit, may_follow: bool) -> Outcome:
        refusal = self._refusal(commit, may_follow)
        if refusal is not None:
            return refusal
        first = len(self._events) + 1
        versions = {draft.stream: self._add(commit, draft) for draft in commit.drafts}
        if not _expected(commit):
            self._seen[commit.commit_id] = (first, len(self._events))
        if commit.epoch > 0:
            self._epochs[commit.role] = commit.epoch
        return Appended(first, len(self._events), versions)

    def _refusal(self, commit: Commit, may_follow: bool) -> Outcome | None:
        earlier = self._earlier(commit)
        if earlier is not None:
            return earlier
        current = self._epochs.get(commit.role, 0)
        if 0 < commit.epoch < current:
            return Fenced(commit.role, commit.epoch, current)
        if commit.seen is not None and not self._holds(commit.seen):
            return Conflict(streams.LOG, commit.seen.position, len(self._events))
        if not may_follow:
            first = commit.drafts[0]
            return Conflict(first.stream, first.expected, self._heads.get(first.stream, 0))
        checked: set[str] = set()
        for draft in commit.drafts:
            actual = self._heads.get(draft.stream, 0)
            if draft.stream not in checked and draft.expected not in (ANY_VERSION, actual):
                return Conflict(draft.stream, draft.expected, actual)
            checked.add(draft.stream)
        return None

    def _earlier(self, commit: Commit) -> Duplicate | None:
        """Return the positions of the same commit, if it was appended before."""
        expected = _expected(commit)
        for stream, version in expected.items():
            made = (stream, version + 1, commit.commit_id)
            if self._heads.get(stream, 0) > version and any(
                (event.stream, event.version, event.commit_id) == made for event in self._events
            ):
                same = [e.position for e in self._events if e.commit_id == commit.commit_id]
                return Duplicate(same[0], same[-1])
        seen = None if expected else self._seen.get(commit.commit_id)
        return Duplicate(*seen) if seen is not None else None

    def _holds(self, place: Place) -> bool:
        if not 0 < place.position <= len(self._events):
            return place.position == 0
        return self._events[place.position - 1].chain == place.chain

    def _add(self, commit: Commit, draft: Draft) -> int:
        self._heads[draft.stream] += 1
        name = type_of(draft.event)
        envelope = Envelope(
            position=len(self._events) + 1,
            stream=draft.stream,
            version=self._heads[draft.stream],
            type=name,
            schema=CATALOG[name].schema,
            payload=encode_on(draft.stream, draft.event),
            time_us=commit.time_us,
            role=commit.role,
            epoch=commit.epoch,
            commit_id=commit.commit_id,
            correlation=commit.correlation,
            causation=commit.causation,
            trace=commit.trace,
        )
        previous = self._events[-1].chain if self._events else BEGINNING
        self._events.append(msgspec.structs.replace(envelope, chain=linked(previous, envelope)))
        return envelope.version

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        return page_of(self._events[max(after, 0) : max(after, 0) + min(limit, MAX_PAGE)], MAX_PAGE)

    async def read_stream(
        self, stream: str, after_version: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        events = (
            event
            for event in self._events
            if event.stream == stream and event.version > after_version
        )
        return page_of(events, min(limit, MAX_PAGE))

    async def version_at(self, stream: str, position: int) -> int:
        return sum(event.stream == stream for event in self._events[:position])

    async def pods_named(self, name: str) -> PodNames:
        return PodNames([], len(self._events))

    async def pods_on(self, node: str) -> PodNames:
        return PodNames([], len(self._events))

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        return {stream: self._heads.get(stream, 0) for stream in streams}

    async def wait(self, after: int, timeout_s: float) -> bool:
        async with self._grown:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._grown.wait_for(lambda: len(self._events) > after)
            except TimeoutError:
                return False
        return True

    async def acquire(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        now_s = self._now_s()
        lease, until_s, granted_s = self._leases.get(role, (Lease(role, "", 0), 0.0, ttl_s))
        until_s = min(until_s, now_s + granted_s)
        if lease.holder == holder and lease.epoch == self._epochs.get(role):
            self._leases[role] = (lease, now_s + ttl_s, ttl_s)
            return lease
        if until_s > now_s and lease.holder != holder:
            self._leases[role] = (lease, until_s, granted_s)
            return None
        raised = max(lease.epoch, self._epochs.get(role, 0)) + 1
        gained = Lease(role, holder, raised)
        self._epochs[role] = raised
        self._leases[role] = (gained, now_s + ttl_s, ttl_s)
        return gained

    async def release(self, lease: Lease) -> None:
        if self._leases.get(lease.role, (None, 0.0, 0.0))[0] == lease:
            self._leases[lease.role] = (Lease(lease.role, "", lease.epoch), 0.0, 0.0)

    async def size_bytes(self) -> int:
        return sum(len(event.payload) for event in self._events)

    async def members(self, role: str) -> list[Lease]:
        roles = [
            role_name for role_name in sorted(self._leases) if role_name.startswith(f"{role}/")
        ]
        return [lease for role_name in roles if (lease := self._alive(role_name))]

    def _alive(self, role: str) -> Lease | None:
        lease, until_s, granted_s = self._leases[role]
        if lease.holder and until_s > self._now_s():
            self._leases[role] = (lease, min(until_s, self._now_s() + granted_s), granted_s)
            return lease
        if lease.holder:
            self._leases[role] = (Lease(role, "", lease.epoch), 0.0, 0.0)
            self._epochs[role] += 1
        return None

    async def load_checkpoint(self, consumer: str) -> int:
        return self._checkpoints.get(consumer, 0)

    async def save_checkpoint(self, consumer: str, position: int, expected: int) -> bool:
        if self._checkpoints.get(consumer, 0) != expected:
            return False
        self._checkpoints[consumer] = position
        return True

    async def load_snapshot(
        self, projection: str, fingerprint: str, until: int | None = None
    ) -> tuple[Place, bytes] | None:
        for place, state in self._kept_snapshots(projection, fingerprint):
            if place.position and (until is None or place.position <= until):
                return place, state
        return None

    async def save_snapshot(
        self, projection: str, fingerprint: str, place: Place, state: bytes
    ) -> None:
        kept = self._kept_snapshots(projection, fingerprint)
        kept = [snapshot for snapshot in kept if snapshot[0].position != place.position]
        kept = sorted([*kept, (place, state)], key=lambda kept: -kept[0].position)
        dense_after = 0 if is_checkpoint(projection) else None
        deleted = superseded([(place.position, len(state)) for place, state in kept], dense_after)
        self._snapshots[projection, fingerprint] = [
            snapshot for snapshot in kept if snapshot[0].position not in deleted
        ]

    def _kept_snapshots(self, projection: str, fingerprint: str) -> list[tuple[Place, bytes]]:
        kept = self._snapshots.get((projection, fingerprint), [])
        return [snapshot for snapshot in kept if self._holds(snapshot[0])]

    async def marks(self, projection: str) -> list[Mark]:
        kept = [mark for mark in self._marks.get(projection, ()) if self._holds(mark.place)]
        return sorted(kept, key=lambda mark: -mark.place.position)

    async def save_mark(self, projection: str, mark: Mark) -> None:
        kept = await self.marks(projection)
        if any(
            (existing.fingerprint, existing.place) == (mark.fingerprint, mark.place)
            for existing in kept
        ):
            return
        same = sorted(
            (
                existing.place.position
                for existing in [*kept, mark]
                if existing.fingerprint == mark.fingerprint
            ),
            reverse=True,
        )
        oldest = same[:KEPT_MARKS][-1]
        self._marks[projection] = [
            existing
            for existing in [*kept, mark]
            if existing.fingerprint != mark.fingerprint or existing.place.position >= oldest
        ]

    async def close(self) -> None:
        self._snapshots.clear()
        self._marks.clear()
