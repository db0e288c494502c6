"""The whole road on real parts: from a pod to its end, over a restart, in two folders at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.road.harness import Road, folder, running, topolog, verified, wait_until

# At speed 60 pods lived for a second, and a busy machine needed as long to observe their ends. A
# kubelet once rejected a pod, probably because an end was observed late. To show the cause, the
# test prints the events before a rejection.
SMALL = ("--nodes", "4", "--pods", "30", "--speed", "30", "--report-interval", "1")


def test_a_run_is_verified_live_stopped_and_resumed_until_every_feasible_pod_ran() -> None:
    with folder() as path:
        with running(path, *SMALL) as road:
            ran = lambda: road.summary().get("workload", {}).get("to_running", {}).get("count")  # noqa: E731
            wait_until(ran, 60, "no pod ran", road.output)
            equals_the_fold_from_zero(path)
            every_task_runs(road)
            every_node_had_reported_before_the_first_pod_came(path, 4)
            is_refused_to_others(path)
            assert road.stop() == 0
        with running(path, *SMALL, "--exit-when-idle") as road:
            assert road.wait(240) == 0, road.output() + rejections(path)
            workload = road.summary()["workload"]
        assert workload["succeeded"] + len(workload["infeasible"]) == workload["total"] == 30
        assert workload["rejected"] == workload["lost"] == 0
        assert all(one["demand"] for one in workload["infeasible"])
        verdict = verified(path)
        assert (verdict["rejected"], verdict["violations"]) == (0, [])
        assert verdict["live_pods"] == len(workload["infeasible"])


def rejections(path: Path) -> str:
    """Return the events up to the first rejection by a kubelet; empty if there was none."""
    lines = topolog("replay", "log", "--data-dir", str(path), "--json").stdout.splitlines()
    first = next((index for index, line in enumerate(lines) if '"cause":"rejected"' in line), None)
    return "" if first is None else "\n" + "\n".join(lines[: first + 1])


def equals_the_fold_from_zero(path: Path) -> None:
    done = topolog("replay", "verify", "--data-dir", str(path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"compared":[{"projection":"ledger"' in done.stdout


def every_node_had_reported_before_the_first_pod_came(path: Path, nodes: int) -> None:
    kinds = [
        json.loads(line)["type"]
        for line in topolog("replay", "log", "--data-dir", str(path), "--json").stdout.splitlines()
    ]
    assert kinds[: kinds.index("PodObserved")].count("NodeReported") >= nodes


def every_task_runs(road: Road) -> None:
    """Check, as the alert TopologTaskEnded does, that every task runs."""
    for name in road.services().keys() - {"simulator"}:
        tasks = road.samples(name, "topolog_task_running")
        assert tasks
        assert set(tasks.values()) == {1.0}, (name, tasks)


def is_refused_to_others(path: Path) -> None:
    done = topolog("up", "--data-dir", str(path))
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "--data-dir" in done.stderr


def shape(policy: str, scope: str, zones: str) -> tuple[str, ...]:
    few = (
        "--nodes",
        "3",
        "--pods",
        "15",
        "--speed",
        "max",
        "--report-interval",
        "1",
        "--exit-when-idle",
    )
    return ("--policy", policy, "--scope", scope, "--zones", zones, *few)


def test_kubelets_of_every_policy_admit_what_they_are_sent_from_two_data_folders_at_once() -> None:
    restricted, best_effort = (
        shape("restricted", "pod", "4"),
        shape("best-effort", "container", "8"),
    )
    with (
        folder() as first_road,
        folder() as second_road,
        running(first_road, *restricted) as first,
        running(second_road, *best_effort) as second,
    ):
        assert (first.wait(120), second.wait(120)) == (0, 0), first.output() + second.output()
        for path, road in ((first_road, first), (second_road, second)):
            every_decision_is_made_again(path, road)


def every_decision_is_made_again(path: Path, road: Road) -> None:
    """A decision that was made together with a reservation that lost its race cannot be repeated,
    because the log lacks that reservation.
    """
    done = topolog("replay", "whatif", "--data-dir", str(path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    decoded = json.loads(done.stdout.splitlines()[-1])
    assert decoded["decisions"] >= 15
    assert decoded["differs"] == 0 or road.summary()["scheduling"]["conflicts"], decoded


def test_wrong_options_are_all_named_at_once() -> None:
    wrong = (
        "--nodes",
        "0",
        "--zones",
        "99",
        "--policy",
        "loose",
        "--speed",
        "fast",
        "--workload",
        "openb:nowhere",
    )
    with folder() as path:
        done = topolog("up", *wrong, "--data-dir", str(path))
    assert done.returncode == 2
    for flag in ("--nodes", "--zones", "--policy", "--speed", "--workload"):
        assert flag in done.stderr


def test_a_pod_is_explained_and_the_past_is_shown() -> None:
    with folder() as path, running(path, "--nodes", "2", "--workload", "none") as road:
        resources = {"cpu": "2", "memory": "1Gi"}
        container = {
            "name": "c",
            "image": "x",
            "resources": {"requests": resources, "limits": resources},
        }
        body = {
            "metadata": {"name": "told"},
            "spec": {"schedulerName": "topolog", "containers": [container]},
        }
        road.kube("/api/v1/namespaces/default/pods", "POST", body)

        def is_running() -> bool:
            shown = road.kube("/api/v1/namespaces/default/pods/told") or {}
            return bool(shown.get("status", {}).get("phase") == "Running")

        wait_until(is_running, 60, "the pod never ran", road.output)
        time.sleep(1.5)
        story = topolog("replay", "explain", "default/told", "--data-dir", str(path)).stdout
        steps = ("queued", "reserved on", "charged to", "intended", "bound to", "running on")
        assert all(step in story for step in steps), story
        moment = topolog("replay", "at", "now", "--data-dir", str(path), "--json").stdout
        assert '"default/told"' in moment
        listed = topolog(
            "replay",
            "log",
            "--pod",
            "told",
            "--type",
            "PodReserved",
            "--data-dir",
            str(path),
            "--json",
        ).stdout
        assert listed.count('"type":"PodReserved"') == 1
