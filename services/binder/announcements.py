"""What people see in Kubernetes: conditions and events, as kube-scheduler writes them. Pure; from a
fact to two documents.

Recorded forms: PodScheduled=False with reason Unschedulable, events FailedScheduling, Scheduled and
Preempted (kube-scheduler 1.36).
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from services.binder.core import Identity

REPORTER = "topolog-scheduler"
MESSAGE_LIMIT = 1024


_REMEDIES = {
    "forbidden": "give the binder's service account the right `create` on `pods/binding` (k8s/base/rbac.yaml)",
    "denied": "change the admission policy or the pod; the node is set aside for such pods and tried again later",
    "invalid": "see the binder's log; the API server cannot take this Binding, from us or anybody",
}


def remedy(cause: str) -> str:
    """What helps against a refused binding, "" where nothing has to."""
    return _REMEDIES.get(cause, "")


def refused(node: str, cause: str, message: str) -> str:
    """The event line of a refused binding; "" for causes that need nobody's help."""
    return (
        f"binding to {node} was {cause}: {message}; {_REMEDIES[cause]}"
        if cause in _REMEDIES
        else ""
    )


def condition(
    uid: str, message: str, since_us: int, reason: str = "Unschedulable", generation: int = 0
) -> dict[str, Any]:
    """The status patch that says why the pod waits, since when, and of which generation of its spec
    (KEP-5067; 0: not known). `SchedulerError` is kube-scheduler's reason for a failed binding. The
    uid is a precondition: a namesake that came since, and may run already, is not told that it
    waits (422)."""
    entry: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": _moment(since_us // 1_000_000),
        **({"observedGeneration": generation} if generation else {}),
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [entry]}}


def nominated(uid: str, node: str) -> dict[str, Any]:
    """The status patch that names the node which is being cleared for the pod; "" takes the name
    away. The uid is a precondition: a namesake that came since is not nominated (422)."""
    return {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}


def failed(pod: Identity, uid: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    """A FailedScheduling event."""
    return _event(pod, uid, "Warning", "FailedScheduling", message, time_us, position)


def scheduled(pod: Identity, uid: str, node: str, time_us: int, position: int) -> dict[str, Any]:
    """A Scheduled event."""
    message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
    return _event(pod, uid, "Normal", "Scheduled", message, time_us, position)


def admitted(pod: Identity, uid: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    """An event that tells the zone which the kubelet chose."""
    return _event(pod, uid, "Normal", "AdmittedOnZone", message, time_us, position)


def preempted(
    pod: Identity, uid: str, preemptor: str, time_us: int, position: int
) -> dict[str, Any]:
    """A Preempted event, which stands at the victim; `preemptor` is a uid."""
    message = f"Preempted by pod {preemptor}" + (f" on node {pod.node}" if pod.node else "")
    return _event(pod, uid, "Normal", "Preempted", message, time_us, position)


def set_aside(node: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    """A NodeSetAside event, which stands at the node. As the kubelet's own: namespace default, the
    node's name for its uid.
    """
    return _event(
        Identity("default", node),
        node,
        "Warning",
        "NodeSetAside",
        message,
        time_us,
        position,
        "Node",
    )


def _event(
    pod: Identity,
    uid: str,
    kind: str,
    reason: str,
    message: str,
    time_us: int,
    position: int,
    about: str = "Pod",
) -> dict[str, Any]:
    """The name is made from uid and position, so that a repeated announcement is a 409 and not a
    second event.
    """
    suffix = hashlib.sha256(f"{uid}/{position}".encode()).hexdigest()[:16]
    at = _moment(time_us // 1_000_000)
    involved = {"apiVersion": "v1", "kind": about, "name": pod.name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name}.{suffix}", "namespace": pod.namespace},
        "involvedObject": involved | ({"namespace": pod.namespace} if about == "Pod" else {}),
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_LIMIT],
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


@lru_cache(maxsize=16)
def _moment(time_s: int) -> str:
    """As Kubernetes writes it: one text for all that happens in a second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
