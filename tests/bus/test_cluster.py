"""Three NATS servers and streams of three replicas, as `k8s/components/nats-cluster` runs them: one
may be away at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

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


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = cluster(tmp_path)
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
        ):  # servers that have yet to find each other make no streams
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


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_the_leader_of_a_stream_goes_and_comes_back(
    servers: Servers, bus: JetStreamBus, fault: str
) -> None:
    """A server that is killed ends its connections; a hanging server is noticed by its silence."""
    batches, positions = bus.reports(), bus.events()
    await bus.publish(subjects.report("a"), b"before", {subjects.MSG_ID: "before"})
    await gather(batches, 1)
    leader = servers[await leader_of(bus, subjects.REPORT_STREAM)]
    with structlog.testing.capture_logs() as lines:
        leader.kill() if fault == "kill" else leader.pause()
        await bus.publish(subjects.report("a"), b"meanwhile", {subjects.MSG_ID: "meanwhile"})
        await bus.publish_many([event_message(3)])
        assert await reported_up_to(batches, b"meanwhile")
        assert (await rung_up_to(positions, 3))[-1] == 3
        leader.start() if fault == "kill" else leader.go_on()
        await bus.publish(subjects.report("a"), b"after", {subjects.MSG_ID: "after"})
        await bus.publish_many([event_message(4)])
        assert await reported_up_to(batches, b"after")
        assert (await rung_up_to(positions, 4))[-1] == 4
    assert names.BUS_STREAM_RECREATED not in [line["event"] for line in lines]
