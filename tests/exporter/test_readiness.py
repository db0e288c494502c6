"""The conditions of the exporter's own pod: as resource-topology-exporter writes them, only on
change, and tried again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from services.exporter.readiness import Pod, PodReadiness, State
from services.exporter.settings import ExporterSettings
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from shared.bus.memory import MemoryBus
from shared.kube.client import KubeClient
from shared.kube.port import Answer, Kube, Lost
from tests.exporter.kubelets import Kubelet
from tests.exporter.test_service import eventually, exporting, kubelet, node  # noqa: F401

POD = Pod("default", "exporter-x")


class Api:
    """Returns the given answers, and records the patches."""

    def __init__(self, *answers: Answer | Lost) -> None:
        self.answers = list(answers)
        self.patched: list[list[dict[str, Any]]] = []

    async def patch_pod_status(
        self, namespace: str, name: str, patch: dict[str, Any]
    ) -> Answer | Lost:
        assert (namespace, name) == ("default", "exporter-x")
        self.patched.append(patch["status"]["conditions"])
        return self.answers.pop(0) if self.answers else Answer(200)


def written(api: Api) -> list[list[tuple[str, str, str | None]]]:
    return [
        [(item["type"], item["status"], item["reason"]) for item in patch] for patch in api.patched
    ]


async def test_conditions_are_written_when_they_change_and_in_rtes_words() -> None:
    api, states = (
        Api(),
        iter(
            [
                State(),
                State(True),
                State(True, True),
                State(True, True),
                State(False, True),
                State(True, False),
            ]
        ),
    )
    readiness = PodReadiness(cast(Kube, api), POD, lambda: next(states), print)
    for _ in range(6):
        await readiness.write()
    assert written(api) == [
        [("PodresourcesFetched", "True", None)],
        [("NodeTopologyUpdated", "True", None)],
        [("PodresourcesFetched", "False", "ScanFailed")],
        [("PodresourcesFetched", "True", None), ("NodeTopologyUpdated", "False", "UpdateFailed")],
    ]


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (
            Answer(403, message="no"),
            "grant patch on pods/status (k8s/components/exporter-readiness)",
        ),
        (Answer(404), "REFERENCE_POD_NAME"),
        (Lost("connection refused"), "connection refused"),
    ],
)
async def test_a_refusal_is_logged_once_and_retried(answer: Answer | Lost, named: str) -> None:
    api, said = Api(answer, answer), list[str]()
    readiness = PodReadiness(cast(Kube, api), POD, lambda: State(True, True), said.append)
    for _ in range(4):
        await readiness.write()
    assert len(api.patched) == 3
    assert named in said[0]
    assert said[1:] == [""]


@pytest.fixture
async def kube() -> AsyncIterator[KubeClient]:
    server = await start(ClusterStore(ApiSettings()))
    kube_client = KubeClient(server.url)
    yield kube_client
    await kube_client.close()
    await server.stop()


async def test_an_api_server_merges_them_with_its_own(kube: KubeClient) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "exporter-x", "namespace": "default"},
        "spec": spec,
    }
    await kube._call("POST", "/api/v1/namespaces/default/pods", body=made)
    states = iter([State(False, True), State(True, True)])
    readiness = PodReadiness(kube, POD, lambda: next(states), print)
    for expected in (
        {"PodresourcesFetched": "False", "NodeTopologyUpdated": "True"},
        {"PodresourcesFetched": "True"},
    ):
        await readiness.write()
        result = await kube.get_pod("default", "exporter-x")
        assert isinstance(result, Answer)
        conditions = {item["type"]: item for item in result.body["status"]["conditions"]}
        assert {kind: conditions[kind]["status"] for kind in expected} == expected
        assert conditions["PodresourcesFetched"]["lastTransitionTime"]
    assert not conditions["PodresourcesFetched"].get("reason"), (
        "a good condition has no reason of an older one"
    )


async def test_a_failing_kubelet_and_an_absent_bus_show_in_the_conditions(kubelet: Kubelet) -> None:  # noqa: F811, RUF100
    bus = MemoryBus()
    bus.down = True
    async with exporting(bus, nodes=(node("n1", kubelet),), interval_s=0.2) as (exporter, recorder):
        assert exporter.state() == State()
        await eventually(lambda: exporter.state() == State(True, False))
        bus.down = False
        await recorder.until(lambda seen: "n1" in seen)
        await eventually(lambda: exporter.state() == State(True, True))
        await kubelet.stop()
        await eventually(lambda: exporter.state().fetched is False)


async def test_without_publishing_the_conditions_are_true(kubelet: Kubelet) -> None:  # noqa: F811, RUF100
    async with exporting(MemoryBus(), nodes=(node("n1", kubelet),), no_publish=True) as (
        exporter,
        _,
    ):
        await eventually(lambda: exporter.state() == State(True, True))


def test_conditions_need_a_pod(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="REFERENCE_POD_NAME"):
        ExporterSettings(nodes=("n1=/s",), podreadiness=True)
    ExporterSettings(nodes=("n1=/s",), podreadiness=True, pod_name="p", pod_namespace="n")
