"""Streams and events that cannot be folded: one rule for services and replay.

1. An event that this code cannot read, or that its fold cannot apply, quarantines its stream: it
   and all later events of the stream are skipped, and the rest goes on.

2. Streams that carry safety events (`streams.carries_safety`) are never skipped. A service that
   cannot read one of their events decides nothing until an operator skips the event, or a release
   that reads it takes over. Later events of such a stream are folded.

3. Events that cannot be read on streams of an unknown kind are skipped and do not count: they are
   of a newer release (`shared.events.streams`).

4. An operator's `FactSkipped` removes one event, and the stream goes on without it. Skips are
   read before the fold begins, so the state at a position is the same for every reader of the
   same skips.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.events import streams
from shared.events.catalog import Event
from shared.events.codec import UndecodableEvent, decode, decode_all
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped

# What a fold may raise for an event that makes no sense.
UNFOLDABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError)


class QuarantinedStreams(msgspec.Struct):
    """`skipped` is position -> position of its `FactSkipped`, and `streams` is quarantined stream
    -> problem."""

    skipped: dict[int, int] = {}
    streams: dict[str, str] = {}

    def event_of(self, envelope: Envelope) -> Event | None:
        """Return the event to fold, None to skip it. Quarantines the stream if the event cannot be
        read."""
        if self.skipped and envelope.position in self.skipped:
            return None
        # Later events of a safety stream are folded: among them are the operator's skip, and
        # restrictions like a new timeline.
        quarantined = self.streams and envelope.stream in self.streams
        if quarantined and not streams.carries_safety(envelope.stream):
            return None
        try:
            return decode(envelope)
        except UndecodableEvent as error:
            if streams.is_known(envelope.stream):
                self.streams.setdefault(envelope.stream, str(error))
            return None

    def events_of(self, page: Sequence[Envelope]) -> list[Event] | None:
        """Return the events of a page, decoded at once, if all are to be folded: nearly always.

        None if some may not be, or if one is a `FactSkipped`: the caller then goes one by one,
        because streams may be quarantined on the way."""
        events = None if self.skipped or self.streams else decode_all(page)
        return None if events is None or FactSkipped in map(type, events) else events

    def quarantine(self, envelope: Envelope, error: Exception) -> None:
        """Quarantine the stream of an event that the fold could not apply."""
        if envelope.stream in self.streams:
            return
        self.streams[envelope.stream] = (
            f"event {envelope.position} ({envelope.type} on {envelope.stream}) cannot be folded: "
            f"{error!r}; inspect it with: topolog replay log --from {envelope.position} --limit 1"
        )

    def are_skips_known_at(self, position: int) -> bool:
        """Return True if a state that was folded up to `position` includes every skip that concerns
        it."""
        return all(
            skipped > position or skipped_by <= position
            for skipped, skipped_by in self.skipped.items()
        )
