"""Simulated kubelets at work: the cluster's store on one side, real podresources sockets on the
other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from services.exporter import core
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.source_grpc import GrpcSource
from services.simulator import machine_files, pod_status, workload
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.clock import VirtualClock
from services.simulator.cluster import GPU, NodeShape, Policies, lay_out
from services.simulator.kubelet_agent import Delays
from services.simulator.kubelet_runner import KubeletRunner
from services.simulator.workload import Task, TaskContainer
from shared.domain.report import Report
from shared.domain.resources import CPU, MEMORY

GIB = 2**30
NODE = "n1"
FAST = Delays(listed_s=0.01, step_s=0.005, start_s=0.005, stop_s=0.01)


class Cluster:
    """A store with one simulated node."""

    def __init__(self, folder: Path, store: ClusterStore, policy: str, delays: Delays) -> None:
        self.store = store
        self.nodes = (lay_out(NODE, NodeShape(2, 8, 8 * GIB, {GPU: 4}), Policies(policy)),)
        self.files = machine_files.places(
            folder / "nodes", machine_files.socket_folder(folder), self.nodes
        )
        self.kubelets = KubeletRunner(store, self.nodes, self.files, VirtualClock(1.0), delays)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Cluster:
        await self.kubelets.start()
        self._task = asyncio.create_task(self.kubelets.run())
        return self

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.kubelets.stop()

    def run(self, name: str, cpus: int = 2, lifetime_s: float = 1e6, gpus: int = 0) -> None:
        requests = {CPU: cpus * 1000, MEMORY: GIB, **({GPU: gpus} if gpus else {})}
        task = Task(name, (TaskContainer("c", requests),), lifetime_s)
        self.store.create("pods", workload.manifest(task, "s", "default", "w"))
        self.store.bind(name, "default", NODE)

    def pod(self, name: str) -> dict[str, Any] | None:
        entry = self.store.get("pods", name, "default")
        return entry.obj if entry else None

    def phase(self, name: str) -> str:
        created_pod = self.pod(name)
        return created_pod["status"]["phase"] if created_pod else "gone"

    async def report(self) -> Report:
        files = self.files[0]
        spec = NodeSpec(NODE, str(files.socket), str(files.sysfs), str(files.kubelet_dir))
        reader = NodeReader(spec, ExporterSettings(node_name=NODE), GrpcSource(str(files.socket)))
        try:
            return core.report(NODE, "test", await reader.scan(), core.Rules())
        finally:
            await reader.close()


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    running = await Cluster(tmp_path, ClusterStore(), "single-numa-node", FAST).start()
    yield running
    await running.stop()


def held(report: Report) -> list[tuple[str, list[tuple[str, tuple[int, ...], int]]]]:
    return [
        (p.pod, [(h.resource, h.zones, h.amount) for h in p.held]) for p in report.placements or ()
    ]


async def test_node_registers_ready_without_taints_and_with_what_it_offers(
    cluster: Cluster,
) -> None:
    node = cluster.store.get("nodes", NODE)
    assert node is not None
    assert not node.obj["spec"].get("taints")
    assert node.obj["status"]["allocatable"] == {
        "cpu": "6",
        "ephemeral-storage": "100Gi",
        "memory": "7992Mi",
        GPU: "4",
        "pods": "110",
    }
    ready = next(one for one in node.obj["status"]["conditions"] if one["type"] == "Ready")
    assert ready["status"] == "True"
    assert node.obj["status"]["nodeInfo"]["bootID"] == (await cluster.report()).boot_id


async def test_bound_pod_runs_and_is_reported_where_the_kubelet_put_it(cluster: Cluster) -> None:
    cluster.run("a", 2, gpus=1)
    await eventually(lambda: cluster.phase("a") == "Running")
    report = await cluster.report()
    assert held(report) == [("a", [("cpu", (0,), 2000), ("memory", (0,), GIB), (GPU, (0,), 1)])]
    assert report.placements is not None
    assert report.placements[0].pod_uid == cluster.pod("a")["metadata"]["uid"]  # type: ignore[index]
    assert (report.policy, report.scope) == ("single-numa-node", "container")
    assert report.zones[0].resources["cpu"].available == 1000


async def test_running_status_has_what_a_real_kubelet_writes(cluster: Cluster) -> None:
    cluster.run("a")
    await eventually(lambda: cluster.phase("a") == "Running")
    status = cluster.pod("a")["status"]  # type: ignore[index]
    assert [(one["type"], one["status"]) for one in status["conditions"]] == [
        ("PodReadyToStartContainers", "True"),
        ("Initialized", "True"),
        ("Ready", "True"),
        ("ContainersReady", "True"),
        ("PodScheduled", "True"),
    ]
    (container,) = status["containerStatuses"]
    assert "startedAt" in container["state"]["running"]
    assert {"hostIP", "podIP", "startTime", "qosClass", "observedGeneration"} <= set(status)


def test_a_kubelet_keeps_the_conditions_of_other_writers() -> None:
    """Source: kubelet 1.36, mergePodStatus (pkg/kubelet/status)."""
    ignored = {"type": "topolog.io/PreferencesKept", "status": "False", "reason": "NoEffect"}
    metadata = {"name": "a", "uid": "u"}
    bound = {"metadata": metadata, "spec": {"containers": []}, "status": {"conditions": [ignored]}}
    running = pod_status.running(bound, "t1", "h", "p")
    ended = pod_status.succeeded({**bound, "status": running}, "t2")
    assert [status["conditions"][0] for status in (running, ended)] == [ignored, ignored]
    assert len(ended["conditions"]) == 6


async def test_pod_is_listed_with_nothing_before_its_admission(tmp_path: Path) -> None:
    slow = Delays(listed_s=30.0)
    cluster = await Cluster(tmp_path, ClusterStore(), "single-numa-node", slow).start()
    cluster.run("a")
    await eventually(lambda: cluster.kubelets.agent(NODE).list_bytes() != b"")
    assert held(await cluster.report()) == [("a", [])]
    assert cluster.phase("a") == "Pending"
    await cluster.stop()


async def test_pod_that_fits_no_zone_fails_as_on_a_real_kubelet(cluster: Cluster) -> None:
    cluster.run("a", 4)
    await eventually(lambda: cluster.phase("a") == "Failed")
    status = cluster.pod("a")["status"]  # type: ignore[index]
    assert status["reason"] == "TopologyAffinityError"
    assert (
        status["message"]
        == "Pod was rejected: Resources cannot be allocated with Topology locality"
    )
    assert "conditions" not in status
    assert "containerStatuses" not in status
    events = [entry.obj for entry in cluster.store.list("events")]
    assert [(event["reason"], event["type"], event["message"]) for event in events] == [
        ("TopologyAffinityError", "Warning", "Resources cannot be allocated with Topology locality")
    ]
    assert held(await cluster.report()) == []
    assert [rejection.pod for rejection in cluster.kubelets.rejections] == ["default/a"]


async def test_pod_ends_after_its_lifetime_and_frees_its_cpus(cluster: Cluster) -> None:
    cluster.run("a", 3, lifetime_s=0.05)
    cluster.run("b", 3)
    await eventually(lambda: (cluster.phase("a"), cluster.phase("b")) == ("Succeeded", "Running"))
    assert [name for name, _ in held(await cluster.report())] == ["b"]
    cluster.run("c", 3)
    await eventually(lambda: cluster.phase("c") == "Running")


async def test_deleted_pod_ends_gracefully(cluster: Cluster) -> None:
    cluster.run("a")
    await eventually(lambda: cluster.phase("a") == "Running")
    phases: list[tuple[str, str]] = []
    cluster.store.listen(
        "pods", lambda change: phases.append((change.kind, change.entry.obj["status"]["phase"]))
    )
    cluster.store.delete("pods", "a", "default")
    await eventually(lambda: cluster.phase("a") == "gone")
    assert phases[0] == ("MODIFIED", "Running")
    assert phases[-1] == ("DELETED", "Succeeded")
    assert held(await cluster.report()) == []


async def test_a_pod_deleted_before_it_ran_has_failed_where_a_finalizer_keeps_it(
    tmp_path: Path,
) -> None:
    """Its object stays, and would look as if it were still to start (kubelet 1.36,
    TerminatePod).
    """
    delays = Delays(listed_s=60.0)
    cluster = await Cluster(tmp_path, ClusterStore(), "single-numa-node", delays).start()
    try:
        cluster.run("a")
        cluster.store.patch(
            "pods", "a", "default", {"metadata": {"finalizers": ["example.com/hold"]}}, form="merge"
        )
        await eventually(
            lambda: any(
                known.pod.name == "a" for known in cluster.kubelets.agent(NODE).node.pods.values()
            )
        )
        cluster.store.delete("pods", "a", "default")
        await eventually(lambda: cluster.phase("a") == "Failed")
        assert not cluster.kubelets.agent(NODE).node.pods
        cluster.store.patch(
            "pods", "a", "default", {"metadata": {"finalizers": None}}, form="merge"
        )
        await eventually(lambda: cluster.phase("a") == "gone")
    finally:
        await cluster.stop()


async def test_force_deleted_pod_leaves_the_list_at_once(cluster: Cluster) -> None:
    cluster.run("a")
    await eventually(lambda: cluster.phase("a") == "Running")
    cluster.store.delete("pods", "a", "default", grace_s=0)
    await eventually(lambda: cluster.kubelets.agent(NODE).list_bytes() == b"")
    assert held(await cluster.report()) == []


async def test_pod_deleted_and_created_again_under_its_name_is_another_pod(
    cluster: Cluster,
) -> None:
    cluster.run("a", 3)
    await eventually(lambda: cluster.phase("a") == "Running")
    cluster.store.delete("pods", "a", "default", grace_s=0)
    cluster.run("a", 1)
    await eventually(lambda: cluster.phase("a") == "Running")
    assert held(await cluster.report()) == [("a", [("cpu", (0,), 1000), ("memory", (0,), GIB)])]


async def test_kubelet_restart_keeps_placements(cluster: Cluster) -> None:
    cluster.run("a", 3)
    cluster.run("b", 3, gpus=2)
    await eventually(lambda: {cluster.phase(name) for name in "ab"} == {"Running"})
    report_before = await cluster.report()
    await cluster.kubelets.restart_node(NODE)
    report_after = await cluster.report()
    assert core.same_content(report_before, report_after)
    cluster.run("c", 1)
    await eventually(lambda: cluster.phase("c") == "Failed")


async def test_whole_simulation_resumes_from_its_files(tmp_path: Path) -> None:
    store = ClusterStore(journal_path=tmp_path / "journal")
    first = await Cluster(tmp_path, store, "single-numa-node", FAST).start()
    first.run("a", 3)
    first.run("gone", 3, lifetime_s=0.01)
    await eventually(lambda: (first.phase("a"), first.phase("gone")) == ("Running", "Succeeded"))
    report_before = await first.report()
    await first.stop()
    store.close()
    second = await Cluster(
        tmp_path, ClusterStore(journal_path=tmp_path / "journal"), "single-numa-node", FAST
    ).start()
    assert core.same_content(report_before, await second.report())
    second.run("b", 3)
    await eventually(lambda: second.phase("b") == "Running")
    await second.stop()
    second.store.close()


async def test_a_kubelet_killed_before_it_reported_a_running_pod_keeps_its_zones(
    tmp_path: Path,
) -> None:
    store = ClusterStore(journal_path=tmp_path / "journal")
    first = await Cluster(
        tmp_path, store, "single-numa-node", Delays(0.01, 0.005, start_s=60.0)
    ).start()
    first.run("a", 3)
    await eventually(lambda: bool(first.kubelets.agent(NODE).node.state.cpu.entries))
    first.run("b", 3)
    await eventually(lambda: len(first.kubelets.agent(NODE).node.state.cpu.entries) == 2)
    report_before = await first.report()
    first.store.delete("pods", "a", "default", grace_s=0)
    await first.stop()
    store.close()
    second = await Cluster(
        tmp_path, ClusterStore(journal_path=tmp_path / "journal"), "single-numa-node", FAST
    ).start()
    placed = {name: where for name, where in held(report_before) if name == "b"}
    assert dict(held(await second.report())) == placed
    await eventually(lambda: second.phase("b") == "Running")
    second.run("c", 3)
    await eventually(lambda: second.phase("c") == "Running")
    await second.stop()
    second.store.close()


async def test_an_end_is_reported_before_the_pods_amounts_are_free(cluster: Cluster) -> None:
    """Otherwise a kubelet killed in between finds a running pod that holds nothing, and places it
    again.
    """
    still_held: list[tuple[str, bool]] = []

    def hear(change: Any) -> None:
        obj = change.entry.obj
        if obj["status"]["phase"] == "Succeeded":
            books = cluster.kubelets.agent(NODE).node.state.cpu.entries
            still_held.append((obj["metadata"]["name"], obj["metadata"]["uid"] in books))

    cluster.store.listen("pods", hear)
    cluster.run("short", 2, lifetime_s=0.01)
    cluster.run("deleted", 2)
    await eventually(
        lambda: (cluster.phase("short"), cluster.phase("deleted")) == ("Succeeded", "Running")
    )
    cluster.store.delete("pods", "deleted", "default")
    await eventually(lambda: cluster.phase("deleted") == "gone")
    assert set(still_held) == {("short", True), ("deleted", True)}
    await eventually(lambda: not cluster.kubelets.agent(NODE).node.state.cpu.entries)


async def test_a_kubelet_answers_while_the_runner_has_much_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = [], cluster.store.get

    def slow(*which: Any) -> Any:
        looks.append(which)
        time.sleep(0.01)
        return look(*which)

    monkeypatch.setattr(cluster.store, "get", slow)
    for number in range(150):
        cluster.run(f"p{number}")
    source = GrpcSource(str(cluster.files[0].socket))
    await source.pods()
    await source.close()
    assert len(looks) < 150


async def test_pod_that_cannot_be_read_is_refused_alone(cluster: Cluster) -> None:
    cluster.run("a")
    odd = workload.manifest(Task("odd", (TaskContainer("c", {CPU: 1000}),), 1), "s", "default", "w")
    odd["metadata"]["annotations"] = {workload.LIFETIME_ANNOTATION: "soon"}
    cluster.store.create("pods", odd)
    cluster.store.bind("odd", "default", NODE)
    await eventually(lambda: {cluster.phase("a"), cluster.phase("odd")} == {"Running"})
