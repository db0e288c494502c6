"""What readers and writers may ask of the log. Outcomes are values; only broken transport raises.

Both adapters (memory, Postgres) pass one contract suite (`tests/eventlog/contract.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from shared.events.catalog import Event
from shared.events.envelope import Envelope

# An expectation that accepts any version of the stream.
ANY_VERSION = -1


class LogIdentity(msgspec.Struct, frozen=True):
    """Which log this is, and which timeline of it (a restore begins a new one)."""

    log_id: str
    timeline: int


class Place(msgspec.Struct, frozen=True):
    """A position of one history: `chain` is the chain of the event at `position` (empty at 0, and
    in rows older than chains).
    """

    position: int = 0
    chain: bytes = b""


class Lost(msgspec.Struct, frozen=True):
    """What a reader had read and cannot find on the `timeline` that the log reports: the event at
    `position` with this `chain` (empty if only the position was known), the commit of this id,
    which the log had acknowledged at `position`, or the timeline that the reader `followed`."""

    timeline: int
    followed: int
    position: int
    chain: bytes = b""
    commit_id: str = ""


class Draft(msgspec.Struct, frozen=True):
    """An event to append. `expected` is the version that `stream` must have before this event (0: a
    new stream), or ANY_VERSION. Of several drafts on one stream in a commit only the first carries
    the expectation."""

    stream: str
    event: Event
    expected: int = ANY_VERSION


class Commit(msgspec.Struct, frozen=True):
    """A small set of events on one or more streams, all or nothing. `commit_id` makes any retry
    safe: the log finds a commit that expects versions by its id at these versions, and any other by
    its id alone.

    `role` and `epoch` are the writer's fencing token (epoch 0: the role is not fenced). `time_us`
    is the writer's clock. `seen` is the place of the fold that the commit was decided on: a log
    with another history there answers Conflict on stream `log`. `follows` is the id of an earlier
    commit of the same call: if that commit was not appended by this call, this one is a Conflict on
    its first stream. Versions alone do not show which commit made them.
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
    """The events are at `first`..`last`; `versions` is the new version by stream."""

    first: int
    last: int
    versions: dict[str, int]


class Duplicate(msgspec.Struct, frozen=True, tag=True):
    """The commit id exists already; its events are at `first`..`last`."""

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
    log ends. `epoch` rises with every change of holder."""

    role: str
    holder: str
    epoch: int


class Mark(msgspec.Struct, frozen=True):
    """What the fold of one release (`fingerprint`) promised at a place: the `digest` of everything
    that all releases must compute alike.
    """

    fingerprint: str
    place: Place
    digest: str


class PodNames(msgspec.Struct, frozen=True):
    """The positions at which pods of a name were first observed, or pods were observed on a node,
    ascending, and the position up to which some may be missing: the caller reads the events 1 to
    `unlisted` to find those.
    """

    positions: list[int]
    unlisted: int = 0


class EventLog(Protocol):
    """The log. Positions are 1..n without holes; a reader that sees anything else must stop."""

    async def identity(self) -> LogIdentity:
        """Return the log's id and timeline."""

    async def head(self) -> int:
        """Return the last position, 0 for an empty log."""

    async def begins(self) -> int:
        """Return the first position that can be read; what is before it was pruned."""

    async def size_bytes(self) -> int:
        """Return the size of the log in its store, with indexes."""

    async def begin_timeline(self, now_us: int, lost: Lost | None = None) -> LogIdentity:
        """Begin a timeline after a restore. Consumers of the previous timeline discard their state
        and fold again. Every lease ends and every epoch is raised, so that no earlier writer
        continues. `opening` is the first event, in the same transaction.

        An operator calls this with the owner's login (otherwise LoginTooWeak), or a reader that
        `lost` what it had read. For a reader nothing happens if the log holds that after all (a
        replica that lagged) or if another timeline has begun since."""

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Append each commit in order; one outcome for each. A later commit sees the versions of an
        earlier one.

        Raises CommitInvalid before anything is sent. Raises LogUnavailable if the log did not
        answer in time: then send the same commit ids again; what was appended is answered with
        `Duplicate`."""

    async def read(self, after: int, limit: int = 1000) -> list[Envelope]:
        """Return events at positions after+1.. in order: at most `limit`, and fewer if they are
        large (`MAX_PAGE_BYTES`). Only an empty page is the end."""

    async def read_stream(
        self, stream: str, after_version: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        """Return events of one stream in version order, with the same bounds."""

    async def version_at(self, stream: str, position: int) -> int:
        """Return the version of a stream at a position, 0 if it began later."""

    async def pods_named(self, name: str) -> PodNames:
        """Return where pods of this name (without namespace) were first observed.

        A position may be of another name: the caller reads the event.
        """

    async def pods_on(self, node: str) -> PodNames:
        """Return where pods were observed, held for or nominated to a node by events that are not
        on its streams. A position may be of another node.
        """

    async def versions(self, streams: Sequence[str]) -> dict[str, int]:
        """Return the current version of each stream (0 if it does not exist)."""

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until the head is beyond `after`; return False on timeout."""

    async def acquire(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        """Acquire or renew the role's lease. A new holder raises the epoch. Return None while
        another holder's lease is alive.
        """

    async def release(self, lease: Lease) -> None:
        """Release the lease early; harmless if it was lost."""

    async def members(self, role: str) -> list[Lease]:
        """Return the live leases of roles `<role>/...`, sorted by role. An expired member is fenced
        for good: its epoch is raised, so that its appends are rejected."""

    async def load_checkpoint(self, consumer: str) -> int:
        """Return the last position that `consumer` has completed, 0 for a new consumer."""

    async def save_checkpoint(self, consumer: str, position: int, expected: int) -> bool:
        """Move the checkpoint by compare-and-set; return False if another process moved it."""

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
        """Return the kept marks of a projection on this history, of all releases, newest first."""

    async def save_mark(self, projection: str, mark: Mark) -> None:
        """Keep a mark. The first mark of a release at a place stays; the newest `KEPT_MARKS` places
        of each release are kept.
        """

    async def close(self) -> None:
        """Release connections."""
