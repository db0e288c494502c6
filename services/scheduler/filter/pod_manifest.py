"""Pods as the scheduler reads them from a manifest: with what constraints keep, and with the
requests that count during a resize. Must not know the ledger, watches or HTTP."""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.registry import constrained
from services.scheduler.snapshot import resize
from shared.domain.fields import ManifestError, RefusedError
from shared.domain.kept import trimmed
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Constraints, Pod

Object = dict[str, Any]


def read_pod(obj: Object) -> tuple[Pod, str]:
    """Return the pod and what is wrong with its manifest ("" for nothing)."""
    metadata, spec = part(obj, "metadata"), part(obj, "spec")
    pod = pod_from_manifest(obj)
    if isinstance(pod, ManifestError):
        return _named_only(metadata, spec), str(pod)
    try:
        return trimmed(resize.largest(constrained(pod, spec), part(obj, "status")), spec), ""
    except RefusedError as refused:
        return _named_only(metadata, spec), str(refused.error)


def _named_only(metadata: Object, spec: Object) -> Pod:
    """A pod with an unreadable manifest keeps its name and is never placed."""
    return Pod(
        uid=str(metadata.get("uid", "")),
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        scheduler_name=str(spec.get("schedulerName", "")),
        constraints=Constraints(),
    )


def part(obj: Object, name: str) -> Object:
    """Return a field of an object that is itself an object; {} if it is missing or something else."""
    value = obj.get(name)
    return value if isinstance(value, dict) else {}
