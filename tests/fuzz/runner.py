"""Sending inputs through a door and watching: an exception that the door does not declare, more
than a second of work, memory that grows. The first of these ends the run, and its input is kept.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.fuzz.door import Door

# Seconds of CPU time, so that a loaded machine does not count as a hang.
HANG_S = 1.0
STUCK_S = 30.0
GROWTH_MB = 192
WARM_SHARE = 0.2


class Finding(msgspec.Struct, frozen=True):
    """A failure: what is wrong, the input (as bytes to send again) and its number in the run."""

    door: str
    number: int
    problem: str
    data: bytes


class _Hang(BaseException):
    """The timer fired. No handler behind a door may catch it."""


def run(door: Door, inputs: int, seed: int) -> Finding | None:
    """Send `inputs` inputs. Return the first finding, or None."""
    base_mb = 0.0
    for number in range(inputs):
        data = door.make(random.Random(f"{seed}/{door.name}/{number}"))
        problem = _send(door, data)
        if problem:
            return Finding(door.name, number, problem, data)
        rss_mb = _rss_mb()
        if number <= inputs * WARM_SHARE:
            base_mb = max(base_mb, rss_mb)
        elif rss_mb - base_mb > GROWTH_MB and _grown_mb(base_mb) > GROWTH_MB:
            return Finding(
                door.name, number, f"memory grew from {base_mb:.0f} to {rss_mb:.0f} MB", data
            )
    return None


def _send(door: Door, data: bytes) -> str:
    try:
        with _watched():
            door.enter(data)
    except door.declared:
        return ""
    except _Hang:
        return f"no answer within {HANG_S:g} s:\n{traceback.format_exc(limit=-6)}"
    except BaseException:
        return f"an exception that the door does not declare:\n{traceback.format_exc(limit=-6)}"
    return ""


@contextmanager
def _watched() -> Iterator[None]:
    """Raise _Hang in the block after HANG_S of CPU time or STUCK_S of elapsed time."""
    timers = (
        (signal.ITIMER_VIRTUAL, signal.SIGVTALRM, HANG_S),
        (signal.ITIMER_REAL, signal.SIGALRM, STUCK_S),
    )
    handlers = [(number, signal.signal(number, _ring)) for _, number, _ in timers]
    for timer, _, delay_s in timers:
        signal.setitimer(timer, delay_s)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in handlers:
            signal.signal(number, handler)


def _ring(_number: int, _frame: Any) -> None:
    raise _Hang


def _grown_mb(base_mb: float) -> float:
    gc.collect()
    return _rss_mb() - base_mb


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
