"""Wait for an asyncio event with a time limit, by the loop's clock."""

from __future__ import annotations

import asyncio


async def set_within(event: asyncio.Event, limit_s: float) -> bool:
    """Wait until the event is set; return False if it is not set within `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return False
