"""What must hold when the faults are over, from the cluster's side and from the log's: nobody refused, doubled or forgotten."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.road.harness import Road, topolog

KUBELETS_NO = ("TopologyAffinityError", "UnexpectedAdmissionError", "OutOf")


def of_the_cluster(road: Road, bound: dict[str, str]) -> list[str]:
    """Violations that the API server shows. `bound` is uid -> node by the log's newest binding."""
    listed = road.kube("/api/v1/pods")
    if not isinstance(listed, dict) or "items" not in listed:
        return ["the API server does not answer at the end"]
    pods = listed["items"]
    return [*_refused(pods), *_elsewhere(pods, bound)]


def _refused(pods: list[dict[str, Any]]) -> list[str]:
    reasons = [(pod["metadata"]["name"], pod.get("status", {}).get("reason", "")) for pod in pods]
    return [f"a kubelet refused {name}: {reason}" for name, reason in reasons if reason.startswith(KUBELETS_NO)]


def _elsewhere(pods: list[dict[str, Any]], bound: dict[str, str]) -> list[str]:
    found = []
    for pod in pods:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if uid in bound and node != bound[uid]:
            found.append(f"the log has {pod['metadata']['name']} on {bound[uid]}, the API server on {node or 'no node'}")
    return found


def of_the_workload(road: Road) -> list[str]:
    """What the simulated cluster counts itself."""
    counted = road.summary().get("workload", {})
    return [f"{counted[name]} pods {name}" for name in ("rejected", "lost") if counted.get(name)]


def of_the_log(database_url: str) -> list[str]:
    """Invariants of the log that `topolog replay verify` finds broken."""
    done = topolog("replay", "verify", "--database-url", database_url, "--json")
    if done.returncode == 0:
        return []
    try:
        verdict = msgspec.json.decode(done.stdout, type=dict[str, Any])
    except msgspec.MsgspecError:
        return [f"replay verify: {(done.stderr or done.stdout)[-500:]}"]
    return [f"replay verify: {each}" for each in verdict.get("violations", [done.stdout[-500:]])]
