"""Events per second by the log's own clock.

Wall-clock time would not do: a fold reads hours of events in a second. Pure.
"""

from __future__ import annotations

from collections import Counter, deque

OVER_S = 10
_US = 1_000_000


class Rates:
    """Counts of the last ten seconds of the log, by kind."""

    def __init__(self) -> None:
        self._by_second: deque[tuple[int, Counter[str]]] = deque()
        self._first_us: int | None = None

    def add(self, kind: str, time_us: int) -> None:
        """Count one event. The clocks of services differ a little, so an older event counts as if
        it came now."""
        if self._first_us is None:
            self._first_us = time_us
        second = time_us // _US
        if not self._by_second or second > self._by_second[-1][0]:
            self._by_second.append((second, Counter()))
            while self._by_second[0][0] <= second - 2 * OVER_S:
                self._by_second.popleft()
        self._by_second[-1][1][kind] += 1

    def per_second(self, now_us: int) -> dict[str, float]:
        """Return the rate of each kind over the ten seconds before `now_us`, or over the log's life
        if that is shorter."""
        if self._first_us is None:
            return {}
        second_now = now_us // _US
        total: Counter[str] = Counter()
        for second, counts in self._by_second:
            if second_now - OVER_S < second <= second_now:
                total += counts
        span_s = min(max((now_us - self._first_us) / _US, 1.0), float(OVER_S))
        return {kind: count / span_s for kind, count in total.items()}
