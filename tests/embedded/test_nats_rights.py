"""The permissions of the exporter's NATS user, and each forbidden action, tried on the bundled
server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from services.embedded.nats import NatsSettings
from services.embedded.servers import EmbeddedServers
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from tests.embedded.refused import settled

FORBIDDEN_SUBSCRIPTIONS = [
    "_INBOX.>",
    "_INBOX_topolog.>",
    ">",
    "topolog.report.*",
    "topolog.fact.>",
    "$JS.API.>",
    "$SYS.>",
]
FORBIDDEN_PUBLICATIONS = [
    "topolog.fact.cluster.PodEnded",
    f"$JS.API.STREAM.DELETE.{subjects.REPORT_STREAM}",
    f"$JS.API.STREAM.PURGE.{subjects.REPORT_STREAM}",
    f"$JS.API.STREAM.UPDATE.{subjects.REPORT_STREAM}",
    f"$JS.API.STREAM.MSG.GET.{subjects.REPORT_STREAM}",
    f"$JS.API.CONSUMER.CREATE.{subjects.REPORT_STREAM}",
    f"$JS.API.STREAM.INFO.{subjects.FACT_STREAM}",
    "$JS.API.STREAM.CREATE.MINE",
]


@pytest.fixture
async def urls(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Yield the bundled server's URLs: that of the services' user, and that of the exporter's."""
    settings = NatsSettings(exporter_password="only-reports")
    async with EmbeddedServers(
        tmp_path / "data", want_postgres=False, nats_settings=settings
    ) as servers:
        bus = JetStreamBus(servers.nats_url)
        await bus.ensure_streams()
        await bus.close()
        host = servers.nats_url.rpartition("@")[2]
        yield servers.nats_url, f"nats://exporter:only-reports@{host}"


@pytest.fixture
async def exporter_client(urls: tuple[str, str]) -> AsyncIterator[tuple[Client, list[str]]]:
    """Yield a plain client of the exporter's user, and the refusals of the server."""
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    client = Client()
    await client.connect(urls[1], error_cb=note)
    yield client, refused
    await client.close()


async def test_the_exporters_user_publishes_reports_and_hears_that_they_were_stored(
    urls: tuple[str, str],
) -> None:
    bus = JetStreamBus(urls[1], keeps_streams=False)
    await bus.publish(subjects.report("n1"), b"{}", {})
    await bus.close()


async def test_the_services_user_reads_them(urls: tuple[str, str]) -> None:
    sender, reader = JetStreamBus(urls[1], keeps_streams=False), JetStreamBus(urls[0])
    await sender.publish(subjects.report("n1"), b"{}", {})
    async with asyncio.timeout(30):
        batch = await anext(reader.reports())
    assert [message.subject for message in batch] == [subjects.report("n1")]
    await asyncio.gather(sender.close(), reader.close())


@pytest.mark.parametrize("subject", FORBIDDEN_SUBSCRIPTIONS)
async def test_the_exporters_user_may_not_listen(
    exporter_client: tuple[Client, list[str]], subject: str
) -> None:
    client, refused = exporter_client
    await client.subscribe(subject, cb=_ignored)
    await settled(client, refused)
    assert any("permissions violation for subscription" in text for text in refused), refused


@pytest.mark.parametrize("subject", FORBIDDEN_PUBLICATIONS)
async def test_the_exporters_user_may_not_speak(
    exporter_client: tuple[Client, list[str]], subject: str
) -> None:
    client, refused = exporter_client
    await client.publish(subject, b"{}")
    await settled(client, refused)
    assert any("permissions violation for publish" in text for text in refused), refused


async def _ignored(_message: Any) -> None:
    return
