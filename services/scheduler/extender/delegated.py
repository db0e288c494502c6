"""Extended resources that DRA drivers give: what of a pod's request is not judged on a node for a
kube-scheduler.

It has judged that before it asks an extender, and the kubelet leaves it out at admission and aligns
none of it. Which resources these are is for the constraint of that name. Must not know verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.scheduler.filter.constraints.constraint import Around
from services.scheduler.filter.constraints.given_by_drivers import by_others, given
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Container, Pod


def judged_on(pod: Pod, node_info: NodeInfo, around: Around) -> Pod:
    """The pod as this node is judged for it."""
    return _without(pod, by_others(given(pod, around), node_info))


def parted(pod: Pod, names: Iterable[str], around: Around) -> list[tuple[Pod, list[str]]]:
    """The pod as nodes are judged for it, and which; those that are not known with the pod as it
    is.
    """
    found = given(pod, around)
    if not found:
        return [(pod, list(names))]
    parts: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        node_info = around.nodes.get(name)
        parts.setdefault(() if node_info is None else by_others(found, node_info), []).append(name)
    return [(_without(pod, others), theirs) for others, theirs in parts.items()]


def _without(pod: Pod, names: tuple[str, ...]) -> Pod:
    if not names:
        return pod
    return msgspec.structs.replace(
        pod, containers=tuple(_asks_no(names, each) for each in pod.containers)
    )


def _asks_no(names: tuple[str, ...], container: Container) -> Container:
    requests = {name: amount for name, amount in container.requests.items() if name not in names}
    limits = {name: amount for name, amount in container.limits.items() if name not in names}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
