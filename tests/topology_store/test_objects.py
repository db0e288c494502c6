"""NodeResourceTopology objects both ways against an API server: mirrored, repaired, collected;
taken in, never our own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from services.topology_store import intake as intake_module
from services.topology_store.handlers import Reports
from services.topology_store.intake import Intake
from services.topology_store.mirror import Mirror
from services.topology_store.mirroring import Terms
from services.topology_store.objects import Objects
from services.topology_store.validation import RefusedReport
from shared.bus.memory import MemoryBus
from shared.domain.report import Report
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.codec import decode
from shared.events.report_events import NodeReportChanged, NodeReported, NodeReportExpired
from shared.kube.client import KubeClient
from shared.kube.koordlet import POD_CPU_ALLOCS
from shared.kube.nrt_mirrored import EXPIRED_SINCE, is_mirrored
from shared.kube.port import Answer, WatchEvent
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.health import Health
from tests.kube.test_koordlet import koordlets
from tests.runtime.helpers import lent, running
from tests.topology_store.words import load, report

PATH = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


class Cluster:
    """An API server, a log, and the tasks between them."""

    def __init__(self, kube: KubeClient, log: MemoryEventLog) -> None:
        self.kube = kube
        self.log = log
        self.reports = Reports(log, lent("topology-store/0"), MemoryBus(), SYSTEM_CLOCK)
        self.intake = Intake(self.reports, SYSTEM_CLOCK)
        self.mirror = Mirror(kube, SYSTEM_CLOCK, Terms(keep_expired_s=1e9), 0.02, 1000.0)
        self._told = 0

    async def tell(self, stream: str, *events: Event, time_us: int = 0) -> None:
        self._told += 1
        drafts = tuple(Draft(stream, event) for event in events)
        await self.log.append([Commit(f"told/{self._told}", "test", 0, time_us, drafts)])

    async def node(self, made: Report | None = None) -> None:
        """Create node n1 and publish its report."""
        await self.tell(streams.node("n1"), NodeObserved("n1", "node-uid"))
        await self.tell(streams.report("n1"), NodeReported(made or report()))

    async def objects(self) -> dict[str, dict[str, Any]]:
        listed = await self.kube.list("noderesourcetopologies")
        return {item["metadata"]["name"]: item for item in listed.items}

    async def n1(self) -> dict[str, Any]:
        return (await self.objects()).get("n1", {})

    async def ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Answer:
        answer = await self.kube._call(method, path, body=body, content_type=content_type)
        assert isinstance(answer, Answer)
        return answer

    async def eventually(self, true: Any) -> None:
        """Wait until a coroutine function returns True."""
        async with asyncio.timeout(60):
            while not await true():  # noqa: ASYNC110 - any condition, not an event
                await asyncio.sleep(0.01)

    async def events(self, node: str = "n1") -> list[Event]:
        return [decode(envelope) for envelope in await self.log.read_stream(streams.report(node))]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = await start(ClusterStore(ApiSettings()))
    kube = KubeClient(server.url)
    test_cluster = Cluster(kube, MemoryEventLog("objects"))
    objects = Objects(kube, SYSTEM_CLOCK, test_cluster.intake, test_cluster.mirror)
    projector = test_cluster.mirror.projector(test_cluster.log, Health())
    async with AsyncExitStack() as stack:
        for work in (objects.run, projector.run, test_cluster.intake.run, test_cluster.mirror.run):
            await stack.enter_async_context(running(work()))
        yield test_cluster
    await kube.close()
    await server.stop()


def free_of(doc: dict[str, Any]) -> list[str]:
    return [
        resource["available"]
        for written_zone in doc.get("zones", [])
        for resource in written_zone["resources"]
    ]


async def mirrored(cluster: Cluster) -> dict[str, Any]:
    async def ours() -> bool:
        return is_mirrored(await cluster.n1())

    await cluster.eventually(ours)
    return await cluster.n1()


async def test_a_reporting_node_is_mirrored_once_and_written_again_only_when_it_changes(
    cluster: Cluster,
) -> None:
    await cluster.node()
    first = await mirrored(cluster)
    assert first["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    await cluster.tell(streams.node("n1"), NodeObserved("n1", "node-uid", labels={"a": "b"}))
    await cluster.tell(
        streams.report("n1"), NodeReportChanged("n1", "boot-1", 2, available={0: {"cpu": 3000}})
    )

    async def changed() -> bool:
        return free_of(await cluster.n1()) == ["3", "8"]

    await cluster.eventually(changed)
    second = await cluster.n1()
    assert (
        int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1
    )


async def test_an_object_that_was_deleted_or_altered_comes_back_at_once(cluster: Cluster) -> None:
    await cluster.node()
    first = await mirrored(cluster)
    assert (await cluster.ask("DELETE", f"{PATH}/n1")).ok

    async def back() -> bool:
        return (await cluster.n1()).get("metadata", {}).get("uid") not in (
            None,
            first["metadata"]["uid"],
        )

    await cluster.eventually(back)
    patch: dict[str, Any] = {"metadata": {"ownerReferences": []}}
    assert (await cluster.ask("PATCH", f"{PATH}/n1", patch, "application/merge-patch+json")).ok

    async def owned() -> bool:
        return bool((await cluster.n1())["metadata"].get("ownerReferences"))

    await cluster.eventually(owned)


async def test_a_silent_node_is_annotated_and_a_node_that_went_is_collected(
    cluster: Cluster,
) -> None:
    await cluster.node()
    await mirrored(cluster)
    await cluster.tell(
        streams.report("n1"), NodeReportExpired("n1", 30), time_us=1_800_000_030_000_000
    )

    async def annotated() -> bool:
        annotations = (await cluster.n1())["metadata"]["annotations"]
        return bool(annotations.get(EXPIRED_SINCE) == "2027-01-15T08:00:00Z")

    await cluster.eventually(annotated)
    await cluster.tell(streams.node("n1"), NodeEnded("n1", "node-uid", "deleted"))

    async def gone() -> bool:
        return await cluster.objects() == {}

    await cluster.eventually(gone)


def foreign(name: str = "n1", available: str = "8", **metadata: Any) -> dict[str, Any]:
    """Return an object as resource-topology-exporter writes it."""
    resource = {"name": "cpu", "capacity": "8", "allocatable": "8", "available": available}
    attributes = {
        "nodeTopologyPodsFingerprint": "pfp0v001ef46db3751d8e999",
        "nodeTopologyPodsFingerprintMethod": "with-exclusive-resources",
        "topologyManagerScope": "pod",
        "topologyManagerPolicy": "single-numa-node",
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, **metadata},
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
        "zones": [
            {"name": f"node-{number}", "type": "Node", "resources": [resource]} for number in (0, 2)
        ],
    }


async def test_anothers_object_becomes_reports_and_is_never_written_over(cluster: Cluster) -> None:
    assert (await cluster.ask("POST", PATH, foreign())).ok
    await cluster.tell(streams.node("n1"), NodeObserved("n1", "node-uid"))

    async def taken() -> bool:
        return bool(await cluster.events())

    await cluster.eventually(taken)
    believed = cluster.reports.nodes["n1"].report
    assert believed is not None
    assert (believed.source, believed.policy, believed.scope, believed.placements) == (
        "nrt",
        "single-numa-node",
        "pod",
        None,
    )
    assert [read_zone.id for read_zone in believed.zones] == [0, 2]
    patch = {"zones": foreign(available="5")["zones"]}
    assert (await cluster.ask("PATCH", f"{PATH}/n1", patch, "application/merge-patch+json")).ok

    async def changed() -> bool:
        return [type(event).__name__ for event in await cluster.events()] == [
            "NodeReported",
            "NodeReportChanged",
        ]

    await cluster.eventually(changed)
    assert not is_mirrored(await cluster.n1())


async def test_an_object_in_the_version_of_the_last_report_is_not_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await cluster.ask("POST", PATH, foreign())).ok

    async def taken() -> bool:
        return bool(await cluster.events())

    await cluster.eventually(taken)
    topology = await cluster.n1()
    read: list[str] = []

    def reading(obj: dict[str, Any], *_: object) -> RefusedReport:
        read.append(obj["metadata"]["resourceVersion"])
        return RefusedReport("n1", "read")

    monkeypatch.setattr(intake_module, "read_object", reading)
    cluster.intake.listing()
    cluster.intake.seen(WatchEvent("ADDED", topology))
    assert not read
    cluster.reports.received_s.clear()

    async def is_alive() -> bool:
        return "n1" in cluster.reports.received_s

    await cluster.eventually(is_alive)
    for field, value in (("resourceVersion", "999999"), ("uid", "another")):
        changed = topology | {"metadata": topology["metadata"] | {field: value}}
        cluster.intake.seen(WatchEvent("MODIFIED", changed))
    assert len(read) == 2


async def test_the_pods_that_koordlet_lists_become_changes_of_the_report(cluster: Cluster) -> None:
    """koordlet changes annotations alone when a pod gets exclusive CPUs."""
    topology = koordlets({"policy": "static", "reservedCPUs": "0"})
    topology |= {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    assert (await cluster.ask("POST", PATH, topology)).ok

    async def has_events(number: int) -> bool:
        return len(await cluster.events()) == number

    await cluster.eventually(partial(has_events, 1))
    alloc = {"namespace": "ns", "name": "a", "uid": "u", "cpuset": "2-3", "managedByKubelet": True}
    patch = {"metadata": {"annotations": {POD_CPU_ALLOCS: json.dumps([alloc])}}}
    merge = "application/merge-patch+json"
    assert (await cluster.ask("PATCH", f"{PATH}/n1", patch, merge)).ok
    await cluster.eventually(partial(has_events, 2))
    reported, changed = await cluster.events()
    assert isinstance(reported, NodeReported)
    assert reported.report.placements == ()
    assert isinstance(changed, NodeReportChanged)
    assert [placement.pod for placement in changed.listed] == ["a"]
    assert changed.available == {0: {"cpu": 1000}}


async def test_our_own_object_is_never_taken_in_and_a_nodes_own_exporter_wins(
    cluster: Cluster,
) -> None:
    await cluster.node()
    await load(cluster.reports, cluster.log)
    await mirrored(cluster)
    assert (await cluster.ask("DELETE", f"{PATH}/n1")).ok
    await cluster.ask("POST", PATH, foreign())
    assert (await cluster.ask("POST", PATH, foreign("n2"))).ok

    async def other_taken() -> bool:
        return bool(await cluster.events("n2"))

    await cluster.eventually(other_taken)
    assert [type(event).__name__ for event in await cluster.events()] == ["NodeReported"]
    believed = cluster.reports.nodes["n1"].report
    assert believed is not None
    assert believed.source == "bus"


async def test_an_object_that_cannot_be_read_holds_up_no_other(cluster: Cluster) -> None:
    bad = foreign("bad")
    bad["zones"][0]["name"] = "zone-0"
    assert (await cluster.ask("POST", PATH, bad)).ok
    assert (await cluster.ask("POST", PATH, foreign("good"))).ok

    async def taken() -> bool:
        return bool(await cluster.events("good"))

    await cluster.eventually(taken)
    assert await cluster.events("bad") == []
