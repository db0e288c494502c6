"""Build the conditions and Kubernetes Events of pods and nodes, as kube-scheduler writes them.

Recorded forms: PodScheduled=False with reason Unschedulable; events FailedScheduling, Scheduled and
Preempted (kube-scheduler 1.36).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from services.binder.core import Identity
from shared.domain.scheduler_keys import BY_KEY
from shared.events.scheduling_events import OF_GANG

REPORTER = "topolog-scheduler"
MESSAGE_LIMIT = 1024
PREFERENCES_KEPT = "topolog.io/PreferencesKept"
ZONE_AVAILABLE = "topolog.io/ZoneAvailable"


_REMEDIES = {
    "forbidden": "grant the binder's service account create on pods/binding (k8s/base/rbac.yaml)",
    "denied": (
        "change the admission policy or the pod; the node is excluded for such pods and tried again"
    ),
    "invalid": "see the binder's log: the API server does not accept this Binding on any node",
}
_EXCLUSION_CAUSES = {
    "rejected": "its kubelet rejected a pod",
    "denied": "an admission policy denied a binding",
    "contested": "too many proposals lost a race",
}


def remedy(cause: str) -> str:
    """Return the remedy for a refused binding, empty if none is needed."""
    return _REMEDIES.get(cause, "")


def refused(node: str, cause: str, message: str) -> str:
    """Return the message of a refused binding, empty if no remedy is needed."""
    if cause not in _REMEDIES:
        return ""
    return f"binding to {node} was {cause}: {message}; {_REMEDIES[cause]}"


def exclusion_cause(cause: str, detail: str) -> str:
    """Return why a node is excluded for a pod class."""
    return f"{_EXCLUSION_CAUSES.get(cause, cause)} ({detail})"


def condition(
    uid: str, message: str, since_us: int, reason: str = "Unschedulable", generation: int = 0
) -> dict[str, Any]:
    """Return the status patch of an unschedulable pod.

    `generation` is that of the pod's spec (KEP-5067), 0 if unknown. `SchedulerError` is
    kube-scheduler's reason for a failed binding. The uid is a precondition (422): another pod of
    the same name may run already."""
    entry: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": _timestamp(since_us // 1_000_000),
        **({"observedGeneration": generation} if generation else {}),
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [entry]}}


def zone_condition(uid: str, message: str, time_us: int, generation: int = 0) -> dict[str, Any]:
    """Return the status patch of a pod that waits for a zone. An empty message ends the wait."""
    entry: dict[str, Any] = {
        "type": ZONE_AVAILABLE,
        "status": "False" if message else "True",
        "reason": "NoZone" if message else "NotWaiting",
        "message": message[:MESSAGE_LIMIT],
        "lastTransitionTime": _timestamp(time_us // 1_000_000),
        **({"observedGeneration": generation} if generation else {}),
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [entry]}}


def ignored_preferences(keys: Sequence[str]) -> str:
    """Return the message about preferences without effect, by their keys."""
    rows = [BY_KEY[key] for key in keys if key in BY_KEY]
    return "; ".join(f"{row.shown} had no effect: {row.remedy}" for row in rows)


def preferences_condition(
    uid: str, message: str, time_us: int, generation: int = 0
) -> dict[str, Any]:
    """Return the status patch of a pod with preferences that had no effect."""
    entry: dict[str, Any] = {
        "type": PREFERENCES_KEPT,
        "status": "False",
        "reason": "NoEffect",
        "message": message[:MESSAGE_LIMIT],
        "lastTransitionTime": _timestamp(time_us // 1_000_000),
        **({"observedGeneration": generation} if generation else {}),
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [entry]}}


def nominated(uid: str, node: str) -> dict[str, Any]:
    """Return the status patch of a nominated node; "" removes it. The uid is a precondition
    (422)."""
    return {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}


def failed(pod: Identity, uid: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    return _event(pod, uid, "Warning", "FailedScheduling", message, time_us, position)


def scheduled(pod: Identity, uid: str, node: str, time_us: int, position: int) -> dict[str, Any]:
    message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
    return _event(pod, uid, "Normal", "Scheduled", message, time_us, position)


def admitted(pod: Identity, uid: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    """Return an event with the zones that the kubelet chose."""
    return _event(pod, uid, "Normal", "AdmittedOnZone", message, time_us, position)


def missed(pod: Identity, uid: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    """Return an event with the zones of a pod that was required to be in one."""
    return _event(pod, uid, "Warning", "ZoneRequirementMissed", message, time_us, position)


def drifted(pod: Identity, uid: str, message: str, time_us: int, position: int) -> dict[str, Any]:
    """Return an event with the zones of a pod for which other zones were certain."""
    return _event(pod, uid, "Warning", "PlacementDrift", message, time_us, position)


def lost_devices(
    pod: Identity, uid: str, node: str, devices: str, time_us: int, position: int
) -> dict[str, Any]:
    """Return an event with devices of the pod that its node no longer offers."""
    message = f"Node {node} no longer offers {devices}, which the pod holds"
    return _event(pod, uid, "Warning", "DevicesLost", message, time_us, position)


def preempted(
    pod: Identity, uid: str, preemptor: str, time_us: int, position: int
) -> dict[str, Any]:
    """Return a Preempted event of the victim; `preemptor` is a uid, or the gang that is rolled
    back."""
    if preemptor.startswith(OF_GANG):
        message = f"Evicted, because too few pods of {preemptor} were bound for too long"
        return _event(pod, uid, "Warning", "GangRolledBack", message, time_us, position)
    message = f"Preempted by pod {preemptor}" + (f" on node {pod.node}" if pod.node else "")
    return _event(pod, uid, "Normal", "Preempted", message, time_us, position)


def excluded(node: str, pod: Identity, cause: str, time_us: int, position: int) -> dict[str, Any]:
    """Return a NodeExcluded event of the node. Like the kubelet's own events it is in namespace
    default, with the node's name as uid."""
    pods = f"pods like {pod.namespace}/{pod.name}" if pod.name else "a class of pods"
    message = (
        f"Node excluded for {pods}: {cause}. The exclusion ends by itself. "
        f"Override: topolog node readmit {node}"
    )
    about = Identity("default", node)
    return _event(about, node, "Warning", "NodeExcluded", message, time_us, position, "Node")


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
    """Build an event. Its name is made from uid and position, so a repeat is a 409."""
    suffix = hashlib.sha256(f"{uid}/{position}".encode()).hexdigest()[:16]
    timestamp = _timestamp(time_us // 1_000_000)
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
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }


@lru_cache(maxsize=16)
def _timestamp(time_s: int) -> str:
    """Return the time as Kubernetes writes it. Cached, because many events share a second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
