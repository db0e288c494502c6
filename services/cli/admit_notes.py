"""Why `topolog admit` pinned nothing, or what pins the zone of a rejected pod.

A note on a rejection is the answer of the kubelet model to the same pod with one thing changed, so
that the remedy it names is sufficient. This module does not know how a result is printed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.domain.pod import Container, Pod
from shared.domain.quantity import format_amount
from shared.domain.resources import CPU, MEMORY
from shared.kubelet.admission import admit
from shared.kubelet.cpu_manager import STATIC
from shared.kubelet.cpu_request import exclusive_cpus
from shared.kubelet.machine import KubeletState


def shared_cpus(pod: Pod, state: KubeletState) -> str:
    """Return why the static CPU Manager gives the pod no CPUs of its own, "" if it does or is
    off.
    """
    requested = [container for container in pod.containers if container.requests.get(CPU, 0)]
    if state.kubelet.config.cpu_policy != STATIC or not requested:
        return ""
    if any(exclusive_cpus(pod, container) for container in pod.containers):
        return ""
    if pod.qos != "Guaranteed":
        cause = next(filter(None, map(_not_guaranteed, pod.containers)), "")
        return f"CPUs are shared, nothing is pinned: the pod is {pod.qos}{cause and f' ({cause})'}"
    if pod.pod_level:
        return "CPUs are shared, nothing is pinned: the pod has spec.resources"
    fraction = next(container for container in requested if container.requests[CPU] % 1000)
    cpus = format_amount(CPU, fraction.requests[CPU])
    return (
        f"CPUs are shared, nothing is pinned: container {fraction.name} requests {cpus} cpu, "
        "which is not a whole number"
    )


def _not_guaranteed(container: Container) -> str:
    """Return why this container keeps its pod from being Guaranteed."""
    for name in (CPU, MEMORY):
        if name not in container.limits:
            return f"container {container.name} has no {name} limit"
        if container.requests.get(name, 0) != container.limits[name]:
            return f"container {container.name} requests less {name} than its limit"
    return ""


def what_pins(pod: Pod, state: KubeletState) -> str:
    """Return which init container keeps a rejected pod out, "" if none alone does.

    The kubelet reuses an init container's CPUs and memory in later containers, so they must contain
    its zones.
    """
    for container in pod.containers:
        if container.kind != "init":
            continue
        for changed, remedy in _without(pod, container):
            if admit(state, changed).admitted:
                return (
                    f"init container {container.name} is placed first, and later containers must "
                    f"reuse its zones. The pod is admitted {remedy}"
                )
    return ""


def _without(pod: Pod, container: Container) -> Iterator[tuple[Pod, str]]:
    cpu = container.requests.get(CPU, 0)
    if cpu and cpu % 1000 == 0:
        shares = msgspec.structs.replace(
            container,
            requests={**container.requests, CPU: cpu - 1},
            limits={**container.limits, CPU: cpu - 1},
        )
        yield (
            _replaced(pod, container, shares),
            f"if it requests {format_amount(CPU, cpu - 1)} cpu, which is shared and not pinned",
        )
    yield _replaced(pod, container, None), f"without init container {container.name}"


def _replaced(pod: Pod, container: Container, changed: Container | None) -> Pod:
    containers = [
        changed if listed is container else listed
        for listed in pod.containers
        if listed is not container or changed is not None
    ]
    return msgspec.structs.replace(
        pod, containers=tuple(entry for entry in containers if entry is not None)
    )
