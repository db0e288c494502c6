"""Pods as the scheduler reads them from a manifest: with what constraints keep, and with the
requests that count during a resize. Must not know the ledger, watches or HTTP."""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.registry import constrained
from services.scheduler.snapshot import resize
from shared.domain.fields import ManifestError, RefusedError, part
from shared.domain.kept import trimmed
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Constraints, Pod

Object = dict[str, Any]

# Fields by which a pod selects nodes and other pods, and how many values they may have together. A
# decision costs time for each of them on every node, and a tenant can put 6,000 anti-affinity terms
# into one pod. A pod of 100 terms with a selector of two labels each has 900.
RULES = ("affinity", "topologySpreadConstraints", "nodeSelector", "tolerations")
MOST_RULE_VALUES = 2_000
TOO_MANY_RULES = (
    f"spec.affinity, topologySpreadConstraints, nodeSelector and tolerations have more than "
    f"{MOST_RULE_VALUES} values together; use fewer terms"
)


def read_pod(obj: Object) -> tuple[Pod, str]:
    """Return the pod and the problem of its manifest ("" for none)."""
    metadata, spec = part(obj, "metadata"), part(obj, "spec")
    limited = has_more_values([spec.get(name) for name in RULES], MOST_RULE_VALUES)
    if limited:
        # Without the rules: a pod that runs is still charged with its holdings.
        spec = {name: value for name, value in spec.items() if name not in RULES}
    pod = pod_from_manifest({**obj, "spec": spec})
    if isinstance(pod, ManifestError):
        return _named_only(metadata, spec), str(pod)
    try:
        pod = trimmed(resize.largest(constrained(pod, spec), part(obj, "status")), spec)
    except RefusedError as refused:
        return _named_only(metadata, spec), str(refused.error)
    return pod, TOO_MANY_RULES if limited else ""


def has_more_values(tree: Any, limit: int) -> bool:
    """Return whether a JSON value has more than so many values in it, itself included."""
    values, pending = 0, [tree]
    while pending and values <= limit:
        value = pending.pop()
        values += 1
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return values > limit


def _named_only(metadata: Object, spec: Object) -> Pod:
    """A pod with an unreadable manifest keeps its name and is never placed."""
    return Pod(
        uid=str(metadata.get("uid", "")),
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        scheduler_name=str(spec.get("schedulerName", "")),
        constraints=Constraints(),
    )
