"""Wait for refusals of a NATS server, which it reports as an error after the answer to a ping."""

from __future__ import annotations

import asyncio

from nats.aio.client import Client


async def settled(client: Client, refused: list[str]) -> None:
    """Return when the server has answered everything that was sent; `refused` collects the errors
    of the client's callback.
    """
    await client.flush(5)
    for _ in range(50):
        if refused:
            return
        await asyncio.sleep(0.02)
