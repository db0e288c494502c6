"""Defaults and checks of the small kinds: nodes, namespaces, volumes, leases, budgets, classes,
topologies. Must not know storage."""

from __future__ import annotations

import re
from typing import Any

from services.simulator.api.core import pod_rules, quantities
from services.simulator.api.core.names import label_problem
from services.simulator.api.core.refusals import Cause

Json = dict[str, Any]

_MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
_SECOND_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<rest>.*)$")
NOT_READY_TAINT: Json = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def new_node(node: Json, *, add_taint: bool) -> Json:
    """A Node at creation. The TaintNodesByCondition admission plugin taints every new one, even
    when posted Ready.
    """
    spec = dict(node.get("spec") or {})
    taints = list(spec.get("taints") or [])
    if add_taint and NOT_READY_TAINT not in taints:
        spec["taints"] = [*taints, NOT_READY_TAINT]
    return {**node, "spec": spec, "status": node_status(node.get("status") or {})}


def node_status(status: Json) -> Json:
    """Return a Node's status as Go writes it: with canonical quantities, times of conditions, and
    node info.
    """
    full = dict(status)
    for field in ("capacity", "allocatable"):
        if field in full:
            full[field] = quantities.canonical_map(full[field]) or {}
    blank: Json = {"lastHeartbeatTime": None, "lastTransitionTime": None}
    if full.get("conditions"):
        full["conditions"] = [{**blank, **item} for item in full["conditions"]]
    full.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    full["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **(full.get("nodeInfo") or {})}
    return full


def new_namespace(namespace: Json) -> Json:
    """A Namespace at creation: its name label, finalizer and phase."""
    metadata = dict(namespace["metadata"])
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        "kubernetes.io/metadata.name": metadata.get("name", ""),
    }
    return {
        "metadata": metadata,
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def new_volume(obj: Json, phase: str) -> Json:
    """A PersistentVolume or a claim at creation."""
    return {**obj, "spec": obj.get("spec") or {}, "status": {"phase": phase}}


def lease_malformed(lease: Json) -> str:
    """Return the problem with a time that the decoder refuses (MicroTime has six digits), "" for
    none.
    """
    for field in ("acquireTime", "renewTime"):
        text = (lease.get("spec") or {}).get(field)
        if text is None or (isinstance(text, str) and _MICRO_TIME.match(text)):
            continue
        match = _SECOND_TIME.match(str(text))
        rest, part = (match["rest"], ".000000") if match else (str(text), "2006")
        return (
            f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse '
            f'"{rest}" as "{part}"'
        )
    return ""


def lease_problems(lease: Json) -> list[Cause]:
    """Violations of a Lease's spec."""
    spec, causes = lease.get("spec") or {}, []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        text = f"Invalid value: {duration}: must be greater than 0"
        causes.append(Cause("FieldValueInvalid", text, "spec.leaseDurationSeconds"))
    if transitions is not None and transitions < 0:
        text = f"Invalid value: {transitions}: must be greater than or equal to 0"
        causes.append(Cause("FieldValueInvalid", text, "spec.leaseTransitions"))
    return causes


def new_budget(budget: Json) -> Json:
    """A PodDisruptionBudget at creation; its status is filled as the disruption controller
    would.
    """
    status = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    return {**budget, "spec": budget.get("spec") or {}, "status": status}


def budget_problems(budget: Json) -> list[Cause]:
    """Violations of a budget's spec."""
    spec = budget.get("spec")
    if not isinstance(spec, dict):
        return [Cause("FieldValueRequired", "Required value", "spec")]
    causes = []
    for field in ("minAvailable", "maxUnavailable"):
        if spec.get(field) is not None and not _is_count(spec[field]):
            text = (
                f'Invalid value: "{spec[field]}": must be a whole number or a percentage such '
                'as "10%"'
            )
            causes.append(Cause("FieldValueInvalid", text, f"spec.{field}"))
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = (
            f'Invalid value: "{spec["maxUnavailable"]}": minAvailable and maxUnavailable '
            "cannot be both set"
        )
        causes.append(Cause("FieldValueInvalid", text, "spec"))
    return causes + _selector_problems(spec.get("selector") or {})


MOST_PRIORITY = 1_000_000_000
RESERVED = "system-"


def new_priority_class(obj: Json) -> Json:
    """A PriorityClass at creation."""
    return {
        "value": 0,
        **obj,
        "preemptionPolicy": obj.get("preemptionPolicy") or "PreemptLowerPriority",
    }


def priority_class_problems(obj: Json) -> list[Cause]:
    """Return violations: a name or a value that is reserved for the system."""
    name, causes = obj["metadata"].get("name") or "", []
    if name.startswith(RESERVED):
        why = f"priority class names with '{RESERVED}' prefix are reserved for system use only"
        text = f"Forbidden: {why}. error: {name} is not a known system priority class"
        causes.append(Cause("FieldValueForbidden", text, "metadata.name"))
    if obj.get("value", 0) > MOST_PRIORITY:
        text = f"Forbidden: maximum allowed value of a user defined priority is {MOST_PRIORITY}"
        causes.append(Cause("FieldValueForbidden", text, "value"))
    return causes


def new_runtime_class(obj: Json) -> Json:
    """A RuntimeClass at creation: its overhead as canonical quantities."""
    overhead = obj.get("overhead") or {}
    if not overhead.get("podFixed"):
        return obj
    return {
        **obj,
        "overhead": {
            "podFixed": quantities.canonical_map(overhead["podFixed"]) or overhead["podFixed"]
        },
    }


def runtime_class_malformed(obj: Json) -> str:
    """Return the problem with an overhead that the decoder refuses, because it is no quantity; ""
    for none.
    """
    fixed = (obj.get("overhead") or {}).get("podFixed")
    return quantities.WRONG_QUANTITY if fixed and quantities.canonical_map(fixed) is None else ""


def runtime_class_problems(obj: Json) -> list[Cause]:
    """Return violations: a handler that no container runtime can have, or an overhead below
    zero.
    """
    handler, causes = obj.get("handler") or "", []
    if not handler:
        causes.append(Cause("FieldValueRequired", "Required value", "handler"))
    elif problem := label_problem(handler):
        causes.append(
            Cause("FieldValueInvalid", f'Invalid value: "{handler}": {problem}', "handler")
        )
    return causes + pod_rules.overhead_problems(
        (obj.get("overhead") or {}).get("podFixed") or {}, "overhead"
    )


def _is_count(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"\d{1,3}%", value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _selector_problems(selector: Json) -> list[Cause]:
    causes = []
    for index, term in enumerate(selector.get("matchExpressions") or []):
        path = f"spec.selector.matchExpressions[{index}]"
        if term.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
            text = f'Invalid value: "{term.get("operator")}": not a valid selector operator'
            causes.append(Cause("FieldValueInvalid", text, f"{path}.operator"))
        if not term.get("key"):
            causes.append(Cause("FieldValueRequired", "Required value", f"{path}.key"))
    return causes


_AMOUNTS = ("capacity", "allocatable", "available")
# As in the definition.
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"


def _no_quantities(resource: Json, path: str) -> list[Cause]:
    amounts = {f"{path}.{name}": resource[name] for name in _AMOUNTS}
    bad = {
        amount_name: text
        for amount_name, text in amounts.items()
        if isinstance(text, str) and not re.match(_QUANTITY, text)
    }
    why = "Invalid value: \"{1}\": {0} in body should match '{2}'"
    return [
        Cause("FieldValueInvalid", why.format(amount_name, text, _QUANTITY), amount_name)
        for amount_name, text in bad.items()
    ]


def topology_problems(topology: Json) -> list[Cause]:
    """Schema of NodeResourceTopology v1alpha2: zones with name and type, resources with their four
    fields.
    """
    zones = topology.get("zones")
    if not isinstance(zones, list):
        return [Cause("FieldValueRequired", "Required value", "zones")]
    causes: list[Cause] = []
    for index, zone in enumerate(zones):
        causes += _missing(zone, ("name", "type"), f"zones[{index}]")
        for place, resource in enumerate(_list(zone, "resources")):
            path = f"zones[{index}].resources[{place}]"
            causes += _missing(resource, ("name", *_AMOUNTS), path) or _no_quantities(
                resource, path
            )
        for place, cost in enumerate(_list(zone, "costs")):
            causes += _missing(cost, ("name", "value"), f"zones[{index}].costs[{place}]")
    for index, attribute in enumerate(_list(topology, "attributes")):
        causes += _missing(attribute, ("name", "value"), f"attributes[{index}]")
    return causes


def _list(holder: Any, field: str) -> list[Any]:
    listed = holder.get(field) if isinstance(holder, dict) else None
    return listed if isinstance(listed, list) else []


def _missing(holder: Any, fields: tuple[str, ...], path: str) -> list[Cause]:
    present = holder if isinstance(holder, dict) else {}
    return [
        Cause("FieldValueRequired", "Required value", f"{path}.{f}")
        for f in fields
        if present.get(f) is None
    ]
