"""A topology-store starts in any state of the bus: a real process with real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.topology_store.bus_streams import BusStreams
from shared.bus.memory import MemoryBus
from tests.bus.nats_process import NatsProcess, cluster
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.fixtures.ports import free_port
from tests.runtime.helpers import running, until
from tests.topology_store.words import Hands

STREAMS = "streams of the bus"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[NatsProcess]]:
    made = list(cluster(tmp_path).values())
    yield made
    for process in made:
        process.kill()


class Store:
    """One process without Kubernetes."""

    def __init__(self, database: str, nats: str) -> None:
        port = str(free_port())
        settings = {
            "DATABASE_URL": database,
            "HTTP_PORT": port,
            "NATS_URL": nats,
            "NATS_REPLICAS": "3",
            "MIRROR": "false",
        }
        self._url = f"http://127.0.0.1:{port}/readyz"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.topology_store"],
            env={**os.environ, **{f"TOPOLOG_{name}": value for name, value in settings.items()}},
            stderr=subprocess.DEVNULL,
        )

    def waiting(self) -> dict[str, str]:
        """Return the problem of readiness, or that there was no answer."""
        assert self.process.poll() is None, f"it ended with exit code {self.process.returncode}"
        try:
            with urllib.request.urlopen(self._url, timeout=10) as answer:
                said = answer.read()
        except urllib.error.HTTPError as refusal:
            said = refusal.read()
        except OSError:
            return {"start": "no answer"}
        waiting: dict[str, str] = json.loads(said)["waiting"]
        return waiting


@pytest.fixture
async def store(log_url: str, servers: list[NatsProcess]) -> AsyncIterator[Store]:  # noqa: F811, RUF100
    store_process = Store(log_url, ",".join(server.url for server in servers))
    yield store_process
    store_process.process.kill()
    store_process.process.wait()


async def test_it_waits_for_servers_that_have_yet_to_find_a_leader(
    store: Store, servers: list[NatsProcess]
) -> None:
    servers[0].start()
    await until(lambda: "did not acknowledge stream" in store.waiting().get(STREAMS, ""))
    for server in servers[1:]:
        server.start()
    await until(lambda: not store.waiting())


async def test_streams_are_made_once_the_bus_is_there() -> None:
    bus, clock = MemoryBus(), Hands()
    bus.down = True
    streams = BusStreams(bus, clock)
    assert streams.waits_for()
    async with running(streams.make()) as (task,):
        await until(lambda: "streams" in streams.waits_for())
        bus.down = False
        await until(lambda: task.done() and not streams.waits_for())
