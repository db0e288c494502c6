"""Extended resources that somebody else gives: what of a pod's request is not judged on a node.

Semantics: kube-scheduler 1.36 (NodeResourcesFit, KEP-5004). Where a node's allocatable has none of a resource, a DRA driver may
give it by a DeviceClass that names it (`extendedResourceName`), or by the class's own name behind a fixed prefix; kube-scheduler
has judged that before it asks an extender, and the kubelet leaves it out at admission and aligns none of it. Where a device
plugin offers the resource nothing is delegated. Which resources classes name is a setting. Must not know verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.scheduler.deciding.node_facts import NodeFacts
from shared.domain.pod import Container, Pod

BY_CLASS = "deviceclass.resource.kubernetes.io/"

Nodes = Mapping[str, NodeFacts]


class Delegated:
    """`names` are the resources that DeviceClasses name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)

    def judged(self, pod: Pod, facts: NodeFacts) -> Pod:
        """The pod as this node is judged for it."""
        return _without(pod, self._by_others(self._asked(pod), facts))

    def parted(self, pod: Pod, names: Iterable[str], nodes: Nodes) -> list[tuple[Pod, list[str]]]:
        """The pod as nodes are judged for it, and which; those that are not known with the pod as it is."""
        asked = self._asked(pod)
        if not asked:
            return [(pod, list(names))]
        parts: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            facts = nodes.get(name)
            parts.setdefault(() if facts is None else self._by_others(asked, facts), []).append(name)
        return [(_without(pod, others), theirs) for others, theirs in parts.items()]

    def _asked(self, pod: Pod) -> tuple[str, ...]:
        """What others may give of what the pod asks for."""
        named = {name for container in pod.containers for name in container.requests}
        return tuple(sorted(name for name in named if name in self._names or name.startswith(BY_CLASS)))

    @staticmethod
    def _by_others(asked: tuple[str, ...], facts: NodeFacts) -> tuple[str, ...]:
        offered = facts.observed.allocatable if facts.observed is not None else {}
        return tuple(name for name in asked if offered.get(name, 0) <= 0)


UNNAMED = Delegated()
"""Where no DeviceClass names a resource."""


def _without(pod: Pod, names: tuple[str, ...]) -> Pod:
    if not names:
        return pod
    return msgspec.structs.replace(pod, containers=tuple(_asks_no(names, each) for each in pod.containers))


def _asks_no(names: tuple[str, ...], container: Container) -> Container:
    requests = {name: amount for name, amount in container.requests.items() if name not in names}
    limits = {name: amount for name, amount in container.limits.items() if name not in names}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
