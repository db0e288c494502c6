"""How long an answer may be kept back that is no for now: kube-scheduler asks for one pod at a
time, and waits with all others.

It asks again because something happened, of which it may hear before the log does (some 50 ms);
told no in between, it asks again at the next event: minutes later in a quiet cluster. So each such
answer may wait for half of what is left of a budget that fills up again at a quarter of the time
that goes by: the first one longest, and those that come upon it still for a moment. Must not know a
clock.
"""

from __future__ import annotations

MOST_S = 0.5
SHARE = 0.25
"""Of kube-scheduler's time at most."""


class Patience:
    """One budget for all who ask; times are monotonic."""

    def __init__(self) -> None:
        self._left_s, self._at_s = MOST_S, 0.0

    def take(self, now_s: float) -> float:
        """Seconds that one answer may wait."""
        self._left_s = min(MOST_S, self._left_s + SHARE * max(0.0, now_s - self._at_s))
        self._at_s = now_s
        self._left_s /= 2
        return self._left_s

    def give_back(self, unused_s: float) -> None:
        """Of what was taken; nothing for less than none."""
        self._left_s = min(MOST_S, self._left_s + max(0.0, unused_s))
