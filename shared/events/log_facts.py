"""Facts about the log itself. Stream `log`."""

from __future__ import annotations

import msgspec

from shared.events.about import About


class LogOpened(msgspec.Struct, frozen=True, tag=True):
    """A log, or a new timeline of it after a restore, begins: consumers of another timeline discard state and refold."""

    log_id: str
    timeline: int

    @property
    def about(self) -> About:
        return About()


LogFact = LogOpened
