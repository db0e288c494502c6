"""How often changes may make an exporter scan: so many at once, then so many in a unit of time. A
full bucket of scans stands for a quiet node, so that the first changes of a burst are read at once.
Pure: the time comes as a number.
"""

from __future__ import annotations


class Pace:
    """`events` scans in `unit_s` seconds, as many of them at once; without `events` there is no
    limit.
    """

    def __init__(self, events: int, unit_s: float) -> None:
        self._events = events
        self._per_s = events / unit_s if events else 0.0
        self._left = float(events)
        self._at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Take one scan; how long to wait before it."""
        if not self._events:
            return 0.0
        self._left = (
            min(float(self._events), self._left + max(0.0, now_s - self._at_s) * self._per_s) - 1.0
        )
        self._at_s = now_s
        return max(0.0, -self._left / self._per_s)
