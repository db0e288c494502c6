"""A reader that had read more than the log holds records that in it, once: a replica that
lagged was promoted, and no operator knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shared.eventlog.port import Appended, Commit
from shared.events.codec import decode
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.runtime.acknowledged import Acknowledged
from shared.runtime.consumer import Consumer
from tests.eventlog.words import given
from tests.runtime.helpers import QUICK, FaultyLog, running, until
from tests.runtime.test_consumer import Heard


@pytest.fixture
def log() -> FaultyLog:
    return FaultyLog()


async def test_a_service_that_vouches_begins_a_timeline_if_the_log_lost_what_it_had_read(
    log: FaultyLog,
) -> None:
    await given(log, *"abcde")
    received_messages = Heard()
    consumer = Consumer(
        "c",
        log,
        received_messages.handle,
        on_reset=received_messages.reset,
        options=QUICK,
        vouches=True,
    )
    async with running(consumer.run()):
        await until(lambda: len(received_messages.positions) == 5)
        log.restore(2)
        await until(
            lambda: (
                received_messages.resets == ["head_behind"]
                and received_messages.positions == [1, 2, 3]
            )
        )
    assert decode((await log.read(2))[0]) == LogOpened((await log.identity()).log_id, 2, lost=5)


async def test_only_one_of_two_vouching_services_begins_the_timeline(log: FaultyLog) -> None:
    await given(log, *"abcde")
    received_messages, second = Heard(), Heard()
    made = [
        Consumer("c", log, item.handle, on_reset=item.reset, options=QUICK, vouches=True)
        for item in (received_messages, second)
    ]
    async with running(*(item.run() for item in made)):
        await until(lambda: len(received_messages.positions) == len(second.positions) == 5)
        log.restore(2)
        await until(lambda: received_messages.positions == second.positions == [1, 2, 3])
        await asyncio.sleep(10 * QUICK.poll_s)
    assert (await log.identity()).timeline == 2
    assert await log.head() == 3


async def test_a_writer_of_a_lost_commit_begins_a_timeline_too(log: FaultyLog) -> None:
    await given(log, *"abc")
    acknowledged_log = Acknowledged()
    acknowledged_log.keep(Commit("mine", "r", 0, 0, ()), Appended(3, 3, {}), 0)

    async def handle(page: Sequence[Envelope]) -> None:
        acknowledged_log.check([(envelope, decode(envelope)) for envelope in page])

    async with running(Consumer("c", log, handle, options=QUICK, vouches=True).run()):
        assert await log.wait(3, 60)
    assert decode((await log.read(3))[0]) == LogOpened((await log.identity()).log_id, 2, lost=3)
