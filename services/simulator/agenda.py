"""Actions to run at a later time. This module does not know the actions."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Agenda:
    """A heap of actions in order of time; those of equal times keep the order in which they were
    added.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def add(self, when_s: float, action: Action) -> None:
        """Schedule an action. `when_s` is in the seconds of the caller's clock, real or virtual."""
        heapq.heappush(self._heap, (when_s, next(self._numbers), action))

    def next_due(self, now_s: float) -> Action | None:
        """Remove and return the next action that is due, None if there is none."""
        return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now_s else None

    @property
    def next_at(self) -> float | None:
        """When the next action is due; None if there is none."""
        return self._heap[0][0] if self._heap else None
