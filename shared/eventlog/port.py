"""What every reader and writer may ask of the log. Outcomes are values; only broken transport
raises.

The two adapters (memory, postgres) pass one contract suite (`tests/eventlog/contract.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from shared.events.catalog import Event
from shared.events.envelope import Envelope

ANY_VERSION = -1
"""Expectation that accepts whatever version the stream has."""


class LogIdentity(msgspec.Struct, frozen=True):
    """Which log this is, and which timeline of it (a restore begins a new one)."""

    log_id: str
    timeline: int


class Place(msgspec.Struct, frozen=True):
    """A position of one history: `chain` is that of the fact at `position` (empty at 0, and in rows
    older than chains).
    """

    position: int = 0
    chain: bytes = b""


class Lost(msgspec.Struct, frozen=True):
    """What a reader had and finds no more on the `timeline` that the log says it is on: the fact at
    `position` with this `chain` (empty where only the position was known), the commit of this id,
    which the log had said stands at `position`, or the timeline that it had `followed`."""

    timeline: int
    followed: int
    position: int
    chain: bytes = b""
    commit_id: str = ""


class Draft(msgspec.Struct, frozen=True):
    """One fact to be appended. `expected` is the version that `stream` must have before this fact
    (0 = the stream is new), or ANY_VERSION. Several drafts on one stream in one commit: the first
    carries the expectation, the others' is not looked at."""

    stream: str
    event: Event
    expected: int = ANY_VERSION


class Commit(msgspec.Struct, frozen=True):
    """A small set of facts on one or more streams, all or nothing. `commit_id` makes a retry safe
    for ever.

    `role` and `epoch` are the writer's fence (epoch 0: the role is not fenced). `time_us` is the
    writer's clock. `seen` is where the fold stood that the commit was decided on: a log with
    another history there answers Conflict on stream `log`. `follows` is the id of an earlier commit
    of the same call: this one is appended only if that one was, by this call; else it is a Conflict
    on its first stream. Versions do not tell whose fact made them.
    """

    commit_id: str
    role: str
    epoch: int
    time_us: int
    drafts: tuple[Draft, ...]
    correlation: str = ""
    causation: int = 0
    trace: str = ""
    seen: Place | None = None
    follows: str = ""


class Appended(msgspec.Struct, frozen=True, tag=True):
    """The facts stand at `first`..`last`; `versions` is the new version by stream."""

    first: int
    last: int
    versions: dict[str, int]


class Duplicate(msgspec.Struct, frozen=True, tag=True):
    """The commit id was seen before; its facts stand at `first`..`last`."""

    first: int
    last: int


class Conflict(msgspec.Struct, frozen=True, tag=True):
    """`stream` has version `actual`, not `expected`; nothing of the commit was appended."""

    stream: str
    expected: int
    actual: int


class Fenced(msgspec.Struct, frozen=True, tag=True):
    """A newer epoch holds the role; the writer must stop, never retry."""

    role: str
    epoch: int
    current: int


Outcome = Appended | Duplicate | Conflict | Fenced


class Lease(msgspec.Struct, frozen=True):
    """A role held by `holder` until `ttl_s` after its last renewal, or until its session with the
    log ends; `epoch` rises with every change of holder."""

    role: str
    holder: str
    epoch: int


class Mark(msgspec.Struct, frozen=True):
    """What the fold of one code (`fingerprint`) promised at a place: the `digest` of what no other
    code may see otherwise.
    """

    fingerprint: str
    place: Place
    digest: str


class EventLog(Protocol):
    """The log. Positions are 1..n without holes; a reader that sees anything else must stop."""

    async def identity(self) -> LogIdentity:
        """The log's id and timeline."""

    async def head(self) -> int:
        """The last position, 0 for an empty log."""

    async def size_bytes(self) -> int:
        """What the log takes where it is kept, with indexes and all."""

    async def begin_timeline(self, now_us: int, lost: Lost | None = None) -> LogIdentity:
        """After a restore from a backup: consumers of the timeline before discard their state and
        refold, every lease ends and every epoch is raised, so that no writer of the timeline before
        goes on; `opening` comes first on it, in one step with it.

        An operator says so (the owner's login; else LoginTooWeak), or a reader that `lost` what it
        had. Then nothing is done where the log holds that after all (a replica that lagged for a
        moment), or where another timeline has begun since."""

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Append each commit in order; one outcome each. A later commit sees the versions that an
        earlier one made.

        Raises CommitInvalid before anything is sent, LogUnavailable when the log did not answer in
        time: then the same commit ids may be sent again, and what had been appended is answered
        `Duplicate`."""

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        """Facts at positions after+1.., in order, at most `limit`, and fewer where they are large
        (`MAX_PAGE_BYTES`): only an empty page is the end."""

    async def read_stream(
        self, stream: str, after_version: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        """Facts of one stream in version order, bounded alike."""

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        """The current version of each stream (0 when it does not exist)."""

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until the head is beyond `after`; False on timeout."""

    async def acquire(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        """Take or renew the role's lease. A new holder raises the epoch; None while another
        holder's lease is alive.
        """

    async def release(self, lease: Lease) -> None:
        """Give the lease up early; harmless when it was lost."""

    async def members(self, role: str) -> list[Lease]:
        """The live leases of roles `<role>/...`, by role. Whoever is found gone is counted out for
        good: its epoch is raised, so that it writes nothing more."""

    async def load_checkpoint(self, consumer: str) -> int:
        """The last position whose effect `consumer` has completed, 0 when it is new."""

    async def save_checkpoint(self, consumer: str, position: int, expected: int) -> bool:
        """Move the checkpoint by compare-and-set; False when somebody else moved it."""

    async def load_snapshot(
        self, projection: str, fingerprint: str, until: int | None = None
    ) -> tuple[Place, bytes] | None:
        """Return the newest snapshot at or before position `until` (None: the head), or None.

        It was made by the same fold of the same history.
        """

    async def save_snapshot(
        self, projection: str, fingerprint: str, place: Place, state: bytes
    ) -> None:
        """Keep a snapshot of the state at `place`: a disposable cache.

        Older ones are deleted as `shared.eventlog.snapshots.superseded` says.
        """

    async def marks(self, projection: str) -> list[Mark]:
        """The kept marks of a projection on this history, of all codes, the newest place first."""

    async def save_mark(self, projection: str, mark: Mark) -> None:
        """Keep a mark: the first of its code at its place stays, the newest `KEPT_MARKS` places of
        each code are kept.
        """

    async def close(self) -> None:
        """Release connections."""
