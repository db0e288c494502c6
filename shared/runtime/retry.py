"""Retrying with bounds: exponential pauses with jitter, a limit in time, and one way to write it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina

T = TypeVar("T")


def jittered_s(failures: int, first_s: float, longest_s: float) -> float:
    """The pause after so many failures before: twice as long each time, and apart for those who failed together."""
    longest = min(first_s * (1 << min(failures, 16)), longest_s)
    return longest * random.uniform(0.5, 1.0)


async def retried(
    work: Callable[[], Awaitable[T]],
    on: type[Exception] | tuple[type[Exception], ...],
    for_s: float,
    first_pause_s: float = 0.1,
    longest_pause_s: float = 5.0,
) -> T:
    """Run `work`, again after each error in `on`, for `for_s` seconds; then the last error is raised."""
    async for attempt in stamina.retry_context(
        on=on, attempts=None, timeout=for_s, wait_initial=first_pause_s, wait_max=longest_pause_s, wait_jitter=first_pause_s
    ):
        with attempt:
            return await work()
    raise AssertionError("a retry context ends by return or raise")


async def forever(
    work: Callable[[], Awaitable[T]], on: type[Exception] | tuple[type[Exception], ...], longest_pause_s: float = 5.0
) -> T:
    """Run `work`, again after each error in `on`, until it succeeds or the task is cancelled."""
    async for attempt in stamina.retry_context(
        on=on, attempts=None, timeout=None, wait_initial=0.1, wait_max=longest_pause_s, wait_jitter=0.1
    ):
        with attempt:
            return await work()
    raise AssertionError("a retry context ends by return or raise")
