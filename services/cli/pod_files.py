"""Read the pods of a manifest file: Pods, and the pods that a controller would create.

A Deployment of three replicas gives three numbered pods (`web-0`, `web-1`, `web-2`). Objects
without pods (Services, ConfigMaps) are skipped and named. Pure: parsed documents in, values out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from shared.domain import fields
from shared.domain.fields import Json, ManifestError, RefusedError, refuse
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod

MAX_PODS = 10_000
_COUNTED = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "ReplicationController": "replicas",
}
# API groups whose objects of these kinds have a pod template at spec.template.
_GROUPS = {
    "Deployment": ("apps",),
    "ReplicaSet": ("apps",),
    "StatefulSet": ("apps",),
    "DaemonSet": ("apps",),
    "Job": ("batch",),
    "ReplicationController": (),
}
_VOLCANO = "batch.volcano.sh"
_WITHOUT_PODS = (
    "ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition",
    "HorizontalPodAutoscaler", "Ingress", "LimitRange", "Namespace", "NetworkPolicy", "Node",
    "NodeResourceTopology", "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget",
    "PriorityClass", "ResourceQuota", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount",
)  # fmt: skip
_REMEDY = "write a Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or CronJob"


class PodFile(msgspec.Struct, frozen=True):
    """Pods in order, and the skipped objects (`Service web`)."""

    pods: tuple[Pod, ...]
    skipped: tuple[str, ...] = ()


class WrongManifest(msgspec.Struct, frozen=True):
    """The document at `number` (from 1) cannot be read as pods."""

    number: int
    error: ManifestError


def read(documents: list[Any]) -> PodFile | WrongManifest:
    """Return the pods of all documents and of the items of Lists."""
    pods: list[Pod] = []
    skipped: list[str] = []
    for number, document in enumerate(_items(documents), 1):
        try:
            for manifest in _pod_manifests(fields.as_mapping(document, "")):
                pods.append(_pod(manifest))
        except _NoPods as without_pods:
            skipped.append(without_pods.name)
        except RefusedError as refused:
            return WrongManifest(number, refused.error)
    return PodFile(tuple(pods), tuple(skipped))


class _NoPods(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _items(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        yield from items if isinstance(items, list) else [document]


def _pod(manifest: Json) -> Pod:
    parsed = pod_from_manifest(dict(manifest))
    if isinstance(parsed, ManifestError):
        raise RefusedError(parsed)
    return parsed


def _pod_manifests(doc: Json) -> Iterator[Json]:
    kind = fields.text(doc, "kind", "", "Pod")
    group = fields.text(doc, "apiVersion", "").rpartition("/")[0]
    if kind == "Pod":
        yield doc
    elif kind in _WITHOUT_PODS:
        raise _NoPods(
            f"{kind} {fields.text(fields.mapping(doc, 'metadata', ''), 'name', 'metadata')}"
        )
    elif kind == "CronJob":
        job = fields.mapping(fields.mapping(doc, "spec", ""), "jobTemplate", "spec")
        yield from _of_template(
            {**doc, "kind": "Job", "spec": fields.mapping(job, "spec", "spec.jobTemplate")}, "Job"
        )
    elif group == _VOLCANO and kind == "Job":
        yield from _of_tasks(doc)
    elif kind in (*_COUNTED, "Job", "DaemonSet"):
        if group not in ("", *_GROUPS[kind]):
            raise refuse(
                "apiVersion",
                doc["apiVersion"],
                f"a {kind} of group {group} is not read; write its pods, or a {kind} of "
                f"{' or '.join(_GROUPS[kind]) or 'v1'}",
            )
        yield from _of_template(doc, kind)
    else:
        raise refuse("kind", kind, _REMEDY)


def _of_tasks(doc: Json) -> Iterator[Json]:
    """Yield the pods of a Volcano Job: `<job>-<task>-<number>`, as its controller names them."""
    metadata, spec = fields.mapping(doc, "metadata", ""), fields.mapping(doc, "spec", "")
    job = fields.name(metadata, "name", "metadata")
    for path, task in fields.objects(spec, "tasks", "spec"):
        name = fields.name(task, "name", path)
        yield from _of_template(
            {**doc, "metadata": {**metadata, "name": f"{job}-{name}"}, "spec": task}, "ReplicaSet"
        )


def _of_template(doc: Json, kind: str) -> Iterator[Json]:
    metadata, spec = fields.mapping(doc, "metadata", ""), fields.mapping(doc, "spec", "")
    template = fields.mapping(spec, "template", "spec")
    if not template:
        raise refuse("spec.template", None, f"give the {kind} a pod template")
    name, count = fields.name(metadata, "name", "metadata"), _count(spec, kind)
    for number in range(count):
        pod_metadata = dict(fields.mapping(template, "metadata", "spec.template"))
        pod_metadata["name"] = f"{name}-{number}"
        if metadata.get("namespace"):
            pod_metadata["namespace"] = metadata["namespace"]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": pod_metadata,
            "spec": fields.mapping(template, "spec", "spec.template"),
        }


def _count(spec: Json, kind: str) -> int:
    """Return how many pods could be on one node at once: all replicas, a Job's parallelism, one pod
    of a DaemonSet.
    """
    if kind == "DaemonSet":
        return 1
    field = _COUNTED.get(kind, "parallelism")
    count = 1 if spec.get(field) is None else fields.integer(spec, field, "spec")
    if kind == "Job" and spec.get("completions") is not None:
        count = min(count, fields.integer(spec, "completions", "spec"))
    if not 0 <= count <= MAX_PODS:
        raise refuse(f"spec.{field}", count, f"write 0 to {MAX_PODS}")
    return count
