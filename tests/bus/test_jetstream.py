"""JetStream keeps the contract, and survives what happens to servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import structlog
from nats.aio.client import Client

from shared.bus import subjects
from shared.bus.description import describe
from shared.bus.jetstream import JetStreamBus
from shared.bus.jetstream_client import split_credentials
from shared.bus.jetstream_receipts import barrier
from shared.bus.port import REPORT_BYTES, Bus, BusUnavailable, StreamLimits
from shared.telemetry import logs, names
from tests.bus.contract import (
    LIMIT_S,
    BusContract,
    event_message,
    gather,
    reported_up_to,
    rung_up_to,
)
from tests.bus.nats_process import NatsProcess

PATIENCE_S = 60.0


class TestJetStream(BusContract):
    @pytest.fixture
    async def bus(self, private_nats_url: str) -> AsyncIterator[JetStreamBus]:
        bus = JetStreamBus(private_nats_url, patience_s=PATIENCE_S)
        await bus.ensure_streams()
        yield bus
        await bus.close()

    def hurry(self, bus: Bus) -> None:
        assert isinstance(bus, JetStreamBus)
        bus._patience_s = 0.5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsProcess]:
    process = NatsProcess(tmp_path)
    process.start()
    yield process
    process.kill()


@pytest.fixture
async def bus(server: NatsProcess) -> AsyncIterator[JetStreamBus]:
    bus = JetStreamBus(server.url, patience_s=PATIENCE_S, heartbeat_s=0.3)
    await bus.ensure_streams()
    yield bus
    await bus.close()


async def client_of(server: NatsProcess) -> Client:
    """Return a plain NATS client, to inspect the server without the adapter."""
    client = Client()
    servers, credentials = split_credentials(server.url)
    await client.connect(servers, **credentials)  # type: ignore[arg-type]
    return client


async def test_a_killed_server_is_found_again_and_nothing_acknowledged_is_lost(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    batches, positions = bus.reports(), bus.events()
    await bus.publish(subjects.report("a"), b"1", {})
    await gather(batches, 1)
    server.kill()
    sending = asyncio.create_task(bus.publish(subjects.report("b"), b"2", {subjects.MSG_ID: "b2"}))
    await asyncio.sleep(0.3)
    server.start()
    await sending
    await bus.publish_many([event_message(7)])
    assert await reported_up_to(batches, b"2")
    assert (await rung_up_to(positions, 7))[-1] == 7


async def test_streams_for_more_nodes_keep_the_reports_of_smaller_ones(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    await bus.publish(subjects.report("a"), b"1", {})
    larger = JetStreamBus(server.url, patience_s=PATIENCE_S, limits=StreamLimits(nodes=20_000))
    await larger.ensure_streams()
    (reports,) = [stream for stream in await describe(server.url) if stream.keeps_newest_of_each]
    assert (reports.messages, reports.max_bytes) == (1, 20_000 * REPORT_BYTES)
    await larger.close()


async def test_a_server_that_is_away_is_logged_once(bus: JetStreamBus, server: NatsProcess) -> None:
    """Every exporter retries five times a second."""
    with structlog.testing.capture_logs() as lines:
        server.kill()
        await asyncio.sleep(1.0)
        server.start()
        await bus.publish(subjects.report("a"), b"1", {})
    received = [line["problem"] for line in lines if line["event"] == names.BUS_TROUBLE]
    assert received.count("connection refused") == 1


async def test_a_wiped_volume_costs_the_messages_and_nothing_else(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    batches, positions = bus.reports(), bus.events()
    await bus.publish(subjects.report("a"), b"old", {})
    await gather(batches, 1)
    server.kill()
    server.wipe()
    server.start()
    await bus.publish(subjects.report("a"), b"new", {})
    assert (await gather(batches, 1))[0].data == b"new"
    await bus.publish_many([event_message(3)])
    assert (await rung_up_to(positions, 3))[-1] == 3


async def test_a_consumer_that_vanishes_silently_is_created_again(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    batches = bus.reports()
    await bus.publish(subjects.report("a"), b"1", {})
    await gather(batches, 1)
    client = await client_of(server)
    for consumer in await client.jsm().consumers_info(subjects.REPORT_STREAM):
        await client.jsm().delete_consumer(subjects.REPORT_STREAM, consumer.name)
    await client.close()
    await bus.publish(subjects.report("b"), b"2", {})
    assert await reported_up_to(batches, b"2")


async def test_streams_are_bounded(bus: JetStreamBus, server: NatsProcess) -> None:
    client = await client_of(server)
    reports = (await client.jsm().stream_info(subjects.REPORT_STREAM)).config
    events = (await client.jsm().stream_info(subjects.FACT_STREAM)).config
    await client.close()
    assert reports.max_msgs_per_subject == 1
    for config in (reports, events):
        assert (config.max_bytes or 0) > 0
        assert (config.max_age or 0) > 0
        assert config.duplicate_window > 0


async def test_a_stream_of_an_older_release_stops_acknowledging_reports(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    """An acknowledgement would follow the client's reply subject to any subject of the account."""
    client = await client_of(server)
    config = (await client.jsm().stream_info(subjects.REPORT_STREAM)).config
    config.no_ack, config.republish = False, None
    await client.jsm().update_stream(config)
    await bus.publish(subjects.report("a"), b"1", {})
    await bus.ensure_streams()
    config = (await client.jsm().stream_info(subjects.REPORT_STREAM)).config
    await client.close()
    assert config.no_ack
    assert config.republish is not None
    await bus.publish(subjects.report("a"), b"2", {})
    assert await reported_up_to(bus.reports(), b"2")


async def test_relayed_events_are_stored_in_order_and_once(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    await bus.publish_many([event_message(position) for position in range(1, 700)])
    await bus.publish_many([event_message(position) for position in range(400, 900)])
    client = await client_of(server)
    subscription: Any = await client.jetstream().subscribe(
        subjects.FACT_SUBJECTS, ordered_consumer=True
    )
    stored = [int((await subscription.next_msg(60)).headers[subjects.POSITION]) for _ in range(899)]
    await client.close()
    assert stored == list(range(1, 900))


async def test_a_event_that_was_lost_between_two_that_were_acknowledged_is_sent_again(
    bus: JetStreamBus, server: NatsProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.publish_many([event_message(1)])
    publish, lost = bus._client.publish, [50, 51, 120]

    async def losing(
        subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, Any] | None = None
    ) -> None:
        if lost and headers and headers[subjects.POSITION] == str(lost[0]):
            lost.pop(0)
            return
        await publish(subject, payload, reply, headers)

    monkeypatch.setattr(bus._client, "publish", losing)
    await bus.publish_many([event_message(position) for position in range(2, 200)])
    assert not lost
    client = await client_of(server)
    info = await client.jsm().stream_info(subjects.FACT_STREAM)
    await client.close()
    assert info.state.messages == 199


async def test_a_server_that_is_away_is_logged_with_its_address_and_without_its_password(
    server: NatsProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("test", "json", "debug")
    bus = JetStreamBus(server.url, patience_s=0.5)
    server.kill()
    with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1") as refusal:
        await bus.publish(subjects.report("a"), b"", {})
    server.start()
    bus._patience_s = PATIENCE_S
    await bus.ensure_streams()
    server.kill()
    received = str(refusal.value)
    async with asyncio.timeout(LIMIT_S):
        while "bus.disconnected" not in received:
            await asyncio.sleep(0.02)
            received += capfd.readouterr().err
    assert not await bus.connected()
    await bus.close()
    assert "s3cr" not in received + capfd.readouterr().err


async def test_closing_while_the_server_is_away_does_not_raise(
    bus: JetStreamBus, server: NatsProcess
) -> None:
    batches = bus.reports()
    await bus.publish(subjects.report("a"), b"1", {})
    await gather(batches, 1)
    server.kill()
    async with asyncio.timeout(LIMIT_S):
        while await bus.connected():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await bus.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://h:1", (["nats://h:1"], {})),
        ("h:1", (["nats://h:1"], {})),
        ("nats://u:p%40@h:1", (["nats://h:1"], {"user": "u", "password": "p@"})),
        ("nats://token@h:1", (["nats://h:1"], {"token": "token"})),
        (
            "nats://u:p@h:1, nats://g:2",
            (["nats://h:1", "nats://g:2"], {"user": "u", "password": "p"}),
        ),
    ],
)
def test_credentials_are_taken_out_of_the_url(
    url: str, expected: tuple[list[str], dict[str, str]]
) -> None:
    assert split_credentials(url) == expected


async def test_a_caller_that_gives_up_does_not_close_the_connection(private_nats_url: str) -> None:
    """The PONG of a cancelled flush made nats-py disconnect, under load with every report."""
    closed = asyncio.Event()

    async def disconnected() -> None:
        closed.set()

    client = await nats.connect(private_nats_url, disconnected_cb=disconnected)
    try:
        for _ in range(20):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await barrier(client)
        await barrier(client)
        assert not closed.is_set()
    finally:
        await client.close()
