"""The filter of a reader: events by stream, type, pod and node. Pure."""

from __future__ import annotations

import fnmatch
from datetime import UTC, datetime

import msgspec

from services.replay.suggestions import near
from shared.events import streams
from shared.events.catalog import CATALOG
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope


class Filter(msgspec.Struct, frozen=True):
    """Empty fields accept everything. `stream` and `type` are shell patterns; `uids` are pod uids,
    `nodes` node names.
    """

    stream: str = ""
    type: str = ""
    uids: frozenset[str] = frozenset()
    node: str = ""

    def accepts(self, envelope: Envelope) -> bool:
        """Return whether every given condition holds."""
        if self.stream and not fnmatch.fnmatchcase(envelope.stream, self.stream):
            return False
        if self.type and not fnmatch.fnmatchcase(envelope.type, self.type):
            return False
        if self.uids and envelope.stream.removeprefix("pod/") not in self.uids:
            return False
        return not self.node or self._concerns_node(envelope)

    def streams(self) -> list[str] | None:
        """Return the streams that hold all accepted events, None if any stream may."""
        if self.uids:
            return [streams.pod(uid) for uid in sorted(self.uids)]
        is_name = self.stream and not any(letter in self.stream for letter in "*?[")
        return [self.stream] if is_name else None

    def _concerns_node(self, envelope: Envelope) -> bool:
        """Return whether the event is about the node, not only names it."""
        if envelope.stream in streams.of_node(self.node):
            return True
        if f'"node":"{self.node}"'.encode() not in envelope.payload:
            return False
        try:
            return decode(envelope).about.node == self.node
        except UndecodableEvent:
            return True


class FilterError(ValueError):
    """A filter that cannot match. Names the flag and the value. An empty `remedy` means the verb's
    own help.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


class UnknownPod(FilterError):
    """The log has no such pod. Kubernetes may have it."""


def check_type(pattern: str) -> str:
    """Return the pattern if a known event type matches it."""
    if pattern and not any(fnmatch.fnmatchcase(name, pattern) for name in CATALOG):
        suggestions = near(pattern, CATALOG) or sorted(CATALOG)
        raise FilterError(
            f"--type {pattern!r} matches no event; there are {', '.join(suggestions)}"
        )
    return pattern


def clock(time_us: int) -> str:
    """Return microseconds as `2026-01-31T12:00:00.123456Z`."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
