"""Compare the moment that a report states with the clock. A report may arrive late, never early.

Unix milliseconds for the clock, milliseconds since boot for a report. A report that was true at
`t` is judged at `t` or later, so the clock minus the report's time is never below the beginning
of the boot. The earliest estimate of that beginning is the best. A margin covers clocks that are
set.
"""

from __future__ import annotations

MARGIN_MS = 60_000


def began(estimate_ms: int, boot_time_ms: int, at_ms: int) -> int:
    """Return the better estimate of when the boot began; 0 is no estimate."""
    latest_ms = max(at_ms - boot_time_ms, 1)
    return min(estimate_ms, latest_ms) if estimate_ms else latest_ms


def is_absurd(boot_time_ms: int, at_ms: int) -> bool:
    """Return whether the boot began before 1970."""
    return boot_time_ms > at_ms + MARGIN_MS


def runs_ahead(estimate_ms: int, boot_time_ms: int, at_ms: int) -> bool:
    """Return whether the report states a moment in the future."""
    return estimate_ms > 0 and at_ms - boot_time_ms < estimate_ms - MARGIN_MS


def overlaps(alive_ms: int, boot_time_ms: int, at_ms: int) -> bool:
    """Return whether the boot began while reports of the last boot still came."""
    return at_ms - boot_time_ms < alive_ms - MARGIN_MS
