"""Changed histories: an event of an unknown type, and an older backup under a newer JetStream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.replay.filters import Filter
from services.replay.listing import Listing, list_events
from shared.bus.jetstream import JetStreamBus
from shared.bus.memory import MemoryBus
from shared.bus.subjects import MSG_ID
from shared.eventlog.port import LogIdentity
from shared.eventlog.postgres import PostgresEventLog
from shared.events.envelope import Envelope
from shared.runtime.health import Health
from shared.runtime.projector import Fold, Projector
from shared.runtime.relay import Relay, message_of
from tests.bus.contract import rung_up_to, stand
from tests.eventlog.conftest import migrated_database
from tests.eventlog.words import given, places
from tests.fixtures.servers import PostgresServer, database_name
from tests.runtime.helpers import QUICK, FaultyLog, running, undecodable, until

Places = list[tuple[int, str]]


def fold() -> Fold[Places]:
    return Fold(
        list, lambda state, envelope, _event: state.append((envelope.position, envelope.stream))
    )


async def test_an_unknown_event_type_quarantines_its_stream_and_stops_no_service() -> None:
    log, bus, health = FaultyLog(), MemoryBus(), Health()
    await given(log, *"abc")
    log.damage = undecodable(3)
    folding = Projector("folding", log, fold(), health=health, options=QUICK)
    async with running(folding.run(), Relay(log, bus, "relay-1", options=QUICK).run()):
        await until(lambda: not health.status().healthy)
        await given(log, *"def")
        await until(lambda: len(bus.event_messages) == 6 and folding.position == 6)
    problem = health.status().red["folding: stream c is quarantined"]
    assert "event 3 (FromTheFuture" in problem
    assert "unknown type" in problem
    assert "topolog replay log --from 3" in problem
    assert "topolog log skip 3" in problem
    assert folding.state == [(1, "a"), (2, "b"), (4, "d"), (5, "e"), (6, "f")]


async def test_an_unknown_event_type_is_listed_as_what_it_is_and_the_list_goes_on() -> None:
    log = FaultyLog()
    await given(log, *"abcd")
    log.damage = undecodable(2)
    shown: list[dict[str, Any]] = []
    await list_events(log, Listing(Filter()), shown.append)
    assert [row["position"] for row in shown] == [1, 2, 3, 4]
    assert "unknown type" in shown[1]["text"]


class Restored:
    """A log that is replaced while all services run, as a restore of the database does."""

    def __init__(self, log: PostgresEventLog) -> None:
        self.now = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


@pytest.fixture
async def bus(private_nats_url: str) -> AsyncIterator[JetStreamBus]:
    bus_client = JetStreamBus(private_nats_url)
    await bus_client.ensure_streams()
    yield bus_client
    await bus_client.close()


async def index_at(log: PostgresEventLog, position: int) -> tuple[LogIdentity, Envelope]:
    """Return the log and its event at a position, as the relay gets them."""
    return await log.identity(), (await log.read(position - 1, 1))[0]


async def test_an_older_backup_that_outgrew_its_readers_is_folded_again_as_another_history(
    postgres_server: PostgresServer, bus: JetStreamBus
) -> None:
    url = migrated_database(postgres_server)
    log = await PostgresEventLog.open(url, retry_for_s=10.0)
    await given(log, *(f"kept-{number}" for number in range(5)))
    await log.close()
    backup = postgres_server.create(database_name(url))
    lost, older = [await PostgresEventLog.open(item, retry_for_s=10.0) for item in (url, backup)]
    switch = Restored(lost)
    resets: list[int] = []
    projector = Projector(
        "p", switch, fold(), on_reset=lambda state: resets.append(len(state)), options=QUICK
    )
    try:
        rung = bus.events()
        await stand(bus, rung)
        async with running(projector.run(), Relay(switch, bus, "relay-1", options=QUICK).run()):
            await given(lost, *(f"lost-{number}" for number in range(7)))
            assert await projector.wait_for(12, 60)
            assert (await rung_up_to(rung, 12))[-1] == 12
            await given(older, *(f"new-{number}" for number in range(9)))
            switch.now = older
            await until(lambda: resets == [0] and projector.position >= 14)
            received_messages = await rung_up_to(rung, 14)
        assert [stream for _, stream in projector.state] == [
            stream for _, stream, _ in await places(older)
        ]
        assert not any("lost" in stream for _, stream in projector.state)
        assert received_messages[-1] == 14
        assert (
            message_of(*await index_at(lost, 6)).headers[MSG_ID]
            != message_of(*await index_at(older, 6)).headers[MSG_ID]
        ), "message ids carry the chain: JetStream does not take position 6 for the one it has seen"
    finally:
        await lost.close()
        await older.close()
        for item in (url, backup):
            postgres_server.drop(item)
