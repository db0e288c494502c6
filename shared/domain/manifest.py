"""A Kubernetes pod as JSON -> the `Pod` value, or a refusal that names field, value and remedy.
Never raises.

The API server's defaults are applied (requests from limits, KEP-2837 pod-level requests), so that a
manifest from a file and the same pod read back from the API give the same value. This module does
not know nodes or zones.
"""

from __future__ import annotations

from sys import intern
from typing import Any

import msgspec

from shared.domain import constraints, fields, qos
from shared.domain.effective import (
    container_limit,
    container_request,
    effective_request,
    is_pod_level,
)
from shared.domain.fields import Json, ManifestError, RefusedError
from shared.domain.gang import KUBERNETES, Gang, gang_of
from shared.domain.pod import Container, ContainerKind, Pod, Qos
from shared.domain.resources import Amounts, is_hugepages

__all__ = ["ManifestError", "pod_from_manifest"]

MAX_POD_AMOUNT = 2**60
_QOS: dict[str, Qos] = {
    "Guaranteed": "Guaranteed",
    "Burstable": "Burstable",
    "BestEffort": "BestEffort",
}


def pod_from_manifest(doc: dict[str, Any], *, defaults: bool = True) -> Pod | ManifestError:
    """Return the pod that a core/v1 Pod object describes, in the units of
    `shared.domain.resources`.

    A pod without `metadata.uid` (a file, not an API object) gets `namespace/name` as its uid. With
    `defaults=False` the requests are not defaulted.
    """
    try:
        pod = _pod(fields.as_mapping(doc if doc is not None else [], ""), defaults)
        _check_total(pod)
    except RefusedError as refused:
        return refused.error
    return pod


def _pod(doc: Json, defaults: bool) -> Pod:
    if fields.text(doc, "kind", "", "Pod") != "Pod":
        raise fields.refuse("kind", doc["kind"], "write Pod")
    metadata, spec = fields.mapping(doc, "metadata", ""), fields.mapping(doc, "spec", "")
    name = fields.name(metadata, "name", "metadata")
    namespace = (
        fields.name(metadata, "namespace", "metadata") if metadata.get("namespace") else "default"
    )
    containers = _containers(spec, defaults)
    level = _pod_level(spec, containers, defaults)
    labels = fields.texts(metadata, "labels", "metadata")
    annotations = fields.texts(metadata, "annotations", "metadata")
    return Pod(
        uid=fields.name(metadata, "uid", "metadata")
        if metadata.get("uid")
        else f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        qos=_qos(doc, containers, level),
        containers=containers,
        overhead=fields.amounts(spec, "overhead", "spec"),
        pod_level=level[0] if level is not None else None,
        priority=fields.integer(spec, "priority", "spec"),
        # Interned texts are the defaults themselves, which events omit.
        preemption_policy=intern(
            fields.text(spec, "preemptionPolicy", "spec") or "PreemptLowerPriority"
        ),
        scheduler_name=fields.text(spec, "schedulerName", "spec") or "default-scheduler",
        labels=labels,
        annotations=annotations,
        constraints=constraints.from_spec(spec),
        gang=_scheduling_group(spec, namespace) or gang_of(namespace, labels, annotations),
        controller=_controller(metadata),
    )


def _controller(metadata: Json) -> str:
    for _, owner in fields.objects(metadata, "ownerReferences", "metadata"):
        if owner.get("controller") is True:
            names = "apiVersion", "kind", "name", "uid"
            return " ".join([str(owner.get(name, "")) for name in names])
    return ""


def _scheduling_group(spec: Json, namespace: str) -> Gang | None:
    group = fields.mapping(spec, "schedulingGroup", "spec")
    if not group:
        return None
    name = fields.name(group, "podGroupName", "spec.schedulingGroup")
    return Gang(f"{namespace}/{name}", api=KUBERNETES)


def _containers(spec: Json, defaults: bool) -> tuple[Container, ...]:
    first, later = (
        fields.objects(spec, "initContainers", "spec"),
        fields.objects(spec, "containers", "spec"),
    )
    inits = [_container(path, doc, _init_kind(path, doc)) for path, doc in first]
    apps = [_container(path, doc, "app") for path, doc in later]
    if not apps:
        raise fields.refuse("spec.containers", [], "write at least one container")
    seen: set[str] = set()
    for container in (*inits, *apps):
        if container.name in seen:
            raise fields.refuse(
                "spec.containers", container.name, "give every container its own name"
            )
        seen.add(container.name)
    return tuple(_defaulted(container) if defaults else container for container in (*inits, *apps))


def _init_kind(path: str, doc: Json) -> ContainerKind:
    policy = fields.text(doc, "restartPolicy", path)
    return "sidecar" if policy == "Always" else "init"


def _container(path: str, doc: Json, kind: ContainerKind) -> Container:
    resources, path_of_resources = fields.mapping(doc, "resources", path), f"{path}.resources"
    return Container(
        name=fields.name(doc, "name", path),
        kind=kind,
        requests=fields.amounts(resources, "requests", path_of_resources),
        limits=fields.amounts(resources, "limits", path_of_resources),
    )


def _defaulted(container: Container) -> Container:
    """Apply SetDefaults_Pod: a limit without a request becomes the request."""
    if all(name in container.requests for name in container.limits):
        return container
    merged = {**container.limits, **container.requests}
    return msgspec.structs.replace(
        container, requests={name: merged[name] for name in sorted(merged)}
    )


def _pod_level(
    spec: Json, containers: tuple[Container, ...], defaults: bool
) -> tuple[Amounts, Amounts] | None:
    """Return `spec.resources` as (requests, limits), or None if the pod has none."""
    if spec.get("resources") is None:
        return None
    resources = fields.mapping(spec, "resources", "spec")
    requests = fields.amounts(resources, "requests", "spec.resources")
    limits = fields.amounts(resources, "limits", "spec.resources")
    return _defaulted_pod_level(requests, limits, containers) if defaults else (requests, limits)


def _defaulted_pod_level(
    requests: Amounts, limits: Amounts, containers: tuple[Container, ...]
) -> tuple[Amounts, Amounts]:
    """Apply defaultHugePagePodLimits and defaultPodRequests (Kubernetes 1.35)."""
    if not requests and not limits:
        return requests, limits
    huge = {
        name: amount for name, amount in container_limit(containers).items() if is_hugepages(name)
    }
    limits = {**huge, **limits}
    if not limits:
        return requests, limits
    from_containers = {
        name: amount
        for name, amount in container_request(containers).items()
        if is_pod_level(name) and not is_hugepages(name)
    }
    from_limits = {name: amount for name, amount in limits.items() if is_pod_level(name)}
    merged = {**from_limits, **from_containers, **requests}
    return {name: merged[name] for name in sorted(merged)}, limits


def _qos(
    doc: Json, containers: tuple[Container, ...], level: tuple[Amounts, Amounts] | None
) -> Qos:
    stated = fields.text(fields.mapping(doc, "status", ""), "qosClass", "status")
    if stated in _QOS:
        return _QOS[stated]
    return qos.of_containers(containers) if level is None else qos.of_pod_level(*level)


def _check_total(pod: Pod) -> None:
    for name, total in effective_request(pod).items():
        if total > MAX_POD_AMOUNT:
            raise fields.refuse(
                f"spec.containers.resources.requests.{name}", total, "ask for less in total"
            )
