"""What a writer was told that it appended, held against what the fold reads where that was to
stand.

A log that was set back may have grown past such a place before the fold looked: neither its head
nor the chain at the fold's own position tells then, and what was appended is forgotten by everybody
but the writer. Must not know facts.
"""

from __future__ import annotations

from shared.eventlog.port import Commit, Outcome
from shared.runtime.consumer import HistoryLost
from shared.runtime.projector import Folded


class Acknowledged:
    """Position -> commit that the log said stands there, until the fold has passed it."""

    def __init__(self) -> None:
        self._made: dict[int, str] = {}

    def keep(self, commit: Commit, outcome: Outcome, folded_to: int) -> None:
        """The log answered. Nothing can be told of what the fold has passed already."""
        last = getattr(outcome, "last", 0)
        if last > folded_to:
            self._made[last] = commit.commit_id

    def check(self, folded: Folded) -> None:
        """A page was folded. Raises HistoryLost where somebody else's fact stands in the place of
        one's own.
        """
        if not self._made or not folded:
            return
        for envelope, _ in folded:
            made = self._made.pop(envelope.position, envelope.commit_id)
            if made != envelope.commit_id:
                self._made.clear()
                raise HistoryLost(envelope.position, made)
        to = folded[-1][0].position
        self._made = {position: commit for position, commit in self._made.items() if position > to}

    def clear(self) -> None:
        """Everything is read again."""
        self._made.clear()
