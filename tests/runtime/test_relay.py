"""The relay mirrors the log to the bus: nothing lost, nothing out of order, duplicates only by the
same id.
"""

from __future__ import annotations

import asyncio

from shared.bus import subjects
from shared.bus.memory import MemoryBus
from shared.eventlog.port import LogIdentity
from shared.events.envelope import Envelope
from shared.runtime.consumer import ConsumerOptions
from shared.runtime.relay import CONSUMER, MAX_BODY_BYTES, Relay, message_of
from shared.telemetry.propagation import HEADER
from tests.eventlog.words import given
from tests.runtime.helpers import QUICK, FaultyLog, running, until


def positions(bus: MemoryBus) -> list[int]:
    return [int(message.headers[subjects.POSITION]) for message in bus.event_messages]


async def test_every_event_is_on_the_bus_once_and_in_order() -> None:
    log, bus = FaultyLog(), MemoryBus()
    await given(log, *"abcdefg")
    async with running(Relay(log, bus, "one", ttl_s=0.3, options=QUICK).run()):
        await until(lambda: len(bus.event_messages) == 7)
        await given(log, "x", "y")
        await until(lambda: len(bus.event_messages) == 9)
    assert positions(bus) == list(range(1, 10))


async def test_a_relay_that_died_before_its_checkpoint_repeats_and_the_bus_drops_the_copy() -> None:
    log, bus = FaultyLog(), MemoryBus()
    await given(log, *"abcde")
    identity = await log.identity()
    await bus.publish_many([message_of(identity, event) for event in await log.read(0, 3)])
    async with running(Relay(log, bus, "next", ttl_s=0.3, options=QUICK).run()):
        async with asyncio.timeout(60):
            while await log.load_checkpoint(CONSUMER) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    assert positions(bus) == [1, 2, 3, 4, 5]


async def test_two_relays_lose_nothing_and_keep_the_order() -> None:
    log, bus = FaultyLog(), MemoryBus()
    relays = [Relay(log, bus, name, ttl_s=0.2, options=QUICK) for name in ("one", "two")]
    async with running(*(relay.run() for relay in relays)) as tasks:
        await given(log, *"abcd")
        await until(lambda: len(bus.event_messages) == 4)
        tasks[0].cancel()
        await given(log, *"efgh", "again")
        await until(lambda: len(bus.event_messages) == 9)
    assert positions(bus) == list(range(1, 10))


async def test_a_bus_that_is_down_stops_the_position_and_not_the_relay() -> None:
    log, bus = FaultyLog(), MemoryBus()
    bus.down = True
    await given(log, "a", "b")
    options = ConsumerOptions(page_events=2, poll_s=0.05, pause_s=0.01)
    async with running(Relay(log, bus, "one", ttl_s=0.3, options=options).run()):
        await until(lambda: log._leases)
        assert await log.load_checkpoint(CONSUMER) == 0
        bus.down = False
        await until(lambda: len(bus.event_messages) == 2)


def test_a_message_names_log_timeline_position_and_history_and_carries_the_trace() -> None:
    event = Envelope(
        7, "pod/u", 1, "PodBound", 1, b"{}", 0, "r", 0, "c", trace="00-ab", chain=b"\xab" * 32
    )
    message = message_of(LogIdentity("log", 2), event)
    assert message.subject == "topolog.fact.binding.PodBound"
    assert message.headers == {
        subjects.MSG_ID: "log:2:7:" + "ab" * 8,
        subjects.POSITION: "7",
        subjects.CHAIN: "ab" * 32,
        HEADER: "00-ab",
    }


def test_a_event_too_large_for_the_bus_is_announced_without_its_body() -> None:
    event = Envelope(7, "s", 1, "NodeReported", 1, b"x" * (MAX_BODY_BYTES + 1), 0, "r", 0, "c")
    assert message_of(LogIdentity("log", 1), event).data == b""


async def test_a_relay_whose_position_was_moved_gives_up_its_lease_and_goes_on_from_there() -> None:
    log, bus = FaultyLog(), MemoryBus()
    await given(log, "a", "b")
    async with running(Relay(log, bus, "one", ttl_s=0.2, options=QUICK).run()) as (task,):
        await until(lambda: log._checkpoints.get(CONSUMER) == 2)
        epoch = log._epochs[CONSUMER]
        assert await log.save_checkpoint(CONSUMER, 1, expected=2)
        await given(log, "x", "y", "z")
        await until(lambda: log._checkpoints.get(CONSUMER) == 5)
        assert log._epochs[CONSUMER] > epoch
        assert not task.done()
    assert sorted(set(positions(bus))) == [1, 2, 3, 4, 5]
