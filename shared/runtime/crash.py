"""Named crash points: where a test may let the process die as by kill -9. Without TOPOLOG_CRASH_AT they do nothing.

`TOPOLOG_CRASH_AT=binder.after_call:3` kills at the third passage; a file named by TOPOLOG_CRASH_ONCE makes it happen once over
restarts.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_wanted, _, _nth = os.environ.get("TOPOLOG_CRASH_AT", "").partition(":")
_once = os.environ.get("TOPOLOG_CRASH_ONCE", "")
_passages = {"left": int(_nth) if _nth.isdigit() else 1}


def crash_point(name: str) -> None:
    """Die here if this is the wanted point and its turn has come."""
    if name != _wanted:
        return
    _passages["left"] -= 1
    if _passages["left"] > 0 or (_once and Path(_once).exists()):
        return
    if _once:
        Path(_once).touch()
    os.kill(os.getpid(), signal.SIGKILL)
