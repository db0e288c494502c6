"""Extended resources that somebody else gives: what of a pod's request is not judged on a node.

Semantics: kube-scheduler 1.36 (NodeResourcesFit, KEP-5004). Where a node's allocatable has none of a resource, a DRA driver may
give it by a DeviceClass that names it (`extendedResourceName`), or by the class's own name behind a fixed prefix; kube-scheduler
has judged that before it asks an extender, and the kubelet leaves it out at admission and aligns none of it. Where a device
plugin offers the resource nothing is delegated. Must not know verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.scheduler.deciding.constraints.constraint import Around
from services.scheduler.deciding.node_facts import NodeFacts
from shared.domain.pod import Container, Pod

BY_CLASS = "deviceclass.resource.kubernetes.io/"


def judged_on(pod: Pod, facts: NodeFacts, around: Around) -> Pod:
    """The pod as this node is judged for it."""
    return _without(pod, _by_others(_asked(pod, around), facts))


def parted(pod: Pod, names: Iterable[str], around: Around) -> list[tuple[Pod, list[str]]]:
    """The pod as nodes are judged for it, and which; those that are not known with the pod as it is."""
    asked = _asked(pod, around)
    if not asked:
        return [(pod, list(names))]
    parts: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        facts = around.nodes.get(name)
        parts.setdefault(() if facts is None else _by_others(asked, facts), []).append(name)
    return [(_without(pod, others), theirs) for others, theirs in parts.items()]


def _asked(pod: Pod, around: Around) -> tuple[str, ...]:
    """What others may give of what the pod asks for."""
    named = {name for container in pod.containers for name in container.requests}
    by_classes = {each.resource for each in around.surroundings.classes.values()}
    return tuple(sorted(name for name in named if name in by_classes or name.startswith(BY_CLASS)))


def _by_others(asked: tuple[str, ...], facts: NodeFacts) -> tuple[str, ...]:
    offered = facts.observed.allocatable if facts.observed is not None else {}
    return tuple(name for name in asked if offered.get(name, 0) <= 0)


def _without(pod: Pod, names: tuple[str, ...]) -> Pod:
    if not names:
        return pod
    return msgspec.structs.replace(pod, containers=tuple(_asks_no(names, each) for each in pod.containers))


def _asks_no(names: tuple[str, ...], container: Container) -> Container:
    requests = {name: amount for name, amount in container.requests.items() if name not in names}
    limits = {name: amount for name, amount in container.limits.items() if name not in names}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
