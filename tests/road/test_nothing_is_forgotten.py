"""kill -9 of everything, at any moment and at named points, changes nothing in the end: none twice,
none lost, no charge left.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.road.harness import Road, folder, running, verified, wait_until

WORKLOAD = (
    "--nodes",
    "4",
    "--pods",
    "60",
    "--speed",
    "8",
    "--report-interval",
    "1",
    "--exit-when-idle",
    "--idle-after",
    "30",
)


def assert_nothing_was_forgotten(road: Road, path: Path) -> None:
    code = road.wait(170)
    workload = road.summary()["workload"]
    assert code == 0, f"{workload}\n{road.output()}"
    assert workload["rejected"] == workload["lost"] == 0
    assert workload["succeeded"] + len(workload["infeasible"]) == workload["total"]
    verdict = verified(path)
    assert verdict["live_pods"] == len(workload["infeasible"])


@pytest.mark.timeout(240)
def test_each_service_and_server_killed_in_turn() -> None:
    seed = 7
    rng = random.Random(seed)
    with folder() as path, running(path, *WORKLOAD) as road:
        wait_until(
            lambda: road.summary().get("workload", {}).get("running", 0) > 0,
            60,
            "no pod ran",
            road.output,
        )
        for name in (
            "scheduler",
            "binder",
            "topology-store",
            "exporter-0",
            "nats",
            "postgres",
            "scheduler",
            "binder",
        ):
            time.sleep(rng.uniform(0.2, 1.2))
            if road.process.poll() is None:
                road.kill(name)
        assert_nothing_was_forgotten(road, path)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("owner", ["kubelet", "topolog"])
def test_deaths_at_every_named_point_one_after_the_other(tmp_path: Path, owner: str) -> None:
    """With the owner `topolog` the nodes' agents reject a CPU that two pods get."""
    tmp_path.chmod(0o777)
    points = {
        "binder.after_intent": 1,
        "binder.after_call": 5,
        "binder.after_outcome": 5,
        "scheduler.after_reserve": 1,
    }
    wanted = ",".join(f"{name}:{nth}" for name, nth in points.items())
    env = {"TOPOLOG_CRASH_AT": wanted, "TOPOLOG_CRASH_ONCE": str(tmp_path)}
    few = (
        "--nodes",
        "4",
        "--pods",
        "30",
        "--speed",
        "60",
        "--report-interval",
        "1",
        "--exit-when-idle",
        "--owner",
        owner,
    )
    with folder() as path, running(path, *few, env=env) as road:
        assert_nothing_was_forgotten(road, path)
        assert {mark.name for mark in tmp_path.iterdir()} == set(points), (
            "a crash point was never passed"
        )


@pytest.mark.timeout(240)
def test_pods_and_a_node_deleted_while_the_scheduler_is_down_leak_nothing() -> None:
    with (
        folder() as path,
        running(
            path, "--nodes", "4", "--pods", "30", "--speed", "5", "--report-interval", "1"
        ) as road,
    ):
        ran = wait_until(lambda: _pods(road, "Running", 6), 60, "too few pods ran", road.output)
        pid = road.pid("scheduler")
        os.kill(pid, signal.SIGSTOP)
        gone = [pod["metadata"] for pod in ran[:3]]
        for metadata in gone:
            road.kube(
                f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0",
                "DELETE",
            )
        lost_node = ran[-1]["spec"]["nodeName"]
        road.kube(f"/api/v1/nodes/{lost_node}", "DELETE")
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: (road.get("scheduler", "/readyz") or {}).get("ok"),
            60,
            "the scheduler never came back",
            road.output,
        )
        uids = {metadata["uid"] for metadata in gone}
        wait_until(
            lambda: not uids & _charged(road), 60, "ended pods are still charged", road.output
        )
        assert road.stop() == 0
        verified(path)


def _pods(road: Road, phase: str, at_least: int) -> list[dict[str, Any]]:
    items = (road.kube("/api/v1/pods") or {}).get("items", [])
    in_phase = [pod for pod in items if pod["status"].get("phase") == phase]
    return in_phase if len(in_phase) >= at_least else []


def _charged(road: Road) -> set[str]:
    stats = road.get("scheduler", "/charged") or {}
    return set(stats.get("uids", ["unknown"]))
