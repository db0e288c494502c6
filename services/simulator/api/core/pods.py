"""Fields that the server fills in: defaults, priority, tolerations, QoS class. Must not check (see
pod_rules).

Source: kube-apiserver 1.36 recordings; k8s.io/kubernetes pkg/apis/core/v1/defaults.go. The
ServiceAccount admission plugin's token volume is left out: a simulated cluster has no service
accounts.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core import label_keys, pod_level, quantities

Json = dict[str, Any]

DEFAULT_TOLERATIONS: tuple[Json, ...] = tuple(
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for state in ("not-ready", "unreachable")
)
_SPEC_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}


def with_defaults(pod: Json, stamp: str) -> Json:
    """Return the pod as it is stored at creation: with a complete spec and status Pending. A posted
    status is dropped.
    """
    spec = label_keys.merged(
        complete_spec(pod.get("spec") or {}), pod["metadata"].get("labels") or {}
    )
    status: Json = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [_gated_condition(stamp)]
    status["qosClass"] = qos_class(spec)
    return {"metadata": pod["metadata"], "spec": spec, "status": status}


def _gated_condition(stamp: str) -> Json:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": stamp,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def complete_spec(spec: Json) -> Json:
    """A PodSpec with the defaults of the real server."""
    full: Json = {
        **_SPEC_DEFAULTS,
        **{key: value for key, value in spec.items() if value is not None},
    }
    full["containers"] = [_container(item) for item in spec.get("containers") or []]
    for field in ("initContainers", "ephemeralContainers"):
        if spec.get(field):
            full[field] = [_container(item) for item in spec[field]]
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    full["serviceAccountName"] = full["serviceAccount"] = account
    full["priority"] = spec.get("priority") or 0
    full["tolerations"] = with_usual_tolerations(spec.get("tolerations") or [])
    if spec.get("resources"):
        full["resources"] = pod_level.completed(
            _resources(spec["resources"], defaulted=False), full
        )
    if spec.get("overhead"):
        full["overhead"] = quantities.canonical_map(spec["overhead"]) or spec["overhead"]
    if full["terminationGracePeriodSeconds"] < 0:
        full["terminationGracePeriodSeconds"] = 1
    for empty in ("nodeName", "initContainers", "schedulingGates", "volumes", "nodeSelector"):
        if not full.get(empty, True):
            del full[empty]
    return full


def changed_spec(old: Json, new: Json) -> Json:
    """Return the spec of an update, completed. A missing priority stays as it was (the Priority
    admission plugin).
    """
    given: Json = {
        field: old[field]
        for field in ("priority", "preemptionPolicy")
        if new.get(field) is None and field in old
    }
    return complete_spec({**new, **given})


def with_usual_tolerations(given: list[Json]) -> list[Json]:
    """Return the given tolerations without empty fields, and the two that the
    DefaultTolerationSeconds admission plugin adds if they are not covered."""
    added = [
        item for item in DEFAULT_TOLERATIONS if not any(_covers(old, item["key"]) for old in given)
    ]
    return [
        *(
            {name: value for name, value in toleration.items() if value != ""}
            for toleration in given
        ),
        *added,
    ]


def _covers(toleration: Json, key: str) -> bool:
    effect = toleration.get("effect") or "NoExecute"
    return effect == "NoExecute" and toleration.get("key", "") in ("", key)


def _container(container: Json) -> Json:
    full = dict(container)
    full["resources"] = _resources(container.get("resources") or {})
    full.setdefault("terminationMessagePath", "/dev/termination-log")
    full.setdefault("terminationMessagePolicy", "File")
    full.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    if container.get("ports"):
        full["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    return full


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    return (
        "IfNotPresent"
        if "@" in name or (":" in name and not name.endswith(":latest"))
        else "Always"
    )


def _resources(resources: Json, defaulted: bool = True) -> Json:
    """Return quantities in canonical form. If `defaulted`, a limit without a request is also the
    request.
    """
    full = dict(resources)
    for field in ("limits", "requests"):
        if field in full:
            full[field] = quantities.canonical_map(full[field]) or {}
    if full.get("limits") and defaulted:
        full["requests"] = {**full["limits"], **(full.get("requests") or {})}
    return full


def with_canonical_amounts(pod: Json) -> Json:
    """Return a partial pod with its quantities written as stored ones are, so that equal amounts
    compare equal.
    """
    spec = dict(pod.get("spec") or {})
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_with_amounts(item) for item in spec[field]]
    return {**pod, "spec": spec} if spec else pod


def _with_amounts(container: Json) -> Json:
    resources = dict(container.get("resources") or {})
    for field in ("limits", "requests"):
        if resources.get(field):
            resources[field] = quantities.canonical_map(resources[field]) or resources[field]
    return {**container, "resources": resources} if resources else container


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort from cpu and memory of the pod (KEP-2837), or else of its
    containers (init containers count too)."""
    whole = spec.get("resources") or {}
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    if whole.get("limits") or whole.get("requests"):
        containers = [spec]
    guaranteed, any_amount = True, False
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        amounts = [group.get(name) for group in (limits, requests) for name in ("cpu", "memory")]
        any_amount = any_amount or any(_positive(amount) for amount in amounts)
        for name in ("cpu", "memory"):
            if not _positive(limits.get(name)) or requests.get(
                name, limits.get(name)
            ) != limits.get(name):
                guaranteed = False
    if guaranteed and any_amount:
        return "Guaranteed"
    return "Burstable" if any_amount else "BestEffort"


def _positive(quantity: str | None) -> bool:
    return bool(quantity) and bool(quantities.value_of(str(quantity)))


def complete_status(status: Json) -> Json:
    """Add lastProbeTime and lastTransitionTime to conditions, null if absent, as Go writes them."""
    conditions = status.get("conditions")
    if not conditions:
        return status
    blank: Json = {"lastProbeTime": None, "lastTransitionTime": None}
    full = [item if blank.keys() <= item.keys() else {**blank, **item} for item in conditions]
    return {**status, "conditions": full}
