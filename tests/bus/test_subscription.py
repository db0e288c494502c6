"""A subscription notices that nothing comes any more, however much came before. On a loop with a
time jumps: nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from shared.bus.jetstream_subscription import Subscription

HEARTBEAT_S = 5.0


class Jumping(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer if no task is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._really_select, self._selector.select = self._selector.select, self._jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now_s

    def _jump(self, timeout_s: float | None) -> Any:
        self._now_s += max(0.0, timeout_s or 0.0)
        return self._really_select(0)


class Message(msgspec.Struct):
    """A message as nats-py passes it on. `reply` counts the consumer's deliveries."""

    reply: str
    headers: dict[str, str] = {}


async def opened_at(messages: int, every_s: float, until_s: float) -> list[float]:
    """Return when a subscription was opened that delivered this many messages, each in this many
    seconds.
    """
    loop, opened, received_messages = asyncio.get_running_loop(), list[float](), list[Any]()

    async def source(
        cb: Callable[[Any], Awaitable[None]], again: bool
    ) -> Callable[[], Awaitable[None]]:
        opened.append(loop.time())
        feeding = asyncio.create_task(feed(cb))

        async def end() -> None:
            feeding.cancel()

        return end

    async def feed(cb: Callable[[Any], Awaitable[None]]) -> None:
        for number in range(1, messages + 1):
            await asyncio.sleep(every_s)
            await cb(Message(f"$JS.ACK.stream.consumer.1.{number}.{number}.0.0"))

    running = asyncio.create_task(
        Subscription("s", source, received_messages.append, HEARTBEAT_S).run()
    )
    await asyncio.sleep(until_s)
    running.cancel()
    assert len(received_messages) >= min(messages, 1)
    return opened


def test_messages_keep_a_subscription_and_silence_after_them_ends_it() -> None:
    with asyncio.Runner(loop_factory=Jumping) as runner:
        assert runner.run(opened_at(0, 0, 29)) == [0, 15]
        assert runner.run(opened_at(100, 4, 400))[1:] == []
        began, again = runner.run(opened_at(10, 10, 150))
        assert again - began == 10 * 10 + 15
