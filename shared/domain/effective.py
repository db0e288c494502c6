"""What a pod requests from a node as a whole, by kube-scheduler's formula (k8s.io/component-helpers
PodRequests).

App containers and sidecars add up. An ordinary init container counts with the sidecars started
before it. The larger of both is taken for each resource. Pod-level requests replace cpu, memory and
hugepages; overhead is added. This module does not know zones: the kubelet model decides where a
container is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.pod import Container, Pod
from shared.domain.resources import Amounts, add, is_numa_affine, largest


def effective_request(pod: Pod) -> Amounts:
    """Return resource -> amount that the pod needs from its node (KEP-753, KEP-2837)."""
    total = container_request(pod.containers)
    if pod.pod_level is not None:
        total = {
            **total,
            **{name: amount for name, amount in pod.pod_level.items() if is_pod_level(name)},
        }
    return add(total, pod.overhead)


def container_request(containers: Iterable[Container]) -> Amounts:
    """Return the aggregate of the containers alone, without overhead and pod-level resources."""
    return _aggregate([(container.kind, container.requests) for container in containers])


def container_limit(containers: Iterable[Container]) -> Amounts:
    """Return the same aggregate over limits."""
    return _aggregate([(container.kind, container.limits) for container in containers])


def is_pod_level(name: str) -> bool:
    """Return whether `spec.resources` may hold the resource: only cpu, memory and hugepages."""
    return is_numa_affine(name)


def _aggregate(demands: list[tuple[str, Amounts]]) -> Amounts:
    running: Amounts = {}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for kind, demand in demands:
        if kind == "init":
            peak = largest(peak, add(demand, sidecars))
            continue
        running = add(running, demand)
        if kind == "sidecar":
            sidecars = add(sidecars, demand)
            peak = largest(peak, sidecars)
    return largest(running, peak)
