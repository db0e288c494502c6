"""The mirror when the API does not do as it should: refused, lost and foreign writes, versions that
cannot carry it; its rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.topology_store.mirror import AT_ONCE, Mirror
from services.topology_store.mirroring import Terms
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved
from shared.events.report_events import NodeReported, NodeReportExpired
from shared.kube.nrt_mirrored import is_mirrored
from shared.kube.port import Answer, Lost, WatchEvent
from shared.runtime.health import Health
from shared.telemetry import logs
from tests.runtime.helpers import running, until
from tests.topology_store.words import Hands, report


class Api:
    """An API with objects by name. It answers `troubles` first, in order, and records the
    requests.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.troubles: list[Answer | Lost] = []
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0

    async def apply_topology(
        self, name: str, topology: dict[str, Any], force: bool = True
    ) -> Answer | Lost:
        return await self._answer(
            f"apply {name}{' by force' if force else ''}", lambda: self._store(name, topology)
        )

    async def delete_topology(self, name: str, uid: str, resource_version: str) -> Answer | Lost:
        return await self._answer(
            f"delete {name} {uid} {resource_version}", lambda: self.objects.pop(name, {})
        )

    async def _answer(self, what: str, act: Any) -> Answer | Lost:
        self.asked.append(what)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self.troubles.pop(0) if self.troubles else Answer(200, body=act())

    def _store(self, name: str, topology: dict[str, Any]) -> dict[str, Any]:
        version = (
            int(self.objects.get(name, {}).get("metadata", {}).get("resourceVersion", "0")) + 1
        )
        metadata = {
            **topology["metadata"],
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
        }
        self.objects[name] = {**topology, "metadata": metadata}
        return self.objects[name]


class Slept(Hands):
    """A clock that records each sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.sleeps.append(delay_s)
        await asyncio.sleep(0.002)


class Scene:
    """A mirror that folds a log and writes to an API."""

    def __init__(self) -> None:
        self.api, self.log, self.clock = Api(), MemoryEventLog("mirror"), Slept()
        self.mirror = Mirror(self.api, self.clock, Terms(keep_expired_s=60.0), 0.5, 100.0)  # type: ignore[arg-type]
        self._told = 0

    async def tell(self, stream: str, event: Event, time_us: int = 0) -> None:
        self._told += 1
        await self.log.append(
            [Commit(f"told/{self._told}", "test", 0, time_us, (Draft(stream, event),))]
        )

    async def node(self, name: str = "n1") -> None:
        await self.tell(streams.node(name), NodeObserved(name, f"node-{name}"))
        await self.tell(streams.report(name), NodeReported(report(node=name)))
        await until(lambda: (ledger := self.mirror.ledger()) is not None and name in ledger.nodes)

    def listed(self, version: str, *objects: dict[str, Any]) -> None:
        """Return a complete list of the API's objects."""
        self.mirror.listing()
        for item in objects:
            self.mirror.seen(WatchEvent("ADDED", item))
        self.mirror.complete(version)

    async def rounds(self, count: int = 3) -> None:
        """Let the mirror run this many more rounds."""
        wanted = self.clock.sleeps.count(0.5) + count
        await until(lambda: self.clock.sleeps.count(0.5) >= wanted)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    logs.configure("topology-store", "json")
    made = Scene()
    assert made.mirror.ledger() is None, "nothing was folded yet"
    async with running(made.mirror.projector(made.log, Health()).run(), made.mirror.run()):
        yield made


@pytest.mark.parametrize(
    "trouble",
    [
        Lost("the connection was reset"),
        Answer(409, "Conflict"),
        Answer(500),
        Answer(403, "Forbidden"),
        Answer(404),
    ],
    ids=["lost", "conflict", "error", "forbidden", "no definition"],
)
async def test_a_failed_write_is_logged_and_repeated_until_the_object_exists(
    scene: Scene, trouble: Answer | Lost, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.api.troubles = [trouble, trouble]
    scene.listed("v1alpha2")
    await scene.node()
    await until(lambda: "n1" in scene.api.objects)
    assert is_mirrored(scene.api.objects["n1"])
    assert scene.api.asked == ["apply n1"] * 3
    assert capsys.readouterr().err.count("n1") >= 2
    await scene.rounds()
    assert len(scene.api.asked) == 3, "what stands is not written again"


async def test_a_version_that_cannot_carry_the_mark_is_not_written(scene: Scene) -> None:
    scene.listed("v1alpha1")
    await scene.node()
    await scene.rounds()
    scene.mirror.seen(WatchEvent("MODIFIED", {"metadata": {"name": "n1"}}))
    await scene.rounds()
    assert scene.api.asked == []
    scene.listed("v1alpha2")
    await until(lambda: "n1" in scene.api.objects)


async def test_what_another_exporter_wrote_is_left_alone_until_it_is_deleted(scene: Scene) -> None:
    foreign = {"metadata": {"name": "n1", "uid": "theirs", "resourceVersion": "7"}, "zones": []}
    scene.listed("v1alpha2", foreign)
    await scene.node()
    await scene.rounds()
    scene.mirror.seen(WatchEvent("MODIFIED", foreign))
    await scene.rounds()
    assert scene.api.asked == []
    scene.mirror.seen(WatchEvent("DELETED", foreign))
    await until(lambda: "n1" in scene.api.objects)
    assert scene.api.asked == ["apply n1"]


async def test_a_node_that_stays_silent_loses_exactly_the_object_that_was_seen(
    scene: Scene,
) -> None:
    scene.listed("v1alpha2")
    await scene.node()
    await until(lambda: "n1" in scene.api.objects)
    scene.clock.now_s = 1000.0
    await scene.tell(streams.report("n1"), NodeReportExpired("n1", 30), time_us=1_000_000_000)
    await until(lambda: "apply n1 by force" in scene.api.asked)
    await scene.rounds()
    scene.api.troubles = [
        Answer(409, "Conflict", "changed meanwhile"),
        Answer(404, "NotFound", "gone"),
    ]
    scene.clock.now_s = 1031.0
    await until(lambda: scene.api.asked[-1].startswith("delete"))
    await until(lambda: not scene.api.troubles)
    assert scene.api.asked[2:4] == ["delete n1 uid-n1 2"] * 2
    scene.mirror.seen(WatchEvent("DELETED", {"metadata": {"name": "n1"}}))
    await scene.rounds()
    asked = len(scene.api.asked)
    await scene.rounds()
    assert len(scene.api.asked) == asked, "gone is gone"


async def test_many_nodes_are_written_a_few_at_once_and_at_the_rate_that_was_set(
    scene: Scene,
) -> None:
    for number in range(20):
        await scene.node(f"n{number:02d}")
    await until(lambda: (ledger := scene.mirror.ledger()) is not None and len(ledger.nodes) == 20)
    scene.listed("v1alpha2")
    await until(lambda: len(scene.api.objects) == 20)
    assert scene.api.most_at_once == AT_ONCE
    paused_s = [slept_s for slept_s in scene.clock.sleeps if slept_s != 0.5]
    await scene.rounds(1)
    assert paused_s[:2] == [AT_ONCE / 100.0] * 2, "eight writes, then as long as eight may take"
