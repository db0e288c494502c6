"""What a pod's classes make of it at creation: the admission plugins Priority and RuntimeClass
(kube-apiserver 1.36).

Both complete the pod before it is judged; whether its overhead is the one of its class is asked
afterwards. Must not know storage but for the look-up of a class.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core import kinds, pods, quantities
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Refusal, details_of, refuse
from services.simulator.api.core.store import Store

Json = dict[str, Any]

SYSTEM_CLASSES: dict[str, Json] = {
    name: {"metadata": {"name": name}, "value": value}
    for name, value in (
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    )
}
NO_CLASS: Json = {"metadata": {"name": ""}}
UNASKED = (
    "the {} value of {} ({}) must not be provided in pod spec; "
    "priority admission controller computed {} from the given PriorityClass name"
)


def completed(store: Store, pod: Json) -> Json | Refusal:
    """Return the pod with priority, overhead, selector and tolerations of its classes; 403 if it
    contradicts them.
    """
    spec = dict(pod.get("spec") or {})
    why = _prioritise(store, spec) or _apply_runtime_class(store, spec)
    return _forbidden(kinds.PODS, pod, why) if why else {**pod, "spec": spec}


def overhead_refusal(store: Store, pod: Json) -> Refusal | None:
    """Return 403 if the pod has an overhead that no runtime class gives."""
    spec = pod["spec"]
    if "overhead" not in spec or "overhead" in (_runtime_class(store, spec) or {}):
        return None
    return _forbidden(
        kinds.PODS,
        pod,
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    )


def second_default(store: Store, priority_class: Json) -> Refusal | None:
    """Return 403 if the priority class would be a second default."""
    default = _default_class(store)
    if not priority_class.get("globalDefault") or default is NO_CLASS:
        return None
    name = default["metadata"]["name"]
    why = f"PriorityClass {name} is already marked as default. Only one default can exist"
    return _forbidden(kinds.PRIORITIES, priority_class, why)


def _forbidden(kind: Kind, obj: Json, why: str) -> Refusal:
    """Return 403 in an admission plugin's words."""
    metadata = obj.get("metadata") or {}
    shown = metadata.get("name") or metadata.get("generateName") or ""
    return refuse(
        403, f'{kind.qualified} "{shown}" is forbidden: {why}', "Forbidden", details_of(kind, shown)
    )


def _prioritise(store: Store, spec: Json) -> str:
    """Give the pod the priority of its class, or the default, or return the refusal."""
    name = spec.pop("priorityClassName", None)
    priority_class = _priority_class(store, name) if name else _default_class(store)
    if priority_class is None:
        return f"no PriorityClass with name {name} was found"
    priority, policy = (
        priority_class.get("value", 0),
        priority_class.get("preemptionPolicy") or "PreemptLowerPriority",
    )
    if spec.get("priority") not in (None, priority):
        return UNASKED.format("integer", "priority", spec["priority"], priority)
    if spec.get("preemptionPolicy") not in (None, "", policy):
        return UNASKED.format("string", "PreemptionPolicy", spec["preemptionPolicy"], policy)
    spec |= {"priority": priority, "preemptionPolicy": policy}
    if priority_class["metadata"]["name"]:
        spec["priorityClassName"] = priority_class["metadata"]["name"]
    return ""


def _priority_class(store: Store, name: str) -> Json | None:
    entry = store.get(kinds.PRIORITIES.storage, "", name)
    return entry.obj if entry is not None else SYSTEM_CLASSES.get(name)


def _default_class(store: Store) -> Json:
    return next(
        (
            priority_class.obj
            for priority_class in store.entries(kinds.PRIORITIES.storage, "")
            if priority_class.obj.get("globalDefault")
        ),
        NO_CLASS,
    )


def _runtime_class(store: Store, spec: Json) -> Json | None:
    name = spec.get("runtimeClassName")
    entry = store.get(kinds.RUNTIMES.storage, "", name) if name else None
    return entry.obj if entry is not None else None


def _apply_runtime_class(store: Store, spec: Json) -> str:
    """Give the pod the overhead, selector and tolerations of its runtime class, or return the
    refusal.
    """
    runtime_class = _runtime_class(store, spec)
    if runtime_class is None:
        name = spec.get("runtimeClassName")
        return f'pod rejected: RuntimeClass "{name}" not found' if name else ""
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") and quantities.canonical_map(spec["overhead"]) != overhead:
            return "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        spec["overhead"] = overhead
    return (
        _apply_scheduling(spec, runtime_class["scheduling"])
        if runtime_class.get("scheduling")
        else ""
    )


def _apply_scheduling(spec: Json, scheduling: Json) -> str:
    selector = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            given = f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            return f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; {given}"
    spec["nodeSelector"] = {**selector, **(scheduling.get("nodeSelector") or {})}
    pod_value = pods.with_usual_tolerations(spec.get("tolerations") or [])
    spec["tolerations"] = _merged([*pod_value, *(scheduling.get("tolerations") or [])])
    return ""


def _merged(tolerations: list[Json]) -> list[Json]:
    """Return the tolerations without those that another covers. Of equal ones the first stays."""
    merged: list[Json] = []
    for index, toleration in enumerate(tolerations):
        later = [covering for covering in tolerations[index + 1 :] if covering != toleration]
        if not any(_covers(covering, toleration) for covering in (*merged, *later)):
            merged.append(toleration)
    return merged


def _covers(wide: Json, narrow: Json) -> bool:
    """Return whether the wide toleration tolerates all taints that the narrow one tolerates."""
    if wide == narrow:
        return True
    operator = wide.get("operator") or "Equal"
    exists = operator == "Exists"
    if wide.get("key", "") != narrow.get("key", "") and (wide.get("key") or not exists):
        return False
    if wide.get("effect", "") not in ("", narrow.get("effect", "")):
        return False
    limit_s, asked_s = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if (
        wide.get("effect") == "NoExecute"
        and limit_s is not None
        and (asked_s is None or asked_s > limit_s)
    ):
        return False
    return exists or (
        operator == narrow.get("operator") == "Equal"
        and wide.get("value", "") == narrow.get("value", "")
    )
