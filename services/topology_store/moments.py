"""When was a report true, held against the clock? A boot's own clock and ours run side by side:
what a report says of its moment can be late, never early.

Unix milliseconds for our clock, milliseconds since boot for a report's. A report that was true at
`t` is judged at `t` or later, so that our clock minus its own never falls below the moment when the
boot began; the earliest estimate is the best one. A margin covers clocks that are set. Pure
numbers: must not know reports.
"""

from __future__ import annotations

MARGIN_MS = 60_000


def began(estimate_ms: int, boot_time_ms: int, at_ms: int) -> int:
    """The better estimate of when the boot began; 0 is none."""
    found = max(at_ms - boot_time_ms, 1)
    return min(estimate_ms, found) if estimate_ms else found


def is_absurd(boot_time_ms: int, at_ms: int) -> bool:
    """A boot that began before the clock did (1970)."""
    return boot_time_ms > at_ms + MARGIN_MS


def runs_ahead(estimate_ms: int, boot_time_ms: int, at_ms: int) -> bool:
    """True when the report claims a moment that has not come yet."""
    return estimate_ms > 0 and at_ms - boot_time_ms < estimate_ms - MARGIN_MS


def overlaps(alive_ms: int, boot_time_ms: int, at_ms: int) -> bool:
    """True when the boot says that it began while the one before was still heard."""
    return at_ms - boot_time_ms < alive_ms - MARGIN_MS
