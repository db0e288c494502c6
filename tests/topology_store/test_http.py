"""Topology over HTTP, on a real socket: the listing, a node now and at a position, and requests
wrong with a question.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import httpx2
import pytest
from starlette.routing import Route

from services.topology_store import http
from services.topology_store.handlers import Reports
from shared.bus.memory import MemoryBus
from shared.eventlog import whole_stream
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.report_events import (
    NodeReportChanged,
    NodeReported,
    NodeReportExpired,
    NodeReportRefused,
)
from shared.runtime.app import Service
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.health import Health
from shared.runtime.http import HttpServer
from shared.telemetry.setup import Telemetry
from tests.runtime.helpers import FaultyLog, lent, undecodable
from tests.topology_store.words import load, report


class Site:
    """A server over a log; `ask` answers status and body."""

    def __init__(self) -> None:
        self.log = FaultyLog()
        self.reports = Reports(self.log, lent("topology-store/0"), MemoryBus(), SYSTEM_CLOCK)
        self.server = HttpServer("127.0.0.1", 0, Health(), cast(Telemetry, None))
        http.serve(cast(Service, self), self.reports, self.log)
        self._told = 0

    def route(self, path: str, answer: Any) -> None:
        """Add a route, as `Service.route` does."""
        self.server.add(Route(path, answer))

    async def tell(self, node: str, *events: Event) -> None:
        await self.append(streams.report(node), *events)

    async def append(self, stream: str, *events: Event) -> None:
        for event in events:
            self._told += 1
            await self.log.append(
                [Commit(f"told/{self._told}", "test", 0, 0, (Draft(stream, event),))]
            )
        await load(self.reports, self.log)

    async def ask(self, path: str) -> tuple[int, Any]:
        async with httpx2.AsyncClient(base_url=self.server.url, timeout=60) as client:
            answer = await client.get(path)
        return answer.status_code, answer.json()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.server.start()
    yield made
    await made.server.close()


def free(topology: dict[str, Any]) -> list[str]:
    return [resource["available"] for zone in topology["zones"] for resource in zone["resources"]]


async def test_the_listing_has_a_row_for_each_node_that_is_known_in_order(site: Site) -> None:
    assert await site.ask("/topology") == (200, {"nodes": []})
    await site.tell("n2", NodeReported(report(node="n2")))
    await site.tell("n1", NodeReported(report()), NodeReportExpired("n1", 30))
    await site.append(streams.node("n1"), NodeObserved("n1", "uid-1"))
    status, body = await site.ask("/topology")
    row = {"locked": "", "boot_id": "boot-1", "zones": 2, "policy": "single-numa-node"}
    assert status == 200
    assert body["nodes"] == [
        {"node": "n1", "version": 2, "expired": True, **row},
        {"node": "n2", "version": 1, "expired": False, **row},
    ]


async def test_a_removed_node_leaves_the_listing_and_has_a_past(
    site: Site,
) -> None:
    """The listing drops invented names and nodes that were removed from the cluster. Silent and
    locked nodes stay.
    """

    async def listed() -> list[str]:
        return [row["node"] for row in (await site.ask("/topology"))[1]["nodes"]]

    for name in ("gone", "invented", "locked", "silent"):
        await site.tell(name, NodeReported(report(node=name)))
    for name in ("gone", "silent"):
        await site.append(streams.node(name), NodeObserved(name, f"uid-{name}"))
    await site.append(streams.node("gone"), NodeEnded("gone", "uid-gone", "deleted"))
    await site.append(
        streams.node("silent"), NodeEnded("silent", "uid-of-its-predecessor", "deleted")
    )
    assert await listed() == ["gone", "invented", "locked", "silent"], "whoever reports is listed"
    for name in ("gone", "invented", "locked", "silent"):
        await site.tell(name, NodeReportExpired(name, 30))
    await site.tell("locked", NodeReportRefused("locked", "boot-2", "exporter-1", "why"))
    assert await listed() == ["locked", "silent"]
    assert (await site.ask("/topology/invented"))[0] == 200
    status, answer = await site.ask("/topology/gone")
    assert (status, "?position=N shows" in answer["error"]) == (404, True)
    assert (await site.ask("/topology/gone?position=1"))[0] == 200
    await site.append(streams.node("gone"), NodeObserved("gone", "uid-again"))
    assert await listed() == ["gone", "locked", "silent"]


async def test_a_node_is_shown_now_and_at_a_position(site: Site) -> None:
    await site.tell(
        "n1",
        NodeReported(report()),
        NodeReportChanged("n1", "boot-1", 2, available={0: {"cpu": 3000}}),
    )
    current, then = (
        (await site.ask("/topology/n1"))[1],
        (await site.ask("/topology/n1?position=1"))[1],
    )
    assert (free(current["topology"]), current["version"]) == (["3", "8"], 2)
    assert (free(then["topology"]), then["version"]) == (["8", "8"], 1)
    assert (await site.ask("/topology/n1?position=2"))[1] == current
    assert (await site.ask("/topology/n1?position=999999999999999999"))[1] == current


async def test_more_events_than_a_page_are_all_folded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_stream, "PAGE", 2)
    changes = [
        NodeReportChanged("n1", "boot-1", time_ms, available={0: {"cpu": 1000 * time_ms}})
        for time_ms in range(2, 8)
    ]
    await site.tell("n1", NodeReported(report()), *changes)
    stood = [
        free((await site.ask(f"/topology/n1?position={position}"))[1]["topology"])[0]
        for position in range(1, 8)
    ]
    assert stood == ["8", "2", "3", "4", "5", "6", "7"]


async def test_a_node_that_has_not_reported_is_named_now_and_then(site: Site) -> None:
    await site.tell("n2", NodeReported(report(node="n2")))
    await site.tell("n1", NodeReported(report()))
    for path in (
        "/topology/stranger",
        "/topology/stranger?position=1",
        "/topology/n1?position=1",
        "/topology/n1?position=0",
    ):
        status, body = await site.ask(path)
        assert status == 404, path
        assert "has not reported" in body["error"]


@pytest.mark.parametrize("position", ["²", "-1", "1.0", "x", "9" * 19, "٣", "1_0", " 1"])
async def test_a_position_that_is_no_number_is_refused_with_its_words(
    site: Site, position: str
) -> None:
    await site.tell("n1", NodeReported(report()))
    status, body = await site.ask(f"/topology/n1?position={position}")
    assert (status, repr(position) in body["error"]) == (400, True)


async def test_a_event_that_cannot_be_read_is_named_and_the_server_goes_on(site: Site) -> None:
    await site.tell("n1", NodeReported(report()), NodeReportExpired("n1", 30))
    whole = site.log.read_stream

    async def damaged(stream: str, after: int = 0, limit: int = 1000) -> Any:
        return undecodable(2)(await whole(stream, after, limit))

    site.log.read_stream = damaged  # type: ignore[assignment,method-assign]
    status, body = await site.ask("/topology/n1?position=5")
    assert (status, "FromTheFuture" in body["error"]) == (500, True)
    assert (await site.ask("/topology/n1?position=1"))[0] == 200
    assert (await site.ask("/topology"))[0] == 200
