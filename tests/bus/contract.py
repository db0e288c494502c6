"""The promises of every bus. Each adapter subclasses these tests and has a fixture `bus` that is
empty and has its streams.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from shared.bus import subjects
from shared.bus.port import Bus, BusUnavailable, Message
from shared.telemetry.propagation import HEADER

# A test that waits this long has failed. No time is measured.
LIMIT_S = 60.0


async def gather(batches: AsyncIterator[list[Message]], wanted: int) -> list[Message]:
    """Return the first `wanted` messages."""
    result: list[Message] = []
    async with asyncio.timeout(LIMIT_S):
        while len(result) < wanted:
            result += await anext(batches)
    return result


async def reported_up_to(batches: AsyncIterator[list[Message]], wanted: bytes) -> list[Message]:
    """Return the messages up to the one with the body `wanted`. A bus with a failure may deliver
    earlier messages twice.
    """
    result: list[Message] = []
    while wanted not in [message.data for message in result]:
        result += await gather(batches, 1)
    return result


async def rung_up_to(positions: AsyncIterator[int], wanted: int) -> list[int]:
    """Return the positions that the bus announced, up to `wanted`."""
    received: list[int] = []
    async with asyncio.timeout(LIMIT_S):
        while wanted not in received:
            received.append(await anext(positions))
    return received


def event_message(position: int, message_id: str = "") -> Message:
    headers = {subjects.MSG_ID: message_id or f"log:1:{position}", subjects.POSITION: str(position)}
    return Message(subjects.event("cluster", "PodRunning"), b"{}", headers)


async def stand(bus: Bus, *bells: AsyncIterator[int]) -> None:
    """Publish position 1 until every subscriber has received it, so that later messages reach all
    of them. More messages with 1 may still arrive.
    """
    ears = [asyncio.create_task(_first(bell)) for bell in bells]
    async with asyncio.timeout(LIMIT_S):
        for number in itertools.count():
            await bus.publish_many([event_message(1, f"stand:{number}")])
            if not (await asyncio.wait(ears, timeout=0.05))[1]:
                return


async def _first(bell: AsyncIterator[int]) -> int:
    return await anext(bell)


class BusContract:
    """The whole contract."""

    def hurry(self, bus: Bus) -> None:
        """Let a bus that waits patiently give up soon."""

    async def test_reports_begin_with_the_newest_of_every_node(self, bus: Bus) -> None:
        for node, body in (("a", b"1"), ("b", b"2"), ("a", b"3")):
            await bus.publish(subjects.report(node), body, {})
        result = await gather(bus.reports(), 2)
        assert {message.subject: message.data for message in result} == {
            subjects.report("a"): b"3",
            subjects.report("b"): b"2",
        }

    async def test_reports_go_on_with_each_new_one(self, bus: Bus) -> None:
        await bus.publish(subjects.report("a"), b"1", {})
        batches = bus.reports()
        await gather(batches, 1)
        await bus.publish(subjects.report("a.b%c"), b"2", {})
        (message,) = await gather(batches, 1)
        assert subjects.unescape(message.subject.rpartition(".")[2]) == "a.b%c"
        assert message.data == b"2"

    async def test_headers_travel_with_the_message(self, bus: Bus) -> None:
        await bus.publish(subjects.report("a"), b"1", {HEADER: "00-ab", subjects.MSG_ID: "x"})
        (message,) = await gather(bus.reports(), 1)
        assert message.headers[HEADER] == "00-ab"

    async def test_an_event_with_a_known_message_id_does_not_ring_again(self, bus: Bus) -> None:
        positions = bus.events()
        await stand(bus, positions)
        await bus.publish_many([event_message(7, "same"), event_message(8, "same")])
        await bus.publish_many([event_message(9)])
        assert 8 not in await rung_up_to(positions, 9)

    async def test_a_message_id_does_not_suppress_the_report_of_another_node(
        self, bus: Bus
    ) -> None:
        for node in ("a", "b"):
            await bus.publish(subjects.report(node), b"1", {subjects.MSG_ID: "same"})
        assert len(await gather(bus.reports(), 2)) == 2

    async def test_a_slow_reader_gets_the_newest_report_and_not_the_backlog(self, bus: Bus) -> None:
        batches = bus.reports()
        await bus.publish(subjects.report("a"), b"begin", {})
        await gather(batches, 1)
        for number in range(300):
            await bus.publish(subjects.report("a"), str(number).encode(), {})
        await asyncio.sleep(0.3)
        result = await reported_up_to(batches, b"299")
        assert len(result) < 100, "one, when the last of them was delivered by now"

    async def test_the_doorbell_rings_for_new_events(self, bus: Bus) -> None:
        positions = bus.events()
        await stand(bus, positions)
        await bus.publish_many([event_message(position) for position in range(1, 601)])
        received = await rung_up_to(positions, 600)
        assert received == sorted(received)

    async def test_a_damaged_position_does_not_ring(self, bus: Bus) -> None:
        positions = bus.events()
        await stand(bus, positions)
        wrong = Message(subjects.event("cluster", "PodRunning"), b"{}", {subjects.POSITION: "²-9"})
        await bus.publish_many([wrong, event_message(5)])
        assert [position for position in await rung_up_to(positions, 5) if position > 1] == [5]

    async def test_two_readers_both_hear_everything(self, bus: Bus) -> None:
        first_one, two = bus.events(), bus.events()
        await stand(bus, first_one, two)
        await bus.publish_many([event_message(1), event_message(2)])
        assert (await rung_up_to(first_one, 2))[-1] == 2
        assert (await rung_up_to(two, 2))[-1] == 2

    async def test_streams_may_be_ensured_again(self, bus: Bus) -> None:
        await bus.publish(subjects.report("a"), b"1", {})
        await asyncio.gather(bus.ensure_streams(), bus.ensure_streams())
        assert len(await gather(bus.reports(), 1)) == 1

    async def test_a_subject_that_no_stream_takes_is_unavailable(self, bus: Bus) -> None:
        self.hurry(bus)
        with pytest.raises(BusUnavailable, match=r"topolog\.nonsense"):
            await bus.publish("topolog.nonsense", b"", {})

    async def test_readers_end_when_the_bus_is_closed(self, bus: Bus) -> None:
        assert await bus.connected()
        batches, positions = bus.reports(), bus.events()
        await stand(bus, positions)
        await bus.close()
        async with asyncio.timeout(LIMIT_S):
            assert [batch async for batch in batches] == []
            assert [position async for position in positions] == []
        assert not await bus.connected()
