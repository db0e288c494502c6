"""A consumer gets every event once and in order, whatever the log, the bus and the handlers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from shared.bus.memory import MemoryBus
from shared.eventlog.errors import LogUnavailable
from shared.events.envelope import Envelope
from shared.runtime import consumer as consumer_module
from shared.runtime.clock import SystemClock
from shared.runtime.consumer import Consumer, Overtaken, Refold
from shared.runtime.health import Health
from shared.telemetry import names
from tests.bus.contract import event_message
from tests.eventlog.words import given
from tests.runtime.helpers import QUICK, FaultyLog, hole, running, until


class Heard:
    """A handler that records positions and resets."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.resets: list[str] = []

    async def handle(self, page: Sequence[Envelope]) -> None:
        self.positions += [event.position for event in page]

    async def reset(self, cause: str) -> None:
        self.resets.append(cause)
        self.positions.clear()


@pytest.fixture
def log() -> FaultyLog:
    return FaultyLog()


@pytest.fixture
def received_messages() -> Heard:
    return Heard()


async def test_everything_is_heard_from_the_start_and_then_as_it_comes(
    log: FaultyLog, received_messages: Heard
) -> None:
    await given(log, *"abcdefgh")
    consumer = Consumer("c", log, received_messages.handle, options=QUICK)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        await given(log, "x", "y")
        assert await consumer.wait_for(9, 60)
    assert received_messages.positions[:9] == list(range(1, 10))


async def test_an_urgent_event_does_not_wait_for_further_events(
    log: FaultyLog, received_messages: Heard
) -> None:
    """The urgency may come before the event is received, or while the reader waits for more."""
    consumer = Consumer(
        "c",
        log,
        received_messages.handle,
        options=msgspec.structs.replace(QUICK, linger_s=3600, poll_s=3600),
    )
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        for item in "ab":
            await given(log, item)
            assert not await consumer.wait_for(consumer.position + 1, 0.05)
            assert await consumer.wait_for(consumer.position + 1, 60, hurry=True)
            early = asyncio.create_task(consumer.wait_for(consumer.position + 1, 60, hurry=True))
            await asyncio.sleep(0)
            await given(log, item + item)
            assert await early


class Later(SystemClock):
    """A clock that can also be advanced by hand."""

    passed_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_s


async def test_what_comes_after_a_silence_is_read_at_once_and_what_follows_it_waits(
    log: FaultyLog, received_messages: Heard
) -> None:
    clock, options = Later(), msgspec.structs.replace(QUICK, linger_s=1000, poll_s=3600)
    consumer = Consumer("c", log, received_messages.handle, clock=clock, options=options)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        clock.passed_s = 1000
        await given(log, "a")
        assert await consumer.wait_for(1, 60)
        await given(log, "b")
        assert not await consumer.wait_for(2, 0.05)


async def test_a_deaf_log_and_no_bus_still_converge_by_polling(
    log: FaultyLog, received_messages: Heard
) -> None:
    log.deaf = True
    consumer = Consumer("c", log, received_messages.handle, options=QUICK)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        await given(log, "x", "y")
        await until(lambda: received_messages.positions == [1, 2])


async def test_a_broken_doorbell_costs_nothing_but_speed(
    log: FaultyLog, received_messages: Heard
) -> None:
    def broken() -> AsyncIterator[int]:
        raise OSError("no bus")

    consumer = Consumer("c", log, received_messages.handle, doorbell=broken, options=QUICK)
    async with running(consumer.run()):
        await given(log, "x")
        await until(lambda: received_messages.positions == [1])


async def test_the_doorbell_wakes_a_consumer_without_notifications_and_a_false_ring_is_harmless(
    log: FaultyLog, received_messages: Heard
) -> None:
    log.deaf, bus = True, MemoryBus()
    slow = type(QUICK)(page_events=3, poll_s=60.0, pause_s=0.01)
    consumer = Consumer("c", log, received_messages.handle, doorbell=bus.events, options=slow)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        await bus.publish_many([event_message(99)])
        await given(log, "x")
        await bus.publish_many([event_message(1)])
        await until(lambda: received_messages.positions == [1])


async def test_a_log_that_is_away_makes_it_wait_and_not_ready(
    log: FaultyLog, received_messages: Heard
) -> None:
    health = Health()
    consumer = Consumer("c", log, received_messages.handle, health=health, options=QUICK)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        assert health.status().ready
        log.away = True
        await until(lambda: not health.status().ready)
        await given(log, "x", "y")
        log.away = False
        await until(lambda: received_messages.positions == [1, 2])
        await until(lambda: health.status().ready)


async def test_a_hole_halts_this_consumer_red_and_no_other(
    log: FaultyLog, received_messages: Heard
) -> None:
    await given(log, *"abcd")
    health, second, fine = Health(), Heard(), FaultyLog()
    await given(fine, *"abcd")
    log.damage = hole(3)
    broken = Consumer("broken", log, received_messages.handle, health=health, options=QUICK)
    healthy = Consumer("healthy", fine, second.handle, health=health, options=QUICK)
    async with running(broken.run(), healthy.run()) as tasks:
        await until(lambda: second.positions == [1, 2, 3, 4])
        await until(lambda: not health.status().healthy)
        await given(fine, "e")
        await until(lambda: 5 in second.positions)
        assert not any(task.done() for task in tasks)
    assert "no hole" in health.status().red["consumer broken"]
    assert 4 not in received_messages.positions


async def test_a_new_timeline_resets_and_refolds(log: FaultyLog, received_messages: Heard) -> None:
    await given(log, *"abc")
    consumer = Consumer(
        "c", log, received_messages.handle, on_reset=received_messages.reset, options=QUICK
    )
    async with running(consumer.run()):
        await until(lambda: received_messages.positions == [1, 2, 3])
        await log.begin_timeline(0)
        await until(
            lambda: (
                received_messages.resets == ["other_timeline"]
                and received_messages.positions == [1, 2, 3, 4]
            )
        )


async def test_a_log_set_back_by_a_restore_resets_and_refolds(
    log: FaultyLog, received_messages: Heard
) -> None:
    await given(log, *"abcde")
    consumer = Consumer(
        "c", log, received_messages.handle, on_reset=received_messages.reset, options=QUICK
    )
    async with running(consumer.run()):
        await until(lambda: len(received_messages.positions) == 5)
        log.restore(2)
        await until(
            lambda: (
                received_messages.resets == ["head_behind"]
                and received_messages.positions == [1, 2]
            )
        )


async def test_a_checkpoint_is_never_ahead_of_what_was_handled(log: FaultyLog) -> None:
    await given(log, *"abcdefg")
    done: list[int] = []
    broken = asyncio.Event()
    broken.set()

    async def effect(page: Sequence[Envelope]) -> None:
        assert await log.load_checkpoint("c") == (done[-1] if done else 0)
        if broken.is_set() and page[-1].position > 3:
            raise RuntimeError("effect failed")
        done.extend(event.position for event in page)

    with pytest.raises(RuntimeError):
        await Consumer("c", log, effect, checkpoint=True, options=QUICK).run()
    assert await log.load_checkpoint("c") == 3
    broken.clear()
    again = Consumer("c", log, effect, checkpoint=True, options=QUICK)
    async with running(again.run()):
        await again.wait_for(7, 60)
    assert done == [1, 2, 3, 4, 5, 6, 7]
    assert await log.load_checkpoint("c") == 7


async def test_a_consumer_whose_checkpoint_another_moved_stops(
    log: FaultyLog, received_messages: Heard
) -> None:
    consumer = Consumer("c", log, received_messages.handle, checkpoint=True, options=QUICK)
    async with running(consumer.run()) as (task,):
        await until(consumer.live.is_set)
        await log.save_checkpoint("c", 40, 0)
        await given(log, "a")
        with pytest.raises(Overtaken):
            await asyncio.wait_for(task, 60)


async def test_a_checkpoint_that_another_moved_while_the_answer_was_lost_stops_the_consumer(
    log: FaultyLog, received_messages: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, so the consumer must look, and not take its own checkpoint as moved."""
    save = log.save_checkpoint

    async def moved_by_another(name: str, position: int, expected: int) -> bool:
        monkeypatch.setattr(log, "save_checkpoint", save)
        await save(name, 40, expected)
        raise LogUnavailable("the answer was lost")

    consumer = Consumer("c", log, received_messages.handle, checkpoint=True, options=QUICK)
    async with running(consumer.run()) as (task,):
        await until(consumer.live.is_set)
        monkeypatch.setattr(log, "save_checkpoint", moved_by_another)
        await given(log, "a")
        with pytest.raises(Overtaken):
            await asyncio.wait_for(task, 60)


async def test_waiting_for_a_position_that_does_not_come_ends_false(
    log: FaultyLog, received_messages: Heard
) -> None:
    consumer = Consumer("c", log, received_messages.handle, options=QUICK)
    async with running(consumer.run()):
        assert not await consumer.wait_for(1, 0.05)


async def test_lag_is_reported_in_events_and_in_seconds_while_a_reader_is_behind(
    log: FaultyLog, received_messages: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: dict[str, list[float]] = {}
    monkeypatch.setattr(
        consumer_module,
        "set_gauge",
        lambda metric, value, **_: received.setdefault(metric.name, []).append(value),
    )
    await given(log, *"abcdefgh")
    consumer = Consumer("c", log, received_messages.handle, options=QUICK)
    async with running(consumer.run()):
        assert await consumer.wait_for(8, 60)
        await until(consumer.live.is_set)
    assert received[names.CONSUMER_LAG_FACTS.name][:3] == [5, 2, 0]
    seconds = received[names.CONSUMER_LAG_SECONDS.name]
    assert seconds[0] > 1_000_000, "the facts were written at the beginning of Unix time"
    assert seconds[2] == 0.0


class Asked(FaultyLog):
    """A log that records the positions after which pages were read. Some reads fail once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.failing: set[int] = set()

    async def read(self, later: int, limit: int = 1000) -> list[Envelope]:
        self.asked.append(later)
        if later in self.failing:
            self.failing.remove(later)
            raise LogUnavailable("away")
        return await super().read(later, limit)


async def test_only_a_consumer_that_is_behind_reads_the_next_page_ahead() -> None:
    log, asked_before = Asked(), dict[int, list[int]]()
    await given(log, *"abcdefgh")

    async def handle(page: Sequence[Envelope]) -> None:
        asked_before[page[0].position] = list(log.asked)

    consumer = Consumer("c", log, handle, options=QUICK)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
        assert asked_before == {1: [0, 2], 4: [0, 2, 5], 7: [0, 2, 5]}
        await given(log, *"ijklmno")
        assert await consumer.wait_for(15, 60)
    assert all(asked[-1] == first - 2 for first, asked in asked_before.items() if first > 9)


async def test_a_page_asked_for_early_that_fails_is_asked_for_again(
    received_messages: Heard,
) -> None:
    log = Asked()
    log.failing = {2, 5}
    await given(log, *"abcdefgh")
    consumer = Consumer("c", log, received_messages.handle, options=QUICK)
    async with running(consumer.run()):
        await until(consumer.live.is_set)
    assert received_messages.positions == list(range(1, 9))
    assert log.asked == [0, 2, 2, 5, 5]


async def test_a_page_asked_for_early_counts_for_nothing_after_a_reset(
    received_messages: Heard,
) -> None:
    log, begun = Asked(), [False]
    await given(log, *"abcdefgh")

    async def handle(page: Sequence[Envelope]) -> None:
        if page[0].position == 4 and not begun[0]:
            begun[0] = True
            raise Refold("anew")
        await received_messages.handle(page)

    consumer = Consumer("c", log, handle, on_reset=received_messages.reset, options=QUICK)
    async with running(consumer.run()):
        await until(lambda: consumer.live.is_set() and begun[0])
    assert (received_messages.resets, received_messages.positions) == (["anew"], list(range(1, 9)))
    assert log.asked[:4] == [0, 2, 5, 0]


async def test_a_restored_log_is_noticed_though_a_page_was_asked_for_early(
    received_messages: Heard,
) -> None:
    log = Asked()
    await given(log, *"abcdefgh")

    async def handle(page: Sequence[Envelope]) -> None:
        if page[0].position == 4 and not received_messages.resets:
            log.restore(5)
            await given(log, *"vwxyz")
        await received_messages.handle(page)

    consumer = Consumer("c", log, handle, on_reset=received_messages.reset, options=QUICK)
    async with running(consumer.run()):
        await until(lambda: consumer.live.is_set() and received_messages.resets)
        assert await consumer.wait_for(await log.head(), 60)
    assert received_messages.resets == ["other_history"]
    assert received_messages.positions == list(range(1, await log.head() + 1))
