"""What of a log cannot be folded, and what of it need not be: the one rule for services and replay.
Pure.

A fact that this code cannot read, or that its fold cannot take, sets its stream aside: it and all
later facts of that stream are passed over, and the rest goes on. Of streams of a kind that this
release does not know, what it cannot read is not its business and is passed over without a word
(`shared.events.streams`). An operator's `FactSkipped` says that a fact counts as never told; the
stream goes on without it. Skips are known before the fold begins, so that the state at a position
is the same for everybody who knows of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.events import streams
from shared.events.catalog import Event
from shared.events.codec import UndecodableEvent, decode, decode_all
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped

UNFOLDABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError)
"""What a fold that meets a fact that makes no sense may raise."""


class QuarantinedStreams(msgspec.Struct):
    """`skipped` is position -> where its `FactSkipped` stands; `streams` those set aside, with what
    is wrong.
    """

    skipped: dict[int, int] = {}
    streams: dict[str, str] = {}

    def event_of(self, envelope: Envelope) -> Event | None:
        """The fact to fold; None when it is to be passed over. A fact that cannot be read sets its
        stream aside, if this release must make sense of it."""
        if (self.skipped and envelope.position in self.skipped) or (
            self.streams and envelope.stream in self.streams
        ):
            return None
        try:
            return decode(envelope)
        except UndecodableEvent as error:
            if streams.is_known(envelope.stream):
                self.streams[envelope.stream] = str(error)
            return None

    def events_of(self, page: Sequence[Envelope]) -> list[Event] | None:
        """The facts of a page, read at once, where all of them are to be folded, which is nearly
        always; None where one may not be, or says that another is skipped: those are looked at one
        by one, as streams may be set aside meanwhile."""
        events = None if self.skipped or self.streams else decode_all(page)
        return None if events is None or FactSkipped in map(type, events) else events

    def quarantine(self, envelope: Envelope, error: Exception) -> None:
        """The fold could not take the fact: its stream is set aside."""
        self.streams[envelope.stream] = (
            f"fact {envelope.position} ({envelope.type} on {envelope.stream}) cannot be folded: {error!r}; "
            f"inspect it with: topolog replay log --from {envelope.position} --limit 1"
        )

    def are_skips_known_at(self, position: int) -> bool:
        """True when a state that was folded up to `position` has all skips behind it that concern
        it.
        """
        return all(skipped > position or told <= position for skipped, told in self.skipped.items())
