"""Workloads as users try them: controllers make, replace and delete pods; scale, log and exec
answer; protobuf is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core.refusals import Refusal
from services.simulator.api.http import protobuf, scale, simulated
from services.simulator.api.http.request import Request
from services.simulator.api.http.routes import place_of
from services.simulator.controllers import Controllers

Json = dict[str, Any]


def template(**metadata: Json) -> Json:
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "metadata": {"labels": {"app": "web"}, **metadata},
        "spec": {"schedulerName": "topolog", "containers": [container]},
    }


def deployment(replicas: int = 2) -> Json:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(),
    }
    return {"metadata": {"name": "web"}, "spec": spec}


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterStore]:
    store = ClusterStore(seed=1)
    running = asyncio.create_task(Controllers(store).run())
    await asyncio.sleep(0)
    yield store
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def names(store: ClusterStore) -> list[str]:
    return sorted(entry.obj["metadata"]["name"] for entry in store.list("pods"))


def run_all(store: ClusterStore, phase: str = "Running") -> None:
    for entry in store.list("pods"):
        if entry.obj["status"].get("phase") == "Pending":
            store.replace_status("pods", entry.obj["metadata"]["name"], "default", {"phase": phase})


async def test_a_deployment_has_its_pods_scales_rolls_out_and_goes(cluster: ClusterStore) -> None:
    cluster.create("deployments", deployment())
    await until(lambda: len(names(cluster)) == 2)
    run_all(cluster)

    def shown() -> dict[str, Any]:
        entry = cluster.get("deployments", "web", "default")
        assert entry is not None
        return entry.obj

    await until(lambda: shown()["status"].get("readyReplicas") == 2)
    first = names(cluster)

    target = place_of("/apis/apps/v1/namespaces/default/deployments/web/scale")
    body = b'{"spec":{"replicas":4}}'
    request = Request("PATCH", "", {}, "", "application/json", body)
    assert scale.answer(cluster, target, request).code == 200  # type: ignore[arg-type]
    await until(lambda: len(names(cluster)) == 4)

    changed = template()
    changed["spec"]["containers"][0]["image"] = "y"
    cluster.patch("deployments", "web", "default", {"spec": {"template": changed}}, form="merge")
    await until(lambda: len(names(cluster)) == 4 and not set(first) & set(names(cluster)))
    cluster.delete("deployments", "web", "default")
    await until(lambda: names(cluster) == [])


async def test_a_finished_pod_of_a_deployment_is_replaced_and_a_deleted_one_too(
    cluster: ClusterStore,
) -> None:
    cluster.create("deployments", deployment(1))
    await until(lambda: len(names(cluster)) == 1)
    (first,) = names(cluster)
    run_all(cluster, "Failed")
    await until(lambda: len(names(cluster)) == 1 and names(cluster) != [first])
    (second,) = names(cluster)
    cluster.delete("pods", second, "default", grace_s=0)
    await until(lambda: len(names(cluster)) == 1 and names(cluster) != [second])


async def test_a_stateful_set_numbers_its_pods(cluster: ClusterStore) -> None:
    cluster.create("statefulsets", deployment(3))
    await until(lambda: names(cluster) == ["web-0", "web-1", "web-2"])
    cluster.delete("pods", "web-1", "default", grace_s=0)
    await until(lambda: names(cluster) == ["web-0", "web-1", "web-2"])


async def test_a_job_runs_to_its_completions(cluster: ClusterStore) -> None:
    cluster.create(
        "jobs",
        {
            "metadata": {"name": "sum"},
            "spec": {"completions": 3, "parallelism": 2, "template": template()},
        },
    )
    await until(lambda: len(names(cluster)) == 2)
    run_all(cluster, "Succeeded")
    await until(lambda: len(names(cluster)) == 3)
    run_all(cluster, "Succeeded")

    def status() -> dict[str, Any]:
        job = cluster.get("jobs", "sum", "default")
        assert job is not None
        shown: dict[str, Any] = job.obj["status"]
        return shown

    await until(lambda: any(one["type"] == "Complete" for one in status().get("conditions", [])))
    assert status()["succeeded"] == 3


def test_a_pod_takes_the_priority_of_its_class_and_a_missing_class_is_named() -> None:
    store = ClusterStore(seed=1)
    store.create("priorityclasses", {"metadata": {"name": "gold"}, "value": 1000})
    pod: dict[str, Any] = {
        "metadata": {"name": "p"},
        "spec": {"priorityClassName": "gold", "containers": [{"name": "c", "image": "x"}]},
    }
    created_object = store.create("pods", pod)
    assert not isinstance(created_object, Refusal)
    assert created_object.obj["spec"]["priority"] == 1000
    refused = store.create(
        "pods", {"metadata": {"name": "q"}, "spec": {**pod["spec"], "priorityClassName": "none"}}
    )
    assert isinstance(refused, Refusal)
    assert "no PriorityClass with name none was found" in refused.body["message"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": -1},
        {"template": {}},
        {"selector": {"matchLabels": {"app": "other"}}},
        {"selector": {}},
    ],
)
def test_a_workload_that_cannot_be_meant_is_refused(wrong: Json) -> None:
    obj = deployment()
    made = ClusterStore(seed=1).create("deployments", {**obj, "spec": {**obj["spec"], **wrong}})
    assert isinstance(made, Refusal)
    assert made.code == 422


@pytest.mark.parametrize(
    ("subresource", "code"), [("log", 200), ("exec", 501), ("attach", 501), ("portforward", 501)]
)
def test_what_a_simulated_pod_cannot_do_is_said_clearly(subresource: str, code: int) -> None:
    store = ClusterStore(seed=1)
    store.create(
        "pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    )
    path = f"/api/v1/namespaces/default/pods/p/{subresource}"
    answer = simulated.answer(store, place_of(path))  # type: ignore[arg-type]
    assert answer.code == code
    assert b"default/p is simulated: no container runs in it" in answer.body
    assert simulated.answer(store, place_of(path.replace("/p/", "/q/"))).code == 404  # type: ignore[arg-type]


def encoded(*fields: tuple[int, bytes | int]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += bytes([number << 3, value])
        else:
            out += bytes([number << 3 | 2, len(value)]) + value
    return out


def test_what_kubectl_create_sends_as_protobuf_is_read() -> None:
    entry = encoded((1, b"a"), (2, b"b"))
    raw = encoded((1, encoded((1, b"c"))), (2, entry))
    head = encoded((1, b"v1"), (2, b"ConfigMap"))
    body = b"k8s\x00" + encoded((1, head), (2, raw))
    assert protobuf.decode(body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "b"},
    }
