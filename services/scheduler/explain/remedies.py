"""Remedies: changes that would make the pod fit.

A smaller request is only suggested if it suffices: the node is filtered again with that request. A
condition that is necessary, but may not suffice, begins with `necessary:`.
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
    """Return the refusal's remedy, preceded by a smaller request if one fits the node now.

    `filter_pod` filters the node for another pod class.
    """
    text = refusal.remedy
    smaller = _smaller_request(refusal, node_info, pod, filter_pod)
    if not smaller:
        return text
    if not text:
        return smaller
    return f"{smaller}; otherwise {text}" if text.startswith(NECESSARY) else f"{smaller}, or {text}"


def more_free(resource: str, amount: int, place: str) -> str:
    """Return the condition that `amount` more of the resource is free at a place."""
    return f"{NECESSARY}{format_amount(resource, max(0, amount))} more free {resource} {place}"


def _smaller_request(
    refusal: Refusal,
    node_info: NodeInfo | None,
    pod: Pod,
    filter_pod: Callable[[PodClass], Refusal | None],
) -> str:
    """Return the largest request with which the node takes the pod now, as a sentence; "" if no
    smaller request suffices.
    """
    container = _container(refusal, pod)
    if node_info is None or container is None:
        return ""
    name = refusal.resource
    for amount in _amounts(node_info, name, container.requests[name]):
        containers = tuple(
            _with_request(other, name, amount) if other is container else other
            for other in pod.containers
        )
        smaller = msgspec.structs.replace(pod, containers=containers)
        if filter_pod(PodClass("", smaller, 0)) is None:
            asked = f"{format_amount(name, amount)} {name}"
            return f"request at most {asked} in container {container.name}"
    return ""


def _container(refusal: Refusal, pod: Pod) -> Container | None:
    """Return the container to change: the refusal names it, or it is the only one that requests
    the resource.
    """
    if not refusal.resource or not refusal.asked:
        return None
    requesting = [
        container
        for container in pod.containers
        if container.requests.get(refusal.resource) and refusal.container in ("", container.name)
    ]
    return requesting[0] if len(requesting) == 1 else None


def _amounts(node_info: NodeInfo, name: str, asked: int) -> list[int]:
    """Return smaller amounts to try: what zones and sets of zones have free, or have in total."""
    free = [amounts.get(name, 0) for amounts in node_info.free_min.values()]
    sizes = []
    if node_info.report is not None:
        resources = [zone.resources.get(name) for zone in node_info.report.zones]
        sizes = [resource.allocatable for resource in resources if resource is not None]
    amounts = {*accumulate(sorted(free, reverse=True)), *free, *sizes, node_info.free(name)}
    step = 1000 if name == CPU and asked % 1000 == 0 else 1
    rounded = {amount // step * step for amount in amounts}
    if name == CPU:
        # Whole cores of two threads need an even number of CPUs.
        rounded |= {amount - step for amount in rounded}
    return sorted((amount for amount in rounded if 0 < amount < asked), reverse=True)[:MOST_AMOUNTS]


def _with_request(container: Container, name: str, amount: int) -> Container:
    requests = {**container.requests, name: amount}
    limits = container.limits
    if name in limits:
        limits = {**limits, name: amount}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
