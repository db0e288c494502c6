"""Virtual time, which runs `rate` times as fast as real time. The rate may change at any moment.

Only arrivals and lifetimes of simulated work follow it. Services, reports and latencies use real
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class VirtualClock:
    """A clock that starts at 0. `real` is a monotonic clock in seconds."""

    def __init__(self, rate: float = 1.0, real: Callable[[], float] = time.monotonic) -> None:
        self._real = real
        self._began = self._since = real()
        self._at_since = 0.0
        self._rate = rate

    @property
    def rate(self) -> float:
        """Virtual seconds per real second."""
        return self._rate

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._at_since + (self._real() - self._since) * self._rate

    def set_rate(self, rate: float) -> None:
        """Change the rate from now on."""
        self._at_since, self._since = self.now(), self._real()
        self._rate = rate

    def real_elapsed(self) -> float:
        """Real seconds since the start."""
        return self._real() - self._began

    def real_until(self, virtual: float) -> float:
        """Real seconds until a virtual moment at the current rate; 0 if it has passed."""
        return max(0.0, (virtual - self.now()) / self._rate) if self._rate > 0 else 3600.0
