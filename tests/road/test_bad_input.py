"""Bad input on the real processes: it is named in the outputs that operators read, and the road
goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from services.embedded.data_dir import read_addresses
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from tests.road.harness import Road, folder, running, topolog, wait_until

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """Yield a road with two nodes, an exporter for each, and no workload."""
    with (
        folder() as path,
        running(path, "--nodes", "2", "--workload", "none", "--report-interval", "1") as made,
    ):
        wait_until(
            lambda: len((made.get("topology-store", "/topology") or {}).get("nodes", ())) == 2,
            30,
            "no reports",
            made.output,
        )
        yield made


def manifest(name: str, cpu: str = "2") -> dict[str, object]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "topolog", "containers": [container]},
    }


def phase(road: Road, name: str) -> str:
    return str(((road.kube(f"{PODS}/{name}") or {}).get("status") or {}).get("phase"))


def runs(road: Road, name: str, cpu: str = "2") -> None:
    """Check that a valid pod is still placed and runs."""
    road.kube(PODS, "POST", manifest(name, cpu))
    wait_until(lambda: phase(road, name) == "Running", 60, f"{name} never ran", road.output)


def publish(road: Road, node: str, *bodies: bytes) -> None:
    """Publish a message on the bus in a node's name."""

    async def send() -> None:
        bus = JetStreamBus(read_addresses(road.folder).nats_url or "")
        for body in bodies:
            await bus.publish(subjects.report(node), body, {})
        await bus.close()

    asyncio.run(send())


def test_malformed_reports_are_counted_and_logged_with_node_and_remedy(road: Road) -> None:
    counted = partial(road.count, "topology-store", "topolog_reports_total", verdict="refused")
    count_before = counted()
    publish(road, "stray", b"\xff\x00 no report")
    publish(
        road, "liar", msgspec.json.encode({"node": "another", "boot_id": "b", "boot_time_ms": 1})
    )
    wait_until(lambda: counted() >= count_before + 2, 60, "not counted", road.output)
    log = (road.folder / "logs" / "topology-store.log").read_text()
    assert '"stray"' in log
    assert "upgrade the exporter" in log
    assert "only as its own node" in log
    assert {node["node"] for node in road.get("topology-store", "/topology")["nodes"]}.isdisjoint(
        {"stray", "liar", "another"}
    )
    runs(road, "after-malformed-reports")


def test_an_unparsable_quantity_is_refused_by_the_api_with_its_field(road: Road) -> None:
    answer = road.kube(PODS, "POST", manifest("odd", "two"))
    assert answer["code"] in (400, 422)
    assert "quantit" in answer["message"]
    runs(road, "after-an-odd-quantity")


def test_a_pod_that_fits_nowhere_waits_with_an_event_and_delays_no_pod(road: Road) -> None:
    road.kube(PODS, "POST", manifest("giant", "900"))

    def told() -> list[str]:
        events = (road.kube("/api/v1/namespaces/default/events") or {}).get("items", [])
        return [event["message"] for event in events if event["involvedObject"]["name"] == "giant"]

    message = wait_until(told, 60, "no event", road.output)[0]
    assert message.startswith("0/2 nodes are available: 2 ")
    assert "Insufficient cpu" in message
    runs(road, "after-a-giant")
    explained = topolog("replay", "explain", "giant", "--data-dir", str(road.folder)).stdout
    assert "near miss" in explained
    assert "requests cpu 900" in explained


def test_a_silent_exporter_closes_its_node_for_aligned_pods_until_it_reports_again(
    road: Road,
) -> None:
    """Both exporters are stopped, so aligned pods wait with the reason. After the exporters start
    again, the pods run."""
    exporters = [road.pid("exporter-0"), road.pid("exporter-1")]
    for pid in exporters:
        os.kill(pid, signal.SIGSTOP)
    try:
        silent = lambda: road.count("topology-store", "topolog_nodes_silent") == 2  # noqa: E731
        wait_until(silent, 60, "silence was not noticed", road.output)
        road.kube(PODS, "POST", manifest("waits"))
        condition = wait_until(
            lambda: _unschedulable(road, "waits"), 60, "no condition", road.output
        )
        assert "2 node(s) had an expired topology report" in condition
        assert phase(road, "waits") == "Pending"
    finally:
        for pid in exporters:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: phase(road, "waits") == "Running", 60, "the pod never ran", road.output)
    events = topolog(
        "replay", "log", "--type", "NodeReportExpired", "--data-dir", str(road.folder), "--json"
    ).stdout
    assert events.count("NodeReportExpired") == 2


def _unschedulable(road: Road, name: str) -> str:
    status = (road.kube(f"{PODS}/{name}") or {}).get("status") or {}
    messages = [
        one["message"]
        for one in status.get("conditions", ())
        if one["type"] == "PodScheduled" and one["status"] == "False"
    ]
    return messages[0] if messages else ""
