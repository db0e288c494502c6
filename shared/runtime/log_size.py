"""Report the size of the log as a metric, and warn before it reaches its limit. Nothing is stopped:
operators decide whether to archive or to enlarge the disk.
"""

from __future__ import annotations

from contextlib import suppress

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import EventLog
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import set_gauge

LOOK_S = 60.0
# Warn above this share of the limit.
NEAR_PERCENT = 80


async def watch_size(log: EventLog, limit_bytes: int, clock: Clock) -> None:
    """Check until cancelled. Warn once, and again after the log has shrunk below the threshold."""
    set_gauge(names.LOG_LIMIT_BYTES, limit_bytes)
    near = False
    while True:
        with suppress(LogUnavailable):
            size_bytes = await log.size_bytes()
            set_gauge(names.LOG_BYTES, size_bytes)
            was_near, near = near, size_bytes * 100 > limit_bytes * NEAR_PERCENT
            if near and not was_near:
                _warn(size_bytes, limit_bytes)
        await clock.sleep(LOOK_S)


def _warn(size_bytes: int, limit_bytes: int) -> None:
    remedy = "topolog log archive --older-than 30d; or enlarge the disk and TOPOLOG_LOG_LIMIT_GIB"
    logs.get("log").warning(
        names.LOG_NEAR_LIMIT, bytes=size_bytes, limit_bytes=limit_bytes, remedy=remedy
    )
