"""Pod statuses and events as a kubelet writes them: running, succeeded, refused. Field by field
like kubelet 1.36.

Pure: objects in, objects out. Must not know when a pod changes, nor how a status is posted.
"""

from __future__ import annotations

import hashlib
from typing import Any

Json = dict[str, Any]


def running(pod: Json, timestamp: str, host_ip: str, pod_ip: str) -> Json:
    """Return the status of a pod whose containers all run."""
    status = _base(pod, "Running", timestamp)
    status["conditions"] = _conditions(pod, timestamp, ready=True, reason="")
    _addresses(status, host_ip, pod_ip)
    state = {"running": {"startedAt": timestamp}}
    status["containerStatuses"] = [
        _container(pod, spec, state, True) for spec in pod["spec"]["containers"]
    ]
    first = [
        _init_container(pod, spec, timestamp) for spec in pod["spec"].get("initContainers") or []
    ]
    if first:
        status["initContainerStatuses"] = first
    return status


def succeeded(pod: Json, timestamp: str) -> Json:
    """Return the status of a pod whose containers all ended with exit code 0."""
    status = {**pod["status"], "phase": "Succeeded", "observedGeneration": _generation(pod)}
    status["conditions"] = _conditions(pod, timestamp, ready=False, reason="PodCompleted")
    old_by_name = {
        listed["name"]: listed for listed in pod["status"].get("containerStatuses") or []
    }
    status["containerStatuses"] = [
        _ended(pod, spec, old_by_name.get(spec["name"], {}), timestamp)
        for spec in pod["spec"]["containers"]
    ]
    return status


def never_started(pod: Json) -> Json:
    """Return the status of a pod that was deleted before its containers ran (kubelet 1.36,
    TerminatePod).
    """
    return {**pod["status"], "phase": "Failed", "observedGeneration": _generation(pod)}


def refused(pod: Json, reason: str, message: str, timestamp: str) -> Json:
    """Return the status of a pod that was not admitted: no conditions, no containers."""
    return {
        **_base(pod, "Failed", timestamp),
        "message": f"Pod was rejected: {message}",
        "reason": reason,
    }


def refusal_event(pod: Json, node: str, reason: str, message: str, timestamp: str) -> Json:
    """Return the Warning that a kubelet writes for a refusal."""
    metadata = pod["metadata"]
    stamp = hashlib.blake2b(f"{metadata['uid']}{reason}".encode(), digest_size=8).hexdigest()
    involved = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {
        "metadata": {"name": f"{metadata['name']}.{stamp}", "namespace": metadata["namespace"]},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", **involved},
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
        "type": "Warning",
        "eventTime": None,
        "reportingComponent": "kubelet",
        "reportingInstance": node,
    }


def _generation(pod: Json) -> int:
    return int(pod["metadata"].get("generation") or 1)


def _base(pod: Json, phase: str, timestamp: str) -> Json:
    started = pod["status"].get("startTime") or timestamp
    qos = pod["status"].get("qosClass") or "BestEffort"
    return {
        "observedGeneration": _generation(pod),
        "phase": phase,
        "startTime": started,
        "qosClass": qos,
    }


def _addresses(status: Json, host_ip: str, pod_ip: str) -> None:
    status["hostIP"], status["hostIPs"] = host_ip, [{"ip": host_ip}]
    status["podIP"], status["podIPs"] = pod_ip, [{"ip": pod_ip}]


def _conditions(pod: Json, timestamp: str, ready: bool, reason: str) -> list[Json]:
    """Return the kubelet's five conditions after those of other writers. PodScheduled keeps its
    time, as does a condition that does not change.
    """
    old_by_name = {listed["type"]: listed for listed in pod["status"].get("conditions") or []}
    wanted = {
        "PodReadyToStartContainers": ready,
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    conditions = [old for name, old in old_by_name.items() if name not in wanted]
    for name, holds in wanted.items():
        value = "True" if holds else "False"
        old = old_by_name.get(name, {})
        since = old.get("lastTransitionTime") if old.get("status") == value else None
        made = {
            "type": name,
            "observedGeneration": _generation(pod),
            "status": value,
            "lastProbeTime": None,
        }
        made["lastTransitionTime"] = since or timestamp
        if reason and name in ("Initialized", "Ready", "ContainersReady"):
            made["reason"] = reason
        conditions.append(made)
    return conditions


def _container(pod: Json, spec: Json, state: Json, ready: bool) -> Json:
    number = hashlib.blake2b(
        f"{pod['metadata']['uid']}/{spec['name']}".encode(), digest_size=32
    ).hexdigest()
    image = spec.get("image", "")
    return {
        "name": spec["name"],
        "state": state,
        "lastState": {},
        "ready": ready,
        "restartCount": 0,
        "image": image,
        "imageID": image,
        "containerID": f"containerd://{number}",
        "started": ready,
    }


def _init_container(pod: Json, spec: Json, timestamp: str) -> Json:
    if spec.get("restartPolicy") == "Always":
        return _container(pod, spec, {"running": {"startedAt": timestamp}}, True)
    done = _container(pod, spec, {}, True)
    done["state"] = {"terminated": _terminated(done["containerID"], timestamp, timestamp)}
    return {**done, "started": False}


def _ended(pod: Json, spec: Json, old_by_name: Json, timestamp: str) -> Json:
    made = _container(pod, spec, {}, False)
    started = ((old_by_name.get("state") or {}).get("running") or {}).get("startedAt", timestamp)
    made["state"] = {"terminated": _terminated(made["containerID"], started, timestamp)}
    return made


def _terminated(container_id: str, started: str, finished: str) -> Json:
    times = {"startedAt": started, "finishedAt": finished}
    return {"exitCode": 0, "reason": "Completed", **times, "containerID": container_id}
