"""What is asked of a history before it becomes a log: versions of every stream from 1 without a
gap, and facts of kinds that this release knows, where it must. Pure.

A fact that cannot be read sets its stream aside, here as in the log that it comes from: backups of
such logs are taken in. One of a kind that this release does not know, on a stream that it must make
sense of, is for the release that wrote it, unless an operator has said that it is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.events import streams
from shared.events.catalog import CATALOG
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped

ANOTHER_COPY = "import another copy of it"
ITS_RELEASE = "import it by the release that wrote it, or a newer one"


class Problem(msgspec.Struct, frozen=True):
    """What is wrong at a position, and what to do."""

    position: int
    what: str
    remedy: str


class Arriving:
    """Sees every block of a history once, in order."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._strange: dict[int, Problem] = {}

    def see(self, block: Sequence[Envelope]) -> Problem | None:
        """What is wrong with these facts, whatever comes after them."""
        for event in block:
            expected = self._versions.get(event.stream, 0) + 1
            if event.version != expected:
                said = f"{event.stream[:80]} has version {event.version} there, and {expected} is its next"
                return Problem(event.position, said, ANOTHER_COPY)
            self._versions[event.stream] = event.version
            if event.type == FactSkipped.__name__:
                self._skip(event)
            elif strange := _strange(event):
                self._strange.setdefault(
                    event.position, Problem(event.position, strange, ITS_RELEASE)
                )
        return None

    def finish(self) -> Problem | None:
        """What is wrong with all of them together."""
        return next(iter(self._strange.values()), None)

    def _skip(self, event: Envelope) -> None:
        try:
            word = decode(event)
        except UndecodableEvent:
            return
        if isinstance(word, FactSkipped):
            self._strange.pop(word.position, None)


def _strange(event: Envelope) -> str:
    """Why this release does not know the kind of a fact that it must make sense of; "" where it
    does.
    """
    if not streams.is_known(event.stream):
        return ""
    known = CATALOG.get(event.type)
    if known is None:
        return f"{event.type[:80]} is no kind of fact that this release knows"
    return (
        f"{event.type} has schema {event.schema}, and this release knows 1 to {known.schema}"
        if event.schema > known.schema
        else ""
    )
