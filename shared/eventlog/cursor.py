"""The position of one reader in the log, as a pure state machine: replaying, catching up, live.

Theory of operation. The reader asks `next_step` what to do, does it, and passes the result to the
cursor: `opened` (the log's identity and head), `received` (a page) or `hinted` (a position may
exist). The cursor reads no clock and does no I/O.

1. Events are delivered once, in order, without a hole. Only a page is trusted, and it must continue
   at `position + 1`. Hints may be lost, repeated, early or false.
2. Another log, another timeline, a head behind the position, or another chain at the position
   discards everything (`Reset`).
3. A hole is an error that stops the reader.

A page begins with the event at the position itself, which is read again. Its chain identifies the
history, even if a restored log has grown past the reader in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from shared.eventlog.errors import LogBroken
from shared.eventlog.port import LogIdentity, Lost
from shared.events.envelope import Envelope


class Phase(Enum):
    """Progress: behind the head at start; past that head; at the end of the log."""

    REPLAYING = "replaying"
    CATCHING_UP = "catching up"
    LIVE = "live"


class Read(msgspec.Struct, frozen=True):
    """Step: read the page after this position, which is the reader's position minus one (0 at the
    beginning).
    """

    after: int


class Wait(msgspec.Struct, frozen=True):
    """Step: no event is known beyond this position; wait for a hint or poll."""

    after: int


class Open(msgspec.Struct, frozen=True):
    """Step: ask for the log's identity and head first."""


class Reset(msgspec.Struct, frozen=True):
    """The folded state belongs to another history: discard it and read again from 1. `lost` is what
    the reader had read and the log no longer holds; None if the log itself says that it is another
    one."""

    cause: str
    lost: Lost | None = None


Step = Open | Read | Wait


class Cursor(msgspec.Struct, frozen=True):
    """The reader's place. `chain` is the chain of the event at `position`, None until it is read.
    `known` is the highest position that is believed to exist. `promised` is the highest position
    that an append returned. `replay_to` is the head at start."""

    position: int = 0
    chain: bytes | None = None
    identity: LogIdentity | None = None
    known: int = 0
    promised: int = 0
    replay_to: int = 0
    opened_once: bool = False
    at_end: bool = False

    @property
    def phase(self) -> Phase:
        if not self.opened_once or self.position < self.replay_to:
            return Phase.REPLAYING
        return Phase.LIVE if self.at_end else Phase.CATCHING_UP


def next_step(cursor: Cursor) -> Step:
    if not cursor.opened_once:
        return Open()
    if cursor.known > cursor.position or not cursor.at_end:
        return reading(cursor)
    return Wait(cursor.position)


def reading(cursor: Cursor) -> Read:
    """Return the read that continues here and verifies the reader's own position."""
    return Read(max(cursor.position - 1, 0))


def opened(cursor: Cursor, identity: LogIdentity, head: int) -> tuple[Cursor, Reset | None]:
    """Apply the log's identity and head, which are read at start, after a reconnect and at every
    poll.
    """
    cause = _reset_cause(cursor, identity, head)
    if cause:
        lost = _lost(cursor, identity, max(cursor.position, cursor.promised))
        return Cursor(identity=identity, known=head, replay_to=head, opened_once=True), Reset(
            cause, lost
        )
    replay_to = cursor.replay_to if cursor.opened_once else head
    at_end = cursor.at_end and head <= cursor.position
    known_end = max(cursor.known, head)
    fields = {
        "identity": identity,
        "known": known_end,
        "replay_to": replay_to,
        "opened_once": True,
        "at_end": at_end,
    }
    return msgspec.structs.replace(cursor, **fields), None


def _reset_cause(cursor: Cursor, identity: LogIdentity, head: int) -> str:
    previous = cursor.identity
    if previous is not None and previous.log_id != identity.log_id:
        return "other_log"
    if previous is not None and previous.timeline != identity.timeline:
        return "other_timeline"
    return "head_behind" if head < max(cursor.position, cursor.promised) else ""


def _lost(cursor: Cursor, identity: LogIdentity | None, position: int) -> Lost | None:
    """Return what the reader had read, with its chain if it was read and not only promised. Return
    None for another log or a newer timeline: their identity already says so."""
    previous = cursor.identity
    if (
        previous is None
        or identity is None
        or identity.log_id != previous.log_id
        or identity.timeline > previous.timeline
    ):
        return None
    chain = cursor.chain if position == cursor.position else None
    return Lost(identity.timeline, previous.timeline, position, chain or b"")


def hinted(cursor: Cursor, position: int) -> Cursor:
    """Note that `position` may exist. A false hint costs at most one read."""
    if position <= cursor.known:
        return cursor
    return msgspec.structs.replace(cursor, known=position)


def promised(cursor: Cursor, position: int) -> Cursor:
    """Note that an append returned `position`: a head behind it belongs to another history."""
    return hinted(
        msgspec.structs.replace(cursor, promised=max(cursor.promised, position)), position
    )


def received(cursor: Cursor, page: Sequence[Envelope]) -> tuple[Cursor, list[Envelope] | Reset]:
    """Return the new events of a page in order, or Reset if the page belongs to another history.
    Raises LogBroken at a hole or disorder.

    A page without new events means that the log ends at the position, whatever hints said.
    """
    cause = _stranger(cursor, page)
    if cause:
        return Cursor(), Reset(cause, _lost(cursor, cursor.identity, cursor.position))
    skipped = next(
        (count for count, envelope in enumerate(page) if envelope.position > cursor.position),
        len(page),
    )
    fresh = list(page[skipped:])
    for position, envelope in enumerate(fresh, start=cursor.position):
        if envelope.position != position + 1:
            raise LogBroken(
                f"after position {position} the log returned {envelope.position}: positions must "
                "have no hole. Stop, keep the database as it is, and run: topolog replay verify"
            )
    position, chain = cursor.position + len(fresh), page[-1].chain if page else cursor.chain
    at_end = not fresh
    known_end = position if at_end else max(cursor.known, position)
    moved = msgspec.structs.replace(
        cursor, position=position, chain=chain, known=known_end, at_end=at_end
    )
    # A page that reaches the last known position ends the catch-up without one more empty read.
    return (
        msgspec.structs.replace(moved, at_end=True) if position >= moved.known else moved
    ), fresh


def _stranger(cursor: Cursor, page: Sequence[Envelope]) -> str:
    """Return why the page cannot continue the reader's history, "" if it can."""
    if cursor.position and not page:
        return "head_behind"
    current = (
        next((envelope for envelope in page if envelope.position == cursor.position), None)
        if cursor.chain
        else None
    )
    return "" if current is None or current.chain == cursor.chain else "other_history"
