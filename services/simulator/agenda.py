"""Scheduled actions: a heap by real and by virtual time. This module does not know the actions."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Agenda:
    """Actions in order of time; equal times in order of entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def add(self, when: float, action: Action) -> None:
        """Do `action` at `when` (in the caller's seconds)."""
        heapq.heappush(self._heap, (when, next(self._numbers), action))

    def next_due(self, now_s: float) -> Action | None:
        """Take out the next action that is due; None when none is."""
        return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now_s else None

    @property
    def next_at(self) -> float | None:
        """When the next action is due; None when there is none."""
        return self._heap[0][0] if self._heap else None
