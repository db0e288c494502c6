"""Compare the commits that the log acknowledged with the events that the fold reads there.

A log that was set back may have grown past such a position before the fold reads it. Neither the
head nor the chain at the fold's position shows that, and only the writer remembers the lost commit.
"""

from __future__ import annotations

from shared.eventlog.port import Commit, Outcome
from shared.runtime.consumer import HistoryLost
from shared.runtime.projector import Folded


class Acknowledged:
    """Position -> commit that the log acknowledged there, until the fold has passed it."""

    def __init__(self) -> None:
        self._made: dict[int, str] = {}

    def keep(self, commit: Commit, outcome: Outcome, folded_to: int) -> None:
        """Remember an acknowledged commit, unless the fold has already passed it."""
        last = getattr(outcome, "last", 0)
        if last > folded_to:
            self._made[last] = commit.commit_id

    def check(self, folded: Folded) -> None:
        """Check a folded page. Raises HistoryLost if another commit is at such a position."""
        if not self._made or not folded:
            return
        for envelope, _ in folded:
            expected = self._made.pop(envelope.position, envelope.commit_id)
            if expected != envelope.commit_id:
                self._made.clear()
                raise HistoryLost(envelope.position, expected)
        folded_to = folded[-1][0].position
        self._made = {
            position: commit for position, commit in self._made.items() if position > folded_to
        }

    def clear(self) -> None:
        """Forget everything, because the log is read again."""
        self._made.clear()
