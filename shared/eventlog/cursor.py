"""The position of one reader in the log, as a pure machine: replaying -> catching up -> live.

Theory of operation. The reader asks `next_step` what to do, does it, and tells the cursor what came
of it: `opened` (the log's identity and head), `received` (a page), `heard` (somebody says that a
position exists). Hints may be lost, repeated, early or false; nothing is believed but a page, and a
page must continue at `position + 1`. The cursor knows no clock and no I/O. Rules: (1) facts are
delivered once each, in order, without a hole; (2) another log, another timeline, a head behind the
position, or another chain at the position discards everything (`Reset`); (3) a hole is an error
that stops the reader, never a guess. A page begins with the fact at the position itself, read
again: its chain tells one history from another, also when a restored log has outgrown the reader
before it looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from shared.eventlog.errors import LogBroken
from shared.eventlog.port import LogIdentity, Lost
from shared.events.envelope import Envelope


class Phase(Enum):
    """How far the reader is: behind the head that it found at start; past it; at the end of all
    that it knows of.
    """

    REPLAYING = "replaying"
    CATCHING_UP = "catching up"
    LIVE = "live"


class Read(msgspec.Struct, frozen=True):
    """Step: read the page after this position, which is the reader's own less one (0 at the
    beginning).
    """

    after: int


class Wait(msgspec.Struct, frozen=True):
    """Step: nothing is known beyond this position; wait for a hint or poll."""

    after: int


class Open(msgspec.Struct, frozen=True):
    """Step: ask for the log's identity and head first."""


class Reset(msgspec.Struct, frozen=True):
    """The state folded so far belongs to another history: discard it; reading begins again at 1.
    `lost` is what the reader had and finds no more, None where the log itself says that it is
    another."""

    cause: str
    lost: Lost | None = None


Step = Open | Read | Wait


class Cursor(msgspec.Struct, frozen=True):
    """Where a reader stands. `chain` is that of the fact at `position`, None where it is to be
    learnt. `known` is the highest position that is believed to exist; `promised` the highest that
    did exist (an append was answered with it); `replay_to` the head at start."""

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
    """What the reader should do now."""
    if not cursor.opened_once:
        return Open()
    if cursor.known > cursor.position or not cursor.at_end:
        return reading(cursor)
    return Wait(cursor.position)


def reading(cursor: Cursor) -> Read:
    """The read that goes on from here and checks where the reader stands."""
    return Read(max(cursor.position - 1, 0))


def opened(cursor: Cursor, identity: LogIdentity, head: int) -> tuple[Cursor, Reset | None]:
    """The log answered who it is and where its head stands; told at start, after a reconnect, and
    at every poll.
    """
    cause = _reset_cause(cursor, identity, head)
    if cause:
        lost = _lost(cursor, identity, max(cursor.position, cursor.promised))
        return Cursor(identity=identity, known=head, replay_to=head, opened_once=True), Reset(
            cause, lost
        )
    replay_to = cursor.replay_to if cursor.opened_once else head
    at_end = cursor.at_end and head <= cursor.position
    known = max(cursor.known, head)
    fields = {
        "identity": identity,
        "known": known,
        "replay_to": replay_to,
        "opened_once": True,
        "at_end": at_end,
    }
    return msgspec.structs.replace(cursor, **fields), None


def _reset_cause(cursor: Cursor, identity: LogIdentity, head: int) -> str:
    before = cursor.identity
    if before is not None and before.log_id != identity.log_id:
        return "other_log"
    if before is not None and before.timeline != identity.timeline:
        return "other_timeline"
    return "head_behind" if head < max(cursor.position, cursor.promised) else ""


def _lost(cursor: Cursor, found: LogIdentity | None, position: int) -> Lost | None:
    """What the reader had, with its chain where it was read and not only promised; None of another
    log, or of a timeline that began since: those say themselves that they are others."""
    before = cursor.identity
    if (
        before is None
        or found is None
        or found.log_id != before.log_id
        or found.timeline > before.timeline
    ):
        return None
    chain = cursor.chain if position == cursor.position else None
    return Lost(found.timeline, before.timeline, position, chain or b"")


def heard(cursor: Cursor, position: int) -> Cursor:
    """Somebody says that `position` exists. It costs at most one read when untrue."""
    if position <= cursor.known:
        return cursor
    return msgspec.structs.replace(cursor, known=position)


def promised(cursor: Cursor, position: int) -> Cursor:
    """The log answered that `position` exists: a head behind it belongs to another history."""
    return heard(msgspec.structs.replace(cursor, promised=max(cursor.promised, position)), position)


def received(cursor: Cursor, page: Sequence[Envelope]) -> tuple[Cursor, list[Envelope] | Reset]:
    """The facts of a page that are new, in order, or that the page is of another history. Raises
    LogBroken at a hole or disorder.

    A page without news says that nothing exists beyond the position, whatever hints said.
    """
    cause = _stranger(cursor, page)
    if cause:
        return Cursor(), Reset(cause, _lost(cursor, cursor.identity, cursor.position))
    known_before = next(
        (count for count, envelope in enumerate(page) if envelope.position > cursor.position),
        len(page),
    )
    fresh = list(page[known_before:])
    for position, envelope in enumerate(fresh, start=cursor.position):
        if envelope.position != position + 1:
            raise LogBroken(
                f"after position {position} the log gave {envelope.position}: positions must have no hole; "
                "stop, keep the database as it is, and run: topolog replay verify"
            )
    position, chain = cursor.position + len(fresh), page[-1].chain if page else cursor.chain
    at_end = not fresh
    known = position if at_end else max(cursor.known, position)
    moved = msgspec.structs.replace(
        cursor, position=position, chain=chain, known=known, at_end=at_end
    )
    # A page that reached all that is known ends the catching up without one more empty read.
    return (
        msgspec.structs.replace(moved, at_end=True) if position >= moved.known else moved
    ), fresh


def _stranger(cursor: Cursor, page: Sequence[Envelope]) -> str:
    """Why the page cannot continue what was read: its first fact is not the one where the reader
    stands.
    """
    if cursor.position and not page:
        return "head_behind"
    here = (
        next((envelope for envelope in page if envelope.position == cursor.position), None)
        if cursor.chain
        else None
    )
    return "" if here is None or here.chain == cursor.chain else "other_history"
