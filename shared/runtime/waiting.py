"""Waiting for an event, but not for ever. By the loop's own clock: a pause, and nothing that is
decided by.
"""

from __future__ import annotations

import asyncio


async def set_within(event: asyncio.Event, limit_s: float) -> bool:
    """Wait until the event is set; False when it was not within `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return False
