"""Whether a Pod may be created or changed so. Must not know storage or requests.

Messages are those of kube-apiserver 1.36 for mistakes that users make: names, containers, images,
resources, immutability. `placement_rules` has the fields about a pod's place.
"""

from __future__ import annotations

import re
from typing import Any

from services.simulator.api.core import placement_rules, quantities
from services.simulator.api.core.names import label_problem
from services.simulator.api.core.refusals import Cause

Json = dict[str, Any]

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_IMMUTABLE = (
    "Forbidden: pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
}


def malformed(pod: Json) -> str:
    """Return the problem with a value that the decoder itself refuses (400), "" for none. Only
    quantities are checked so far."""
    spec = pod.get("spec") or {}
    groups: list[Any] = [spec.get("overhead")]
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or []:
            resources = container.get("resources") or {}
            groups += [resources.get("limits"), resources.get("requests")]
    for amounts in groups:
        if amounts and quantities.canonical_map(amounts) is None:
            return quantities.WRONG_QUANTITY
    return ""


def problems(spec: Json) -> list[Cause]:
    """Every violation in a completed PodSpec, in the server's order."""
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(Cause("FieldValueRequired", "Required value", "spec.containers"))
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or []):
            causes += _container(container, f"spec.{field}[{index}]", seen)
    for field, allowed in _CHOICES.items():
        if spec.get(field) not in allowed:
            causes.append(_unsupported(f"spec.{field}", spec.get(field), allowed))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        causes.append(Cause("FieldValueForbidden", ("Forbidden: cannot be set until all "
"schedulingGates have been cleared"),
                            "spec.nodeName"))  # fmt: skip
    return (
        causes
        + overhead_problems(spec.get("overhead") or {}, "spec.overhead")
        + placement_rules.problems(spec)
    )


def overhead_problems(overhead: Json, path: str) -> list[Cause]:
    """Return violations in a runtime's overhead."""
    return [
        cause
        for name, text in sorted(overhead.items())
        for cause in _amount(name, text, f"{path}.limits[{name}]")
    ]


def _unsupported(field: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{item}"' for item in allowed)
    return Cause(
        "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}', field
    )


def _container(container: Json, path: str, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name") or ""
    if not name:
        causes.append(Cause("FieldValueRequired", "Required value", f"{path}.name"))
    elif problem := label_problem(name):
        causes.append(
            Cause("FieldValueInvalid", f'Invalid value: "{name}": {problem}', f"{path}.name")
        )
    elif name in seen:
        causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name"))
    seen.add(name)
    if not container.get("image"):
        causes.append(Cause("FieldValueRequired", "Required value", f"{path}.image"))
    causes += placement_rules.port_problems(container, path)
    return causes + _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, text in sorted(amounts.items()):
            causes += _amount(name, text, f"{path}.{field}[{name}]")
    for name, text in sorted(requests.items()):
        limit = limits.get(name)
        if limit is not None and _exceeds(text, limit):
            message = (
                f'Invalid value: "{text}": must be less than or equal to {name} limit of {limit}'
            )
            causes.append(Cause("FieldValueInvalid", message, f"{path}.requests"))
        elif name not in _NATIVE and (
            limit is None or quantities.value_of(text) != quantities.value_of(limit)
        ):
            causes.append(_overcommitted(name, text, limit, path))
    named = limits.keys() | requests.keys()
    if any(name.startswith("hugepages-") for name in named) and not named & {"cpu", "memory"}:
        causes.append(
            Cause("FieldValueForbidden", "Forbidden: HugePages require cpu or memory", path)
        )
    return causes


def _overcommitted(name: str, text: str, limit: str | None, path: str) -> Cause:
    if limit is None:
        return Cause(
            "FieldValueRequired",
            "Required value: Limit must be set for non overcommitable resources",
            f"{path}.limits",
        )
    message = f'Invalid value: "{text}": must be equal to {name} limit of {limit}'
    return Cause("FieldValueInvalid", message, f"{path}.requests")


def _amount(name: str, text: str, path: str) -> list[Cause]:
    value = quantities.value_of(text)
    if "/" not in name and name not in _NATIVE and not name.startswith(("hugepages-", "requests.")):
        message = f'Invalid value: "{name}": must be a standard resource type or fully qualified'
        return [Cause("FieldValueInvalid", message, path)]
    if value is not None and value < 0:
        return [
            Cause(
                "FieldValueInvalid",
                f'Invalid value: "{text}": must be greater than or equal to 0',
                path,
            )
        ]
    if value is not None and name not in _NATIVE and value.denominator != 1:
        return [Cause("FieldValueInvalid", f'Invalid value: "{text}": must be an integer', path)]
    return []


def _exceeds(request: str, right: str) -> bool:
    first, second = quantities.value_of(request), quantities.value_of(right)
    return first is not None and second is not None and first > second


def immutability(old: Json, new: Json) -> list[Cause]:
    """Return the problem with an update of a pod's spec, empty if it is allowed."""
    if old == new:
        return []
    changed = _changed_fields(old, new)
    if not changed:
        return []
    lines = [
        f"\n- {_go(name)}: {_shown(old.get(name))}\n+ {_go(name)}: {_shown(new.get(name))}"
        for name in changed
    ]
    return [Cause("FieldValueForbidden", _IMMUTABLE + "".join(lines), "spec")]


def _changed_fields(old: Json, new: Json) -> list[str]:
    free = {"activeDeadlineSeconds"}
    if len(new.get("schedulingGates") or []) < len(old.get("schedulingGates") or []):
        free |= {"schedulingGates", "nodeSelector", "affinity"}
    changed = []
    for name in sorted({*old, *new} - free):
        old_value, right = old.get(name), new.get(name)
        if name in ("containers", "initContainers"):
            old_value, right = _without_images(old_value), _without_images(right)
        if name == "tolerations" and all(item in (right or []) for item in old_value or []):
            continue
        if old_value != right and (old_value or right):
            changed.append(name)
    return changed


def _without_images(containers: Any) -> list[Json]:
    return [
        {key: value for key, value in item.items() if key != "image"} for item in containers or []
    ]


def _go(name: str) -> str:
    return f'"{name[:1].upper()}{name[1:]}"'


def _shown(value: Any) -> str:
    text = re.sub(r"\s+", " ", str(value)) if not isinstance(value, str) else f'"{value}"'
    return "null" if value is None else text[:200]
