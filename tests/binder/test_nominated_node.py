"""`status.nominatedNodeName` follows the nominations of the log, as people and other schedulers
expect it of kube-scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from services.binder.announcements import condition, nominated
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.scheduling_events import (
    NominationWithdrawn,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)
from shared.kube.port import Answer, Lost, Object
from tests.binder.words import Cluster
from tests.ledger.given import pod
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:  # noqa: F811, RUF100
    test_cluster = Cluster(api)
    yield test_cluster
    await test_cluster.kube.close()


async def waiting(cluster: Cluster, name: str = "a") -> str:
    """Create a pod that waits, in the API and in the log, and return its uid."""
    uid = str((await cluster.api.pod(name))["metadata"]["uid"])
    changed = msgspec.structs.replace(pod(name, uid=uid), namespace="apirec")
    await cluster.tell(streams.pod(uid), PodObserved(changed))
    return uid


async def nominee(cluster: Cluster) -> str | None:
    nominated_node = (await cluster.stands())["status"].get("nominatedNodeName")
    return str(nominated_node) if nominated_node is not None else None


async def becomes(cluster: Cluster, node: str | None) -> None:
    async with asyncio.timeout(10):
        while await nominee(cluster) != node:  # noqa: ASYNC110 - written in the background
            await asyncio.sleep(0.01)


async def test_the_status_has_the_nominated_node_and_the_condition(cluster: Cluster) -> None:
    uid = await waiting(cluster)
    async with cluster.binder(announce=True):
        await cluster.tell(streams.pod(uid), PodVerdictChanged(uid, "0/1 nodes: 1 too little cpu"))
        await cluster.tell(streams.pod(uid), PodNominated(uid, "n1", ("uid-victim",)))
        await becomes(cluster, "n1")
        async with asyncio.timeout(10):
            while "conditions" not in (status := (await cluster.stands())["status"]):  # noqa: ASYNC110 - written in the background
                await asyncio.sleep(0.01)
    assert status["conditions"][0]["message"] == "0/1 nodes: 1 too little cpu"


async def test_it_is_taken_away_when_the_nomination_is_withdrawn(cluster: Cluster) -> None:
    uid = await waiting(cluster)
    async with cluster.binder(announce=True):
        await cluster.tell(streams.pod(uid), PodNominated(uid, "n1"))
        await becomes(cluster, "n1")
        await cluster.tell(
            streams.pod(uid), NominationWithdrawn(uid, "n1", "an eviction was refused")
        )
        await becomes(cluster, None)


async def test_it_is_taken_away_when_another_node_is_taken(cluster: Cluster) -> None:
    uid = await waiting(cluster)
    async with cluster.binder(announce=True):
        await cluster.tell(streams.pod(uid), PodNominated(uid, "n1"))
        await becomes(cluster, "n1")
        await cluster.tell(streams.pod(uid), PodReserved(uid, "n2"))
        await becomes(cluster, None)
        await bound(cluster, "n2")


async def test_it_is_left_to_the_api_server_when_the_nominee_takes_its_node(
    cluster: Cluster,
) -> None:
    """The API server clears the field when it binds the pod."""
    uid = await waiting(cluster)
    patched: list[Object] = []
    write = cluster.kube.patch_pod_status

    async def seen(namespace: str, name: str, patch: Object) -> Answer | Lost:
        patched.append(patch)
        return await write(namespace, name, patch)

    cluster.kube.patch_pod_status = seen  # type: ignore[method-assign]
    async with cluster.binder(announce=True):
        await cluster.tell(streams.pod(uid), PodNominated(uid, "n1"))
        await becomes(cluster, "n1")
        await cluster.tell(streams.pod(uid), PodReserved(uid, "n1", nominated=True))
        await bound(cluster, "n1")
        assert await nominee(cluster) is None
    assert [patch["status"] for patch in patched] == [{"nominatedNodeName": "n1"}]


async def bound(cluster: Cluster, node: str) -> None:
    async with asyncio.timeout(10):
        while (await cluster.stands())["spec"].get("nodeName") != node:  # noqa: ASYNC110 - written in the background
            await asyncio.sleep(0.01)


async def test_a_namesake_is_not_nominated(cluster: Cluster) -> None:
    await waiting(cluster)
    answer = await cluster.kube.patch_pod_status("apirec", "a", nominated("uid-of-another", "n1"))
    assert isinstance(answer, Answer)
    assert not answer.ok
    assert await nominee(cluster) is None


async def test_a_condition_is_not_written_to_another_pod_of_the_name(cluster: Cluster) -> None:
    """The other pod may run already."""
    await waiting(cluster)
    answer = await cluster.kube.patch_pod_status(
        "apirec", "a", condition("uid-of-another", "0/1 nodes", 0)
    )
    assert isinstance(answer, Answer)
    assert answer.status == 422
    assert "conditions" not in (await cluster.stands())["status"]
