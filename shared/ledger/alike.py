"""Computations that are shared by pods of one kind.

Pods come in few kinds, so what pods of one kind demand and request is computed once, and equal
parts of their specs are one object. This is a bounded memo of pure functions: forgetting it changes
nothing. The returned values are read only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import force_setattr

from shared.domain.demand import ContainerDemand, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.pod import Constraints, Pod
from shared.domain.report import Report
from shared.domain.resources import Amounts

# Kinds that are remembered. If there are more, all are forgotten.
KINDS = 4096
UNCONSTRAINED = Constraints()

_ENCODER = msgspec.msgpack.Encoder()


class Kind:
    """What a pod's containers, class of service, pod-level amounts and overhead determine."""

    __slots__ = ("_demands", "containers", "pod", "request")

    def __init__(self, pod: Pod) -> None:
        self.pod, self.containers = pod, pod.containers
        self._demands: dict[tuple[tuple[str, ...], str], tuple[ContainerDemand, ...]] = {}
        self.request: Amounts = effective_request(pod)

    def demand(
        self, tracked: tuple[str, ...], pod_level_scope: str = ""
    ) -> tuple[ContainerDemand, ...]:
        """Return the zonal demand on a node that tracks these resources: the same object for
        every pod of the kind."""
        key = tracked, pod_level_scope
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = zonal_demand(self.pod, tracked, pod_level_scope)
        return demand

    def demand_on(self, report: Report | None) -> tuple[ContainerDemand, ...]:
        """Return the zonal demand on the node with this report; none without a report."""
        return self.demand(report.tracked, report.pod_level_scope) if report is not None else ()


_kinds: dict[bytes, Kind] = {}
# By the id of the containers that pods of one kind share.
_by_containers: dict[int, Kind] = {}
_constraints: dict[bytes, Constraints] = {}


def kind_of(pod: Pod) -> Kind:
    """Return the pod's kind. A pod with an amount beyond 64 bits is a kind of its own."""
    kind = _by_containers.get(id(pod.containers))
    if kind is not None and kind.containers is pod.containers:
        like = kind.pod
        if (like.qos, like.pod_level, like.overhead) == (pod.qos, pod.pod_level, pod.overhead):
            return kind
    try:
        key = _ENCODER.encode((pod.containers, pod.qos, pod.pod_level, pod.overhead))
    except OverflowError:
        return Kind(pod)
    kind = _kinds.get(key)
    if kind is None:
        if len(_kinds) >= KINDS:
            _kinds.clear()
            _by_containers.clear()
        kind = _kinds[key] = _by_containers[id(pod.containers)] = Kind(pod)
    return kind


def share(pods: Iterable[Pod]) -> None:
    """Make equal containers and equal constraints one object each. They are most of a pod's memory,
    and 150,000 pods may stay. The pods' values do not change."""
    for pod in pods:
        force_setattr(pod, "containers", kind_of(pod).containers)
        force_setattr(pod, "constraints", _shared(pod.constraints))


def _shared(constraints: Constraints) -> Constraints:
    if constraints == UNCONSTRAINED:
        return UNCONSTRAINED
    try:
        key = _ENCODER.encode(constraints)
    except OverflowError:
        return constraints
    if len(_constraints) >= KINDS:
        _constraints.clear()
    shared = _constraints.setdefault(key, constraints)
    return shared if shared == constraints else constraints  # lists and tuples have equal bytes
