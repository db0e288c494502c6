"""Three NATS servers and streams of three replicas, as `k8s/components/nats-cluster` runs them: one
may be away at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from shared.bus import subjects
from shared.bus.description import describe, size_of
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import BusUnavailable, StreamLimits
from shared.telemetry import names
from tests.bus.contract import LIMIT_S, event_message, gather, reported_up_to, rung_up_to
from tests.bus.nats_process import NatsProcess, cluster

Servers = dict[str, NatsProcess]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One cluster for the file: it takes 5 s until its servers have found each other."""
    made = cluster(tmp_path_factory.mktemp("cluster"))
    for item in made.values():
        item.start()
    yield made
    for item in made.values():
        item.kill()


@pytest.fixture
async def bus(servers: Servers) -> AsyncIterator[JetStreamBus]:
    url = ",".join(item.url for item in servers.values())
    bus = JetStreamBus(url, patience_s=LIMIT_S, heartbeat_s=0.3, limits=StreamLimits(replicas=3))
    while True:
        with contextlib.suppress(
            BusUnavailable
        ):  # Servers create no streams before they have found each other.
            await bus.ensure_streams()
            break
        await asyncio.sleep(0.1)
    yield bus
    await bus.close()


async def leader_of(bus: JetStreamBus, stream: str) -> str:
    info = await bus._js.stream_info(stream)
    assert info.cluster is not None
    assert info.cluster.leader
    return info.cluster.leader


async def test_servers_behind_one_name_are_counted_once_each(
    servers: Servers, bus: JetStreamBus
) -> None:
    """A Kubernetes Service has a name that belongs to none of its servers."""
    url = servers["n1"].url.replace("127.0.0.1", "localhost")
    assert "localhost" in url
    assert {(stream.replicas, stream.servers) for stream in await describe(url)} == {(3, 3)}


@pytest.mark.parametrize(
    ("received", "size"),
    [
        ([], 1),
        (["10.0.0.1:4222", "10.0.0.2:4222"], 2),
        (["10.0.0.1:4222", "[fd00::1]:4222", "10.0.0.2:4222", "[fd00::2]:4222"], 2),
        (["nats-0.nats:4222", "nats-1.nats:4222", "nats-2.nats:4222"], 3),
    ],
)
def test_a_server_with_addresses_of_both_families_counts_once(
    received: list[str], size: int
) -> None:
    assert size_of(received) == size


async def test_the_leader_of_a_stream_goes_and_comes_back(
    servers: Servers, bus: JetStreamBus
) -> None:
    """A server that is killed ends its connections; a hanging server is noticed by its silence."""
    batches, positions = bus.reports(), bus.events()
    await publish(bus, "before")
    await gather(batches, 1)
    with structlog.testing.capture_logs() as lines:
        for fault, position in (("kill", 3), ("pause", 5)):
            leader = servers[await leader_of(bus, subjects.REPORT_STREAM)]
            leader.kill() if fault == "kill" else leader.pause()
            await publish(bus, f"meanwhile {fault}")
            await bus.publish_many([event_message(position)])
            assert await reported_up_to(batches, f"meanwhile {fault}".encode())
            assert (await rung_up_to(positions, position))[-1] == position
            leader.start() if fault == "kill" else leader.go_on()
            await publish(bus, f"after {fault}")
            await bus.publish_many([event_message(position + 1)])
            assert await reported_up_to(batches, f"after {fault}".encode())
            assert (await rung_up_to(positions, position + 1))[-1] == position + 1
    assert names.BUS_STREAM_RECREATED not in [line["event"] for line in lines]


async def publish(bus: JetStreamBus, body: str) -> None:
    """Publish a report of node a."""
    await bus.publish(subjects.report("a"), body.encode(), {subjects.MSG_ID: body})
