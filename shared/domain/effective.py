"""What a pod asks of a node as a whole: the kube-scheduler's formula (k8s.io/component-helpers
PodRequests).

App containers and sidecars add up; an ordinary init container counts with the sidecars started
before it; the larger of both is taken by resource; pod-level requests replace cpu, memory and
hugepages; overhead comes on top. This module must not know zones: which part is pinned where is the
kubelet model's matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.pod import Container, Pod
from shared.domain.resources import Amounts, add, is_numa_affine, largest


def effective_request(pod: Pod) -> Amounts:
    """Resource -> amount that the pod needs of its node, by name (KEP-753, KEP-2837)."""
    total = container_request(pod.containers)
    if pod.pod_level is not None:
        total = {
            **total,
            **{name: held for name, held in pod.pod_level.items() if is_pod_level(name)},
        }
    return add(total, pod.overhead)


def container_request(containers: Iterable[Container]) -> Amounts:
    """The aggregate of the containers alone, without overhead and pod-level resources."""
    return _aggregate([(container.kind, container.requests) for container in containers])


def container_limit(containers: Iterable[Container]) -> Amounts:
    """The same aggregate over limits."""
    return _aggregate([(container.kind, container.limits) for container in containers])


def is_pod_level(name: str) -> bool:
    """May the resource be given in `spec.resources`? cpu, memory and hugepages only."""
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
