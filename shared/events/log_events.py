"""Facts about the log itself. Stream `log`."""

from __future__ import annotations

import msgspec

from shared.events.about import About


class LogOpened(msgspec.Struct, frozen=True, tag=True):
    """A log, or a new timeline of it after a restore, begins: consumers of another timeline discard
    state and refold. `lost` is how far a reader had read what the log holds no more; 0 where an
    operator began the timeline."""

    log_id: str
    timeline: int
    lost: int = 0

    @property
    def about(self) -> About:
        return About()


class FactSkipped(msgspec.Struct, frozen=True, tag=True):
    """An operator (`by`) says that the fact at `position`, which stands on `stream`, counts as
    never told: one that cannot be read or folded, and had its stream set aside. Folds begin anew
    without it."""

    position: int
    stream: str
    by: str
    reason: str

    @property
    def about(self) -> About:
        return About()


class FactsRedacted(msgspec.Struct, frozen=True, tag=True):
    """An operator (`by`) had personal text masked in the facts at these positions, which are about
    a pod that ended. `rows` is position -> SHA-256 (hex) of the payload as it was appended: the
    hash chain goes on with it, and vouches for it."""

    rows: dict[int, str]
    uid: str
    by: str
    reason: str

    @property
    def about(self) -> About:
        return About(pod=self.uid)


LogEvent = LogOpened | FactSkipped | FactsRedacted
