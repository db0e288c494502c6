"""The real clock, the only place where a service reads the time. Cores take times as values."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Unix time for people and events, monotonic time for intervals, and sleeping."""

    def now_us(self) -> int:
        """Unix microseconds."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds."""


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


SYSTEM_CLOCK = SystemClock()
