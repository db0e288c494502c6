"""A service begins when its standard input ends, if its supervisor says that it will."""

from __future__ import annotations

import asyncio
import os

from shared.runtime import start_signal


async def test_a_service_begins_when_its_input_ends() -> None:
    read, write = os.pipe()
    waiting = asyncio.ensure_future(start_signal.wait_for({start_signal.VARIABLE: "true"}, read))
    os.write(write, b"not the end")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    os.close(write)
    async with asyncio.timeout(5):
        await waiting
    os.close(read)


async def test_without_a_supervisor_it_begins_at_once() -> None:
    read, write = os.pipe()
    async with asyncio.timeout(5):
        await start_signal.wait_for({}, read)
    os.close(read)
    os.close(write)
