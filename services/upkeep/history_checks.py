"""Check a history before it becomes a log: versions of every stream from 1 without a gap, and only
known kinds of events on known streams. Pure.

An unreadable event of a known kind quarantines its stream, as in the log that it comes from, so
backups of such logs are accepted. An event of an unknown kind needs the release that wrote it,
unless an operator has skipped it.
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
    """A problem at a position, and its remedy."""

    position: int
    what: str
    remedy: str


class HistoryChecks:
    """Checks a history, block by block and in order."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._unknown: dict[int, Problem] = {}

    def check(self, block: Sequence[Envelope]) -> Problem | None:
        """Return the first problem that no later event can resolve, None if there is none."""
        for event in block:
            expected = self._versions.get(event.stream, 0) + 1
            if event.version != expected:
                message = (
                    f"{event.stream[:80]} has version {event.version}, expected version {expected}"
                )
                return Problem(event.position, message, ANOTHER_COPY)
            self._versions[event.stream] = event.version
            if event.type == FactSkipped.__name__:
                self._skip(event)
            elif problem := _unknown(event):
                self._unknown.setdefault(
                    event.position, Problem(event.position, problem, ITS_RELEASE)
                )
        return None

    def finish(self) -> Problem | None:
        """Return the problem that remains at the end of the history, None if there is none."""
        return next(iter(self._unknown.values()), None)

    def _skip(self, event: Envelope) -> None:
        try:
            skip = decode(event)
        except UndecodableEvent:
            return
        if isinstance(skip, FactSkipped):
            self._unknown.pop(skip.position, None)


def _unknown(event: Envelope) -> str:
    """Return why this release does not know the kind of an event on a known stream, or ""."""
    if not streams.is_known(event.stream):
        return ""
    entry = CATALOG.get(event.type)
    if entry is None:
        return f"{event.type[:80]} is not a kind of event that this release knows"
    if event.schema > entry.schema:
        return f"{event.type} has schema {event.schema}; this release knows 1 to {entry.schema}"
    return ""
