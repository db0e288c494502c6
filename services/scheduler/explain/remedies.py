"""Remedies: what would make the pod fit.

A remedy that changes the pod's request is verified: the node is filtered again with the smaller
request, and only an amount that passes is named. A condition that must hold in any case, but may
not suffice, begins with `necessary:`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import msgspec

from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from shared.domain.pod import Container, Pod
from shared.domain.quantity import format_amount
from shared.domain.refusal import Refusal
from shared.domain.resources import CPU

NECESSARY = "necessary: "
# Amounts that are tried for one refusal, the largest first.
MOST_AMOUNTS = 12


def remedy(
    refusal: Refusal,
    node_info: NodeInfo | None,
    pod: Pod,
    filter_pod: Callable[[PodClass], Refusal | None],
) -> str:
    """Return the refusal's remedy, with a smaller request that would fit, if there is one.
    `filter_pod` filters the node for another pod class."""
    text = refusal.remedy
    smaller = _smaller_request(refusal, node_info, pod, filter_pod)
    if not smaller:
        return text
    joined = f"; otherwise {text}" if text.startswith(NECESSARY) else f", or {text}"
    return smaller + (joined if text else "")


def more_free(resource: str, amount: int, place: str) -> str:
    """Return the condition that so much more is free at a place."""
    return f"{NECESSARY}{format_amount(resource, max(0, amount))} more free {resource} {place}"


def _smaller_request(
    refusal: Refusal,
    node_info: NodeInfo | None,
    pod: Pod,
    filter_pod: Callable[[PodClass], Refusal | None],
) -> str:
    """The largest request with which the node takes the pod as it is now; "" for none."""
    container = _container(refusal, pod)
    if node_info is None or container is None:
        return ""
    name = refusal.resource
    for amount in _amounts(node_info, name, container.requests[name]):
        smaller = msgspec.structs.replace(
            pod,
            containers=tuple(
                _with_request(part, name, amount) if part is container else part
                for part in pod.containers
            ),
        )
        if filter_pod(PodClass("", smaller, 0)) is None:
            asked = f"{format_amount(name, amount)} {name}"
            return f"request at most {asked} in container {container.name}"
    return ""


def _container(refusal: Refusal, pod: Pod) -> Container | None:
    """The one container whose request of the resource can be changed."""
    if not refusal.resource or not refusal.asked:
        return None
    asking = [part for part in pod.containers if part.requests.get(refusal.resource)]
    if refusal.container:
        asking = [part for part in asking if part.name == refusal.container]
    return asking[0] if len(asking) == 1 else None


def _amounts(node_info: NodeInfo, name: str, asked: int) -> list[int]:
    """Amounts below the request that zones or sets of zones have free, or have when empty."""
    free = [amounts.get(name, 0) for amounts in node_info.free_min.values()]
    sizes = []
    if node_info.report is not None:
        resources = [zone.resources.get(name) for zone in node_info.report.zones]
        sizes = [resource.allocatable for resource in resources if resource is not None]
    amounts = {*accumulate(sorted(free, reverse=True)), *free, *sizes, node_info.free(name)}
    step = 1000 if name == CPU and asked % 1000 == 0 else 1
    rounded = {amount // step * step for amount in amounts}
    if name == CPU:
        # A kubelet that gives whole physical cores takes an even number of CPUs.
        rounded |= {amount - step for amount in rounded}
    return sorted((amount for amount in rounded if 0 < amount < asked), reverse=True)[:MOST_AMOUNTS]


def _with_request(container: Container, name: str, amount: int) -> Container:
    requests = {**container.requests, name: amount}
    limits = container.limits
    if name in limits:
        limits = {**limits, name: amount}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
