"""A waiter for the head receives notifications and polls; notifications of another database
before is not believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shared.eventlog.postgres_watch import HeadWatch
from tests.runtime.helpers import until


class Listening:
    """A connection that listens until it is cut."""

    def __init__(self) -> None:
        self._ended: Callable[..., None] = lambda *_: None

    def add_termination_listener(self, ended: Callable[..., None]) -> None:
        self._ended = ended

    async def add_listener(self, _channel: str, _heard: Callable[..., None]) -> None:
        pass

    def terminate(self) -> None:
        pass

    def cut(self) -> None:
        self._ended()


async def test_a_database_that_took_anothers_place_is_asked_where_its_head_is() -> None:
    heads, made = [9], list[Listening]()

    async def connect() -> Any:
        made.append(Listening())
        return made[-1]

    async def head() -> int:
        return heads[-1]

    watch = HeadWatch(connect, head)
    assert await watch.wait(8, 5)
    await until(lambda: len(made) == 1 and watch._listening)
    heads.append(3)
    made[0].cut()
    await until(lambda: not watch._listening)
    assert not await watch.wait(3, 0.05), "the head is 3 now, and was 9 once"
    await asyncio.wait_for(watch.close(), 5)


async def test_an_older_answer_does_not_undo_a_notification() -> None:
    answering = asyncio.Event()

    async def connect() -> Any:
        return Listening()

    async def head() -> int:
        await answering.wait()
        return 3

    watch = HeadWatch(connect, head)
    asked = asyncio.create_task(watch.ask())
    await asyncio.sleep(0)
    watch.hinted(4)
    answering.set()
    assert await asked == 3
    assert await watch.wait(3, 0.05)
    await watch.close()
