"""The password of the services' user is changed in a running server: a bus with its URL in a
file comes back by itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.embedded import run_nats
from services.embedded.nats import NatsSettings
from services.embedded.servers import EmbeddedServers
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import BusUnavailable
from shared.domain.secret_url import bus_trouble
from shared.runtime.secret_file import UrlFile
from tests.bus.contract import gather, reported_up_to
from tests.fixtures.servers import short_folder

PATIENCE_S = 60.0


class Rotating:
    """A server that takes its password from a file, as in a container, and the file of the clients'
    URL.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.password, self.url = folder / "password", folder / "url"
        self.password.write_text("first\n")
        monkeypatch.setenv("TOPOLOG_NATS_PASSWORD_FILE", str(self.password))
        monkeypatch.setattr(run_nats, "CREDENTIALS_EVERY_S", 0.1)

    def tell_clients(self, servers: EmbeddedServers, password: str) -> None:
        host = servers.nats_url.rpartition("@")[2]
        self.url.write_text(f"nats://topolog:{password}@{host}\n")


async def test_a_bus_goes_on_with_the_new_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotating = Rotating(tmp_path, monkeypatch)
    with short_folder() as folder:
        settings = NatsSettings(password="first")
        async with EmbeddedServers(
            folder / "data", want_postgres=False, nats_settings=settings
        ) as servers:
            following = asyncio.create_task(run_nats.follow_files(servers, ""))
            rotating.tell_clients(servers, "first")
            bus = JetStreamBus(
                UrlFile(str(rotating.url), bus_trouble), patience_s=PATIENCE_S, heartbeat_s=0.3
            )
            await bus.ensure_streams()
            batches = bus.reports()
            await bus.publish(subjects.report("a"), b"1", {})
            await gather(batches, 1)
            for password in ("second", "third"):
                rotating.password.write_text(password)
                await refused(rotating.url.read_text().strip())
                sending = asyncio.create_task(
                    bus.publish(subjects.report(password), password.encode(), {})
                )
                await asyncio.sleep(0.3)
                assert not sending.done(), "it got in with a password that is no more"
                rotating.tell_clients(servers, password)
                await sending
                assert await reported_up_to(batches, password.encode())
            following.cancel()
            await bus.close()


async def refused(url: str) -> None:
    """Return once the server refuses that password."""
    for _ in range(300):
        bus = JetStreamBus(url, patience_s=0.5)
        try:
            await bus.ensure_streams()
        except BusUnavailable:
            return
        finally:
            await bus.close()
        await asyncio.sleep(0.1)
    raise AssertionError("the server never took up its new password")


async def test_a_file_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, private_nats_url: str
) -> None:
    file = tmp_path / "url"
    bus = JetStreamBus(UrlFile(str(file), bus_trouble), patience_s=0.5)
    try:
        with pytest.raises(BusUnavailable) as received:
            await bus.ensure_streams()
        assert str(file) in str(received.value)
        file.write_text("nats://u:sEcReT#@h")
        await asyncio.sleep(1.5)
        with pytest.raises(BusUnavailable) as received:
            await bus.ensure_streams()
        assert "sEcReT" not in str(received.value)
        file.write_text(private_nats_url)
        bus._patience_s = PATIENCE_S
        await bus.ensure_streams()
    finally:
        await bus.close()
