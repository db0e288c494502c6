"""Defaults and checks of workloads (Deployment, ReplicaSet, StatefulSet, Job).

Must not know storage, or how pods are made of a workload (the simulator's controllers do that).
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core import kinds
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Cause

Json = dict[str, Any]


def with_defaults(kind: Kind, obj: Json) -> Json:
    """A workload at creation: one replica, one completion; a Job selects its pods by itself."""
    spec = dict(obj.get("spec") or {})
    if kind is kinds.JOBS:
        spec = {
            "parallelism": 1,
            "completions": spec.get("parallelism") or 1,
            "backoffLimit": 6,
            **spec,
        }
        template = dict(spec.get("template") or {})
        template["spec"] = {"restartPolicy": "Never", **(template.get("spec") or {})}
        spec["template"] = template
    else:
        spec.setdefault("replicas", 1)
    if kind is kinds.DEPLOYMENTS:
        spec.setdefault("strategy", {"type": "RollingUpdate"})
    return {**obj, "spec": spec, "status": {}}


def problems(kind: Kind, full: Json) -> list[Cause]:
    """Violations of a workload's spec that a user meets: no template, no containers, a selector
    that does not select.
    """
    spec = full.get("spec") or {}
    template = spec.get("template") or {}
    causes = []
    for field in ("replicas", "parallelism", "completions"):
        if isinstance(spec.get(field), int) and spec[field] < 0:
            text = f"Invalid value: {spec[field]}: must be greater than or equal to 0"
            causes.append(Cause("FieldValueInvalid", text, f"spec.{field}"))
    if not (template.get("spec") or {}).get("containers"):
        causes.append(
            Cause("FieldValueRequired", "Required value", "spec.template.spec.containers")
        )
    if kind is kinds.JOBS:
        return causes
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not wanted and not (spec.get("selector") or {}).get("matchExpressions"):
        causes.append(Cause("FieldValueRequired", "Required value", "spec.selector"))
    elif any(labels.get(key) != value for key, value in wanted.items()):
        text = f"Invalid value: {labels}: `selector` does not match template `labels`".replace(
            "'", '"'
        )
        causes.append(Cause("FieldValueInvalid", text, "spec.template.metadata.labels"))
    return causes
