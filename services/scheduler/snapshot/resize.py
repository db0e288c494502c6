"""Pods resized in place (KEP-1287, of `spec.resources` KEP-5419): meanwhile a pod may hold what it
had and what it asks for.

As kube-scheduler counts (1.36, component-helpers PodRequests with status): of each resource the
most of the spec, of what the kubelet allocated and of what runs, for each container and for the
pod's own `spec.resources`; where the resize is infeasible the spec's wish counts for nothing. Must
not know nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.domain.pod import Container, Pod
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import Amounts
from shared.domain.resources import largest as most

Object = dict[str, Any]

_POD = ""
"""Stands for the pod itself, where the others are containers by their names."""


def reported(status: Object) -> Object:
    """The part of a status that changes what a pod counts for: compared with the spec to see news."""
    held = {
        name: (allocated, running)
        for name, allocated, running in _entries(status)
        if allocated or running
    }
    return {"resized": (sorted(held.items()), _infeasible(status))} if held else {}


def largest(pod: Pod, status: Object) -> Pod:
    """The pod with what it may hold meanwhile."""
    held = {
        name: most(_amounts(allocated), _amounts(running))
        for name, allocated, running in _entries(status)
    }
    if not any(held.values()):
        return pod
    infeasible = _infeasible(status)
    containers = tuple(
        _container(each, held.get(each.name, {}), infeasible) for each in pod.containers
    )
    whole = pod.pod_level and _pod_level(pod.pod_level, held[_POD], infeasible)
    if containers == pod.containers and whole == pod.pod_level:
        return pod
    return msgspec.structs.replace(pod, containers=containers, pod_level=whole)


def _container(container: Container, held: Amounts, infeasible: bool) -> Container:
    if not held:
        return container
    requests = _requests(container.requests, held, infeasible)
    if requests == container.requests:
        return container
    limits = {name: max(limit, requests.get(name, 0)) for name, limit in container.limits.items()}
    return msgspec.structs.replace(container, requests=requests, limits=limits)


def _pod_level(asked: Amounts, held: Amounts, infeasible: bool) -> Amounts:
    """Of the resources that `spec.resources` names alone: the status may name what containers ask
    for beside them.
    """
    return _requests(asked, {name: held[name] for name in asked if name in held}, infeasible)


def _requests(asked: Amounts, held: Amounts, infeasible: bool) -> Amounts:
    return {**asked, **held} if infeasible else most(asked, held)


def _entries(status: Object) -> list[tuple[str, Object, Object]]:
    """(name, allocated, running) of the pod itself and of each container that has a status."""
    running = _part(_part(status, "resources"), "requests")
    return [(_POD, _part(status, "allocatedResources"), running), *_containers(status)]


def _containers(status: Object) -> list[tuple[str, Object, Object]]:
    """(name, allocatedResources, resources.requests) of each container that has a status."""
    found = []
    for field in ("initContainerStatuses", "containerStatuses"):
        entries = status.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                running = _part(_part(entry, "resources"), "requests")
                found.append(
                    (str(entry.get("name", "")), _part(entry, "allocatedResources"), running)
                )
    return found


def _infeasible(status: Object) -> bool:
    conditions = status.get("conditions")
    pending = [
        c for c in conditions or [] if isinstance(c, dict) and c.get("type") == "PodResizePending"
    ]
    return any(c.get("status") == "True" and c.get("reason") == "Infeasible" for c in pending)


def _amounts(quantities: Object) -> Amounts:
    """What cannot be read counts for nothing: the spec stands beside it."""
    found = {}
    for name in sorted(quantities):
        try:
            found[name] = amount(name, quantities[name])
        except (QuantityError, TypeError):
            continue
    return found


def _part(obj: Object, name: str) -> Object:
    part = obj.get(name)
    return part if isinstance(part, dict) else {}
