"""Preemption on the whole road: exactly the victims that help are evicted, budgets are obeyed,
equals are left in peace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.road.harness import Road, folder, running, topolog, verified, wait_until

PODS = "/api/v1/namespaces/default/pods"
HIGH = "high"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TWO_NODES = ("--nodes", "2", "--workload", "none", "--report-interval", "1")


def submit(
    road: Road,
    name: str,
    cpus: int,
    gpus: int = 0,
    priority: str = "",
    labels: dict[str, str] | None = None,
) -> None:
    amounts = {"cpu": str(cpus), "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    spec: dict[str, Any] = {
        "schedulerName": "topolog",
        "priorityClassName": priority,
        "containers": [container],
    }
    answer = road.kube(
        PODS, "POST", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
    )
    assert answer["kind"] == "Pod", answer


def high_is_a_class(road: Road) -> None:
    answer = road.kube(CLASSES, "POST", {"metadata": {"name": HIGH}, "value": 1000})
    assert answer["kind"] == "PriorityClass", answer


def phase(road: Road, name: str) -> str:
    return str(((road.kube(f"{PODS}/{name}") or {}).get("status") or {}).get("phase", ""))


def runs(road: Road, name: str, timeout_s: float = 30) -> None:
    wait_until(lambda: phase(road, name) == "Running", timeout_s, f"{name} never ran", road.output)


def alive(road: Road) -> set[str]:
    return {item["metadata"]["name"] for item in road.kube(PODS)["items"]}


def filled(road: Road, labels: dict[str, str] | None = None) -> None:
    """Fill two nodes of two zones. Each zone has one pod that holds all devices and one pod without
    devices, with 7 of its 15 CPUs each.
    """
    (first, _) = road.kube("/api/v1/nodes")["items"]
    assert first["status"]["allocatable"]["cpu"] == "30", first["status"]["allocatable"]
    gpus = int(first["status"]["allocatable"]["nvidia.com/gpu"]) // 2
    for kind, holding in (("gpu", gpus), ("plain", 0)):
        for number in range(4):
            submit(road, f"{kind}-{number}", 7, holding, labels=labels)
        for number in range(4):
            runs(road, f"{kind}-{number}")


def test_exactly_the_needed_victim_is_evicted_and_budgets_are_obeyed() -> None:
    with folder() as path, running(path, *TWO_NODES, env={"TOPOLOG_EVICT_ATTEMPTS": "2"}) as road:
        high_is_a_class(road)
        filled(road, {"app": "kept"})
        alive_before = alive(road)
        submit(road, "equal", 8, 1)
        wait_until(lambda: conditions(road, "equal"), 20, "equal was never judged", road.output)
        submit(road, "high", 8, 1, HIGH)
        runs(road, "high", 60)
        gone = alive_before - alive(road)
        assert len(gone) == 1, gone
        assert gone < {f"gpu-{number}" for number in range(4)}
        assert phase(road, "equal") == "Pending"
        wait_until(
            lambda: preempted(road) == sorted(gone), 20, f"no event tells {gone} why", road.output
        )
        _protected(road, path)
        road.stop()
        assert verified(path)["rejected"] == 0


def _protected(road: Road, path: Path) -> None:
    """Check that a budget protects the seven remaining pods."""
    budget = {
        "metadata": {"name": "kept"},
        "spec": {"minAvailable": 7, "selector": {"matchLabels": {"app": "kept"}}},
    }
    answer = road.kube("/apis/policy/v1/namespaces/default/poddisruptionbudgets", "POST", budget)
    assert answer["kind"] == "PodDisruptionBudget", answer
    survivors = alive(road)
    submit(road, "late", 8, 1, HIGH)
    wait_until(
        lambda: "EvictRefused" in told(road, path), 60, "no eviction was refused", road.output
    )
    assert alive(road) == survivors | {"late"}
    assert phase(road, "late") == "Pending"


def test_a_binder_that_dies_twice_while_it_evicts_evicts_no_more_than_it_began(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o777)
    points = {"binder.after_evict_intent", "binder.after_evict_call"}
    env = {"TOPOLOG_CRASH_AT": ",".join(points), "TOPOLOG_CRASH_ONCE": str(tmp_path)}
    one_node = ("--nodes", "1", "--workload", "none", "--report-interval", "1")
    with folder() as path, running(path, *one_node, env=env) as road:
        high_is_a_class(road)
        for name in ("a", "b"):
            submit(road, name, 14)
            runs(road, name)
        submit(road, "high", 10, priority=HIGH)
        runs(road, "high", 60)
        assert {mark.name for mark in tmp_path.iterdir()} == points, (
            "a crash point was never passed"
        )
        assert len(alive(road) & {"a", "b"}) == 1
        road.stop()
        assert verified(path)["rejected"] == 0


def preempted(road: Road) -> list[str]:
    """Return the names of pods with a Preempted event."""
    events = (road.kube("/api/v1/namespaces/default/events") or {}).get("items", [])
    return sorted(
        event["involvedObject"]["name"] for event in events if event["reason"] == "Preempted"
    )


def conditions(road: Road, name: str) -> list[Any]:
    return ((road.kube(f"{PODS}/{name}") or {}).get("status") or {}).get("conditions") or []


def told(_road: Road, path: Path) -> str:
    return topolog(
        "replay", "log", "--type", "EvictRefused", "--data-dir", str(path), "--json"
    ).stdout
