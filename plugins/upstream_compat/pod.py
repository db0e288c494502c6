"""A pod as the plugin reads it: requests and limits without defaults, and what the plugin derives
from them.

The quirks are deliberate: pod-level resources decide only the QoS class, sidecars count as ordinary
init containers, and an absent request differs from a zero one. The default mode has its own pod
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from plugins.upstream_compat import reading
from plugins.upstream_compat.amounts import Quantities, from_amounts, plus
from shared.domain.pod import ContainerKind, Qos
from shared.domain.pod import Pod as DomainPod
from shared.domain.resources import is_device

_QOS_RESOURCES = ("cpu", "memory")


class Container(msgspec.Struct, frozen=True):
    """One container with exactly the requests and limits of its manifest."""

    name: str
    kind: ContainerKind = "app"
    requests: Quantities = {}
    limits: Quantities = {}


class Pod(msgspec.Struct, frozen=True):
    """`containers` in spec order: init containers (and sidecars) first, then app containers.

    `pod_level` is (requests, limits) of spec.resources where that is present, `reported_qos` is
    status.qosClass.
    """

    namespace: str
    name: str
    uid: str = ""
    node_name: str = ""
    scheduler_name: str = ""
    phase: str = ""
    reported_qos: str = ""
    containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    pod_level: tuple[Quantities, Quantities] | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, the only identity that the plugin knows."""
        return f"{self.namespace}/{self.name}"


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """Return the pod that an API client's JSON object describes. Raises `InvalidObjectError`, which
    names the first unusable field.
    """
    document = reading.as_mapping(raw, "")
    metadata, spec, status = (
        reading.mapping(document, part, "") for part in ("metadata", "spec", "status")
    )
    return Pod(
        namespace=reading.text(metadata, "namespace", "metadata."),
        name=reading.text(metadata, "name", "metadata."),
        uid=reading.text(metadata, "uid", "metadata."),
        node_name=reading.text(spec, "nodeName", "spec."),
        scheduler_name=reading.text(spec, "schedulerName", "spec."),
        phase=reading.text(status, "phase", "status."),
        reported_qos=reading.text(status, "qosClass", "status."),
        containers=(*_containers(spec, "initContainers"), *_containers(spec, "containers")),
        overhead=reading.quantities(spec, "overhead", "spec."),
        pod_level=_pod_level(spec),
    )


def from_domain(pod: DomainPod, node_name: str = "", phase: str = "") -> Pod:
    """Return Topolog's own pod value as the plugin would read it; its QoS class becomes
    status.qosClass.
    """
    containers = tuple(
        Container(each.name, each.kind, from_amounts(each.requests), from_amounts(each.limits))
        for each in pod.containers
    )
    overhead = from_amounts(pod.overhead)
    return Pod(
        pod.namespace,
        pod.name,
        pod.uid,
        node_name,
        pod.scheduler_name,
        phase,
        pod.qos,
        containers,
        overhead,
    )


def qos_class(pod: Pod) -> Qos:
    """Return status.qosClass if it is set, else the class by Kubernetes 1.35 (spec.resources alone,
    if present).
    """
    if pod.reported_qos:
        return pod.reported_qos  # type: ignore[return-value]  # an unknown text passes for Burstable everywhere
    lists = (
        [pod.pod_level]
        if pod.pod_level is not None
        else [(each.requests, each.limits) for each in pod.containers]
    )
    requests, limits = (
        _summed(requests for requests, _ in lists),
        _summed(limits for _, limits in lists),
    )
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if _all_limited(pod) and requests == limits else "Burstable"


def effective_request(pod: Pod) -> Quantities:
    """Return for each resource the larger of the app containers' sum and the largest init container
    (sidecars included), plus overhead.
    """
    total: Quantities = {}
    for container in apps(pod):
        total = _added(total, container.requests)
    for container in inits(pod):
        for name, quantity in container.requests.items():
            if name not in total or total[name].nano < quantity.nano:
                total[name] = quantity
    return _added(total, pod.overhead)


def inits(pod: Pod) -> Iterator[Container]:
    """Return the init containers in spec order, sidecars included."""
    return (each for each in pod.containers if each.kind != "app")


def apps(pod: Pod) -> Iterator[Container]:
    """Return the app containers in spec order."""
    return (each for each in pod.containers if each.kind == "app")


def asks_for_devices(pod: Pod) -> bool:
    """Return whether a container names a resource that is not Kubernetes' own, in any quantity."""
    return any(is_device(name) for container in pod.containers for name in container.requests)


def _containers(spec: Mapping[str, Any], key: str) -> Iterator[Container]:
    for path, raw in reading.objects(spec, key, "spec."):
        resources = reading.mapping(raw, "resources", f"{path}.")
        yield Container(
            name=reading.text(raw, "name", f"{path}."),
            kind=_kind(key, reading.text(raw, "restartPolicy", f"{path}.")),
            requests=reading.quantities(resources, "requests", f"{path}.resources."),
            limits=reading.quantities(resources, "limits", f"{path}.resources."),
        )


def _kind(key: str, restart_policy: str) -> ContainerKind:
    if key == "containers":
        return "app"
    return "sidecar" if restart_policy == "Always" else "init"


def _pod_level(spec: Mapping[str, Any]) -> tuple[Quantities, Quantities] | None:
    if spec.get("resources") is None:
        return None
    resources = reading.mapping(spec, "resources", "spec.")
    return tuple(
        reading.quantities(resources, key, "spec.resources.") for key in ("requests", "limits")
    )  # type: ignore[return-value]


def _all_limited(pod: Pod) -> bool:
    """Return whether every container (or the pod as a whole) limits both cpu and memory, as
    Guaranteed requires.
    """
    if pod.pod_level is not None:
        return _limits_both(pod.pod_level[1])
    return all(_limits_both(container.limits) for container in pod.containers)


def _limits_both(limits: Quantities) -> bool:
    return all(name in limits and limits[name].nano > 0 for name in _QOS_RESOURCES)


def _summed(lists: Iterator[Quantities]) -> dict[str, int]:
    total: dict[str, int] = {}
    for quantities in lists:
        for name in _QOS_RESOURCES:
            if name in quantities and quantities[name].nano > 0:
                total[name] = total.get(name, 0) + quantities[name].nano
    return total


def _added(total: Quantities, more: Quantities) -> Quantities:
    return {
        **total,
        **{name: plus(total[name], each) if name in total else each for name, each in more.items()},
    }
