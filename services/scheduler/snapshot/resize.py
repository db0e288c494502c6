"""Pods that are resized in place (KEP-1287; of `spec.resources` KEP-5419): until the resize is done
a pod may hold its old amounts and the new ones.

Counts as kube-scheduler 1.36 does (component-helpers, PodRequests with status): of each resource
the largest of the spec, of what the kubelet allocated and of what runs, for each container and for
the pod's own `spec.resources`. If the resize is infeasible, the spec's amounts do not count. Must
not know nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.domain.pod import Container, Pod
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import Amounts
from shared.domain.resources import largest as most

Object = dict[str, Any]

# The pod itself, among containers by their names.
_POD = ""


def reported(status: Object) -> Object:
    """Return the part of a status that changes a pod's requests, for comparison with its spec."""
    amounts = {
        name: (allocated, running)
        for name, allocated, running in _entries(status)
        if allocated or running
    }
    return {"resized": (sorted(amounts.items()), _infeasible(status))} if amounts else {}


def largest(pod: Pod, status: Object) -> Pod:
    """Return the pod with the largest requests that it may hold meanwhile."""
    current = {
        name: most(_amounts(allocated), _amounts(running))
        for name, allocated, running in _entries(status)
    }
    if not any(current.values()):
        return pod
    infeasible = _infeasible(status)
    containers = tuple(
        _container(container, current.get(container.name, {}), infeasible)
        for container in pod.containers
    )
    pod_level = pod.pod_level and _pod_level(pod.pod_level, current[_POD], infeasible)
    if containers == pod.containers and pod_level == pod.pod_level:
        return pod
    return msgspec.structs.replace(pod, containers=containers, pod_level=pod_level)


def _container(container: Container, current: Amounts, infeasible: bool) -> Container:
    if not current:
        return container
    requests = _requests(container.requests, current, infeasible)
    if requests == container.requests:
        return container
    limits = {name: max(limit, requests.get(name, 0)) for name, limit in container.limits.items()}
    return msgspec.structs.replace(container, requests=requests, limits=limits)


def _pod_level(requests: Amounts, current: Amounts, infeasible: bool) -> Amounts:
    # The status may also name resources that only containers request.
    named = {name: current[name] for name in requests if name in current}
    return _requests(requests, named, infeasible)


def _requests(requests: Amounts, current: Amounts, infeasible: bool) -> Amounts:
    return {**requests, **current} if infeasible else most(requests, current)


def _entries(status: Object) -> list[tuple[str, Object, Object]]:
    """(name, allocatedResources, resources.requests) of the pod and of containers with a status."""
    running = _part(_part(status, "resources"), "requests")
    return [(_POD, _part(status, "allocatedResources"), running), *_containers(status)]


def _containers(status: Object) -> list[tuple[str, Object, Object]]:
    entries = []
    for field in ("initContainerStatuses", "containerStatuses"):
        statuses = status.get(field)
        for entry in statuses if isinstance(statuses, list) else ():
            if isinstance(entry, dict):
                running = _part(_part(entry, "resources"), "requests")
                entries.append(
                    (str(entry.get("name", "")), _part(entry, "allocatedResources"), running)
                )
    return entries


def _infeasible(status: Object) -> bool:
    conditions = status.get("conditions")
    pending = [
        c for c in conditions or [] if isinstance(c, dict) and c.get("type") == "PodResizePending"
    ]
    return any(c.get("status") == "True" and c.get("reason") == "Infeasible" for c in pending)


def _amounts(quantities: Object) -> Amounts:
    # An unreadable amount is left out: the spec's amount still counts.
    amounts = {}
    for name in sorted(quantities):
        try:
            amounts[name] = amount(name, quantities[name])
        except (QuantityError, TypeError):
            continue
    return amounts


def _part(obj: Object, name: str) -> Object:
    part = obj.get(name)
    return part if isinstance(part, dict) else {}
