"""The real parts together: events appended to Postgres reach a consumer in another process through
the relay and JetStream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.eventlog.postgres import PostgresEventLog
from shared.runtime.consumer import ConsumerOptions
from shared.runtime.projector import Fold, Projector
from shared.runtime.relay import Relay
from tests.bus.contract import rung_up_to, stand
from tests.eventlog.conftest import log_url, postgres_log  # noqa: F401 - fixtures
from tests.eventlog.words import given
from tests.runtime.helpers import FaultyLog, running


@pytest.fixture
async def bus(private_nats_url: str) -> AsyncIterator[JetStreamBus]:
    bus = JetStreamBus(private_nats_url)
    await bus.ensure_streams()
    yield bus
    await bus.close()


async def test_appended_events_ring_on_the_bus_and_a_projection_follows(
    postgres_log: PostgresEventLog,  # noqa: F811, RUF100
    bus: JetStreamBus,
) -> None:
    positions = bus.events()
    await stand(bus, positions)
    fold: Fold[list[int]] = Fold(
        list, lambda state, envelope, _event: state.append(envelope.position)
    )
    projector = Projector("p", postgres_log, fold, doorbell=bus.events)
    async with running(Relay(postgres_log, bus, "relay-1").run(), projector.run()):
        for turn in range(5):
            await given(postgres_log, *(f"{turn}.{n}" for n in range(40)))
        assert (await rung_up_to(positions, 200))[-1] == 200
        assert await projector.wait_for(200, 60)
    assert projector.state == list(range(1, 201))


async def subscribed(bus: JetStreamBus) -> None:
    """Wait until a consumer of the events exists on the server."""
    async with asyncio.timeout(60):
        while not await bus._js.consumers_info(subjects.FACT_STREAM):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_the_doorbell_alone_is_enough_to_hear_at_once(bus: JetStreamBus) -> None:
    log = FaultyLog()
    log.deaf = True
    fold: Fold[list[int]] = Fold(
        list, lambda state, envelope, _event: state.append(envelope.position)
    )
    projector = Projector("p", log, fold, doorbell=bus.events, options=ConsumerOptions(poll_s=60.0))
    relaying = FaultyLog()
    relaying._events = log._events
    async with running(projector.run(), Relay(relaying, bus, "relay-1").run()):
        await projector.wait_live()
        await subscribed(bus)
        await given(log, "a", "b")
        async with relaying._grown:
            relaying._grown.notify_all()
        assert await projector.wait_for(2, 60)
