"""Events about the log itself. Stream `log`."""

from __future__ import annotations

import msgspec

from shared.events.about import AboutNothing, AboutPod


class LogOpened(AboutNothing, msgspec.Struct, frozen=True, tag=True):
    """A log begins, or a new timeline of it after a restore: consumers of another timeline discard
    their state and fold again.

    `lost` is the last position that a reader had read and the log no longer has, 0 if an operator
    began the timeline."""

    log_id: str
    timeline: int
    lost: int = 0


class FactSkipped(AboutNothing, msgspec.Struct, frozen=True, tag=True):
    """An operator (`by`) skips the event at `position` on `stream`, which cannot be read or folded.
    Folds start again without it."""

    position: int
    stream: str
    by: str
    reason: str


class FactsRedacted(AboutPod, msgspec.Struct, frozen=True, tag=True):
    """An operator (`by`) masked personal text in the events at these positions, about a pod that
    ended.

    `rows` is position -> SHA-256 (hex) of the payload as it was appended: the hash chain continues
    with it and vouches for it."""

    rows: dict[int, str]
    uid: str
    by: str
    reason: str


LogEvent = LogOpened | FactSkipped | FactsRedacted
