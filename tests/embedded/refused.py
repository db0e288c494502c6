"""Waiting for what a NATS server refuses: it tells by an error of its own, after the answer to a
ping.
"""

from __future__ import annotations

import asyncio

from nats.aio.client import Client


async def settled(client: Client, refused: list[str]) -> None:
    """The server has answered everything that was sent; `refused` is what the client's error
    callback gathers.
    """
    await client.flush(5)
    for _ in range(50):
        if refused:
            return
        await asyncio.sleep(0.02)
