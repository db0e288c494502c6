"""lightkube, the client of the production adapters, works against the simulated API server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.generic_resource import create_global_resource
from lightkube.models.core_v1 import Container, ObjectReference, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.simulator.contract import Api

Topology = create_global_resource(
    "topology.node.k8s.io", "v1alpha2", "NodeResourceTopology", "noderesourcetopologies"
)


@pytest.fixture
def client(api: Api) -> AsyncClient:
    config = KubeConfig.from_one(user=User(), cluster=Cluster(server=api.server.url))
    return AsyncClient(config=config, namespace="apirec")


def _pod(name: str) -> Pod:
    spec = PodSpec(containers=[Container(name="c", image="x")], schedulerName="topolog")
    return Pod(metadata=ObjectMeta(name=name, namespace="apirec"), spec=spec)


async def test_create_list_bind_patch_and_delete(api: Api, client: AsyncClient) -> None:
    made = await client.create(_pod("p"))
    assert made.status is not None
    assert made.status.phase == "Pending"
    assert made.metadata is not None
    waiting = [pod.metadata async for pod in client.list(Pod, fields={"spec.nodeName": ""})]
    assert [metadata and metadata.name for metadata in waiting] == ["p"]
    binding = {
        "metadata": {"name": "p", "uid": made.metadata.uid},
        "target": {"kind": "Node", "name": "n1"},
    }
    answer = await api.ask("POST", "/api/v1/namespaces/apirec/pods/p/binding", binding)
    assert answer.status_code == 201
    patch = {"status": {"phase": "Running"}}
    patched = await client.patch(Pod.Status, "p", patch, patch_type=PatchType.MERGE)
    assert patched.status is not None
    assert patched.status.phase == "Running"
    await client.delete(Pod, "p")
    metadata = (await client.get(Pod, "p")).metadata
    assert metadata is not None
    assert metadata.deletionTimestamp is not None
    await client.delete(Pod, "p", grace_period=0)
    with pytest.raises(ApiError) as caught:
        await client.get(Pod, "p")
    assert caught.value.status.code == 404


async def test_its_binding_binds_although_it_then_cannot_read_the_answer(
    api: Api, client: AsyncClient
) -> None:
    from lightkube.resources.core_v1 import PodBinding

    await client.create(_pod("p"))
    binding = PodBinding(
        metadata=ObjectMeta(name="p", namespace="apirec"),
        target=ObjectReference(kind="Node", name="n1"),
    )
    with pytest.raises((msgspec.ValidationError, TypeError)):
        await client.create(binding, "p")
    pod = api.store.get("pods", "p", "apirec")
    assert pod is not None
    assert pod.obj["spec"]["nodeName"] == "n1"


async def test_a_watch_follows_pods_and_topologies(api: Api, client: AsyncClient) -> None:
    seen: list[tuple[str, str]] = []

    async def follow(resource: Any) -> None:
        async for kind, obj in client.watch(resource):
            seen.append((kind, obj.metadata.name))

    async def heard(count: int) -> None:
        async with asyncio.timeout(60):
            while len(seen) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def make(suffix: str) -> None:
        await client.create(_pod(f"p{suffix}"))
        zones = [{"name": "node-0", "type": "Node"}]
        await client.apply(
            Topology(metadata=ObjectMeta(name=f"n{suffix}"), zones=zones), field_manager="exporter"
        )
        api.store.create("nodes", {"metadata": {"name": f"n{suffix}"}})

    await make("1")
    tasks = [asyncio.create_task(follow(resource)) for resource in (Pod, Topology, Node)]
    await heard(3)
    assert sorted(seen) == [("ADDED", "n1"), ("ADDED", "n1"), ("ADDED", "p1")], (
        "what was there before the watch stood"
    )
    seen.clear()
    await make("2")
    await client.delete(Pod, "p2")
    await heard(5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(seen) == [
        ("ADDED", "n2"),
        ("ADDED", "n2"),
        ("ADDED", "p2"),
        ("DELETED", "p2"),
        ("MODIFIED", "p2"),
    ]
