"""Named crash points: with TOPOLOG_CRASH_AT a test lets the process die there as by kill -9.

`TOPOLOG_CRASH_AT=binder.after_call:3,binder.after_intent` kills at the third passage of the first
point and at the first passage of the second. If TOPOLOG_CRASH_ONCE names a folder, each death
leaves a file there and does not happen again after a restart.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def _passages(text: str) -> dict[str, int]:
    """Parse: name of each point -> passages until it kills."""
    wanted = (point.partition(":") for point in text.split(",") if point)
    return {name: int(nth) if nth.isdigit() else 1 for name, _, nth in wanted}


_remaining = _passages(os.environ.get("TOPOLOG_CRASH_AT", ""))
_once = os.environ.get("TOPOLOG_CRASH_ONCE", "")


def crash_point(name: str) -> None:
    """Kill this process if the point is due."""
    if name not in _remaining:
        return
    _remaining[name] -= 1
    mark = Path(_once, name) if _once else None
    if _remaining[name] > 0 or (mark is not None and mark.exists()):
        return
    if mark is not None:
        mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
