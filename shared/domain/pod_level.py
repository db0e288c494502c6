"""Pods with resources of their own (KEP-2837) on a kubelet with PodLevelResourceManagers on
(KEP-5526, kubelet 1.36): their exclusive resources.

1. Scope container, and policy none: a container whose cpu and memory requests equal its limits gets
   both exclusively, as in any Guaranteed pod. The other containers get nothing of their own.

2. Scope pod: the pod gets one pool, as large as its own requests, and containers share it. It
   counts as one container, `POD_LEVEL`.

3. Pods of another class get nothing, as without the gate.

Source: kubelet 1.36.3, policy_static.go of the CPU and the Memory Manager, scope_pod.go. This
module does not know nodes.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from shared.domain.effective import container_limit
from shared.domain.pod import Container, Pod
from shared.domain.report import POD_LEVEL
from shared.domain.resources import CPU, MEMORY, Amounts, is_device, is_memory

POD_SCOPE = "pod"

SHARED_MEMORY = (
    "the Memory Manager refuses containers whose cpu and memory requests differ from their limits"
)
DEVICES = "under scope pod the kubelet admits the pod without its devices"
NOTHING_LEFT = "its containers' own requests leave no %s for the others"


def as_managed(pod: Pod, scope: str) -> Pod:
    """Return the pod without resources of its own that the managers treat like this one.

    `scope` is that of pod-level managers (`Report.pod_level_scope`).
    """
    if pod.pod_level is None or pod.qos != "Guaranteed":
        return pod
    if scope == POD_SCOPE:
        devices = {
            name: count
            for name, count in container_limit(pod.containers).items()
            if is_device(name)
        }
        amounts = {**pod.pod_level, **devices}
        containers: tuple[Container, ...] = (Container(POD_LEVEL, "app", amounts, amounts),)
    else:
        containers = tuple([_alone(container) for container in pod.containers])
    return msgspec.structs.replace(pod, containers=containers, pod_level=None)


def refusal(pod: Pod, scope: str, tracked: Collection[str]) -> str:
    """Return why the kubelet refuses the pod or may fail to start it, whatever is free; ""
    if neither. `tracked` are the resources that its managers pin."""
    if not scope or pod.pod_level is None or pod.qos != "Guaranteed":
        return ""
    if scope == POD_SCOPE:
        if any(is_device(name) for container in pod.containers for name in container.limits):
            return DEVICES
        return pool_problem(pod, tracked)
    pins_memory = any(is_memory(name) for name in tracked)
    return SHARED_MEMORY if pins_memory and not all(map(is_exclusive, pod.containers)) else ""


def pool_problem(pod: Pod, tracked: Collection[str]) -> str:
    """Return why the pod's pool serves only some of its containers; "" if it serves all."""
    for name, total in (pod.pod_level or {}).items():
        if name in tracked and _exclusive(name, total) and _runs_out(pod, name, total):
            return NOTHING_LEFT % name
    return ""


def is_exclusive(container: Container) -> bool:
    """Return whether requests equal limits for cpu and memory, none of them 0."""
    requests, limits = container.requests, container.limits
    return all(0 < requests.get(name, 0) == limits.get(name, 0) for name in (CPU, MEMORY))


def _alone(container: Container) -> Container:
    if is_exclusive(container):
        return container
    return Container(
        container.name, container.kind, _devices(container.requests), _devices(container.limits)
    )


def _devices(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if is_device(name)}


def _exclusive(name: str, amount: int) -> int:
    """The kubelet gives whole CPUs exclusively, and any amount of memory."""
    return 0 if name == CPU and amount % 1000 else amount


def _runs_out(pod: Pod, name: str, total: int) -> bool:
    """An ordinary init container shares what the sidecars before it leave, other containers share
    what all apps and sidecars leave."""
    running, someone_shares = 0, False
    for container in pod.containers:
        alone = is_exclusive(container)
        amount = _exclusive(name, container.requests.get(name, 0)) if alone else 0
        shares = not amount if name == CPU else not alone
        if container.kind != "init":
            running, someone_shares = running + amount, someone_shares or shares
        elif shares and running >= total:
            return True
    return someone_shares and running >= total
