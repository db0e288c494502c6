"""Samples the stack of a Python process by its CPU time. Python imports a module of this name at
the start of every process that finds it on its path; without TOPOLOG_SAMPLES it does nothing.

Each sample is a line in TOPOLOG_SAMPLES/PID: monotonic seconds, a tab, the stack from outside to
inside. Time in C counts for the Python function that called, that of the event loop itself for what
it runs next. Must not know the project.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path
from types import CodeType, FrameType

EVERY_S = 0.004
_names: dict[CodeType, str] = {}
_taken: list[str] = []


def _sample(_signal: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        stack.append(_name(frame.f_code))
        frame = frame.f_back
    _taken.append(f"{time.monotonic():.3f}\t{';'.join(reversed(stack))}\n")


def _name(code: CodeType) -> str:
    if code not in _names:
        file = code.co_filename.removeprefix(os.getcwd() + "/").rpartition("site-packages/")[2]
        _names[code] = f"{file}:{code.co_name}"
    return _names[code]


def _write(path: Path) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    path.write_text(" ".join(sys.orig_argv) + "\n" + "".join(_taken))


if folder := os.environ.get("TOPOLOG_SAMPLES"):
    atexit.register(_write, Path(folder) / str(os.getpid()))
    signal.signal(signal.SIGPROF, _sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
