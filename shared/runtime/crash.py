"""Named crash points: where a test may let the process die as by kill -9. Without TOPOLOG_CRASH_AT
they do nothing.

`TOPOLOG_CRASH_AT=binder.after_call:3,binder.after_intent` kills at the third passage of the one,
the first of the other; a folder named by TOPOLOG_CRASH_ONCE, where each death leaves a file of its
point's name, makes it happen once over restarts.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def _passages(text: str) -> dict[str, int]:
    """Name of each wanted point -> passages until it kills."""
    wanted = (point.partition(":") for point in text.split(",") if point)
    return {name: int(nth) if nth.isdigit() else 1 for name, _, nth in wanted}


_left = _passages(os.environ.get("TOPOLOG_CRASH_AT", ""))
_once = os.environ.get("TOPOLOG_CRASH_ONCE", "")


def crash_point(name: str) -> None:
    """Die here if this is a wanted point and its turn has come."""
    if name not in _left:
        return
    _left[name] -= 1
    mark = Path(_once, name) if _once else None
    if _left[name] > 0 or (mark is not None and mark.exists()):
        return
    if mark is not None:
        mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
