"""Write the checkpoints of a projector, while it goes on folding.

1. A small state is written at once: that takes about 20 ms at most. A large one is dumped by a
   child process (`child`), and nothing waits until the log has it. One checkpoint is written at a
   time.
2. The positions of checkpoints are multiples of `EVERY`. The larger the state, the more events are
   between them, so that the cost per event stays the same.

Must not know when a state may be kept: that is for the projector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from shared.eventlog.checkpoints import EVERY, Checkpoint, Form, packed, save_packed
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.limits import MAX_SNAPSHOT_BYTES
from shared.eventlog.port import EventLog, Place
from shared.runtime.child import LARGE, Child
from shared.telemetry import names
from shared.telemetry.instruments import count

S = TypeVar("S")

# Weight that doubles the distance of checkpoints, and the most doublings: the default size of a
# partition (1,000,000) is a multiple of the longest distance.
WEIGHT_A_DISTANCE = 10_000
MOST_DOUBLINGS = 3
# The least doublings in a replay, which writes checkpoints only for questions about the past and
# for the archive.
DOUBLINGS_IN_REPLAY = 2
# Of `LARGE`: nothing waits for a replay, and after a fork each page that changes is copied.
LARGER_IN_REPLAY = 10


class Checkpointing(Generic[S]):
    """Writes checkpoints of one projection. `weight(state)` is the number of its pods or nodes."""

    def __init__(
        self,
        projection: str,
        log: EventLog,
        code: str,
        form: Form,
        dump: Callable[[S], bytes],
        weight: Callable[[S], int],
    ) -> None:
        self._projection, self._log, self._code, self._form = projection, log, code, form
        self._dump, self._weight = dump, weight
        self._child = Child()

    def is_large(self, state: S) -> bool:
        """Return whether writing the state at once would stop the service noticeably."""
        return self._weight(state) >= LARGE

    def due(self, state: S, position: int, live: bool) -> bool:
        """Return whether to keep a state at this position. Equal states are kept at equal
        positions, in every live process."""
        doublings = min((self._weight(state) // WEIGHT_A_DISTANCE).bit_length(), MOST_DOUBLINGS)
        if not live:
            doublings = max(doublings, DOUBLINGS_IN_REPLAY)
        return position % (EVERY << doublings) == 0

    async def begin(self, state: S, place: Place, live: bool = True) -> None:
        """Keep a checkpoint of this moment. Return when the state may change again; `finished`
        waits for the rest. A failure only makes the next start longer."""
        if self._weight(state) < (LARGE if live else LARGE * LARGER_IN_REPLAY):
            return await self._save(place, self._packed(state, place))
        return await self._child.begin(
            lambda: self._packed(state, place), partial(self._save, place)
        )

    async def finished(self) -> None:
        """Wait until the checkpoint that was begun last is kept, or has failed."""
        await self._child.finished()

    async def stop(self) -> None:
        """End what was begun: the log keeps the earlier checkpoint."""
        await self._child.stop()

    def _packed(self, state: S, place: Place) -> bytes:
        return packed(Checkpoint(place, self._code, self._dump(state)))

    async def _save(self, place: Place, content: bytes | None) -> None:
        if content is None:
            return count(names.SNAPSHOTS, projection=self._projection, result="unsaved")
        if len(content) > MAX_SNAPSHOT_BYTES:
            return count(names.SNAPSHOTS, projection=self._projection, result="too_large")
        try:
            await save_packed(self._log, self._projection, self._form, place, content)
        except LogUnavailable:
            return count(names.SNAPSHOTS, projection=self._projection, result="unsaved")
        return count(names.SNAPSHOTS, projection=self._projection, result="saved")
