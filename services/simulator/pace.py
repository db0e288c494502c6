"""The rate of virtual time under `--speed max`: as fast as the machine can keep up. Pure.

The rate rises if few pods wait, and falls if many do, but never below a floor at which the queue
depends on the cluster's capacity and not on the machine. This module does not know clocks or pods.
"""

from __future__ import annotations

import msgspec


class Pace(msgspec.Struct, frozen=True):
    """Bounds of the rate and of the queue. If `hold` pods wait, no pod is created until some are
    bound.
    """

    start: float = 15.0
    floor: float = 8.0
    ceiling: float = 120.0
    few: int = 10
    many: int = 40
    hold: int = 120
    faster: float = 1.06
    slower: float = 0.85

    def next(self, rate: float, waiting: int) -> float:
        """Return the rate for the next half second."""
        if waiting > self.many:
            return max(self.floor, rate * self.slower)
        return min(self.ceiling, rate * self.faster) if waiting < self.few else rate


def fixed(rate: float) -> Pace:
    """Return a pace that never changes and never delays pods."""
    return Pace(rate, rate, rate, 0, 2**62, 2**62, 1.0, 1.0)


def parse_speed(text: str) -> Pace:
    """Read `max`, or a positive number of virtual seconds per real second. Raises ValueError."""
    if text == "max":
        return Pace()
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.01 <= rate <= 10_000:
        raise ValueError(f"--speed {text!r}: expected max, or a number from 0.01 to 10000")
    return fixed(rate)
