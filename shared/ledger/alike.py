"""Computations and values that are shared by pods of one kind, and by nodes of one type.

Pods come in few kinds, so what pods of one kind demand and request is computed once, and equal
parts of their specs are one object, as are equal parts of charges and reports: an empty dict takes
64 bytes, one of two amounts 184. These are bounded memos of pure functions: forgetting them changes
nothing. The returned values are read only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr

from shared.domain.demand import ContainerDemand, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.pod import Constraints, Pod
from shared.domain.report import Report
from shared.domain.resources import Amounts
from shared.events.cluster_events import NodeObserved
from shared.ledger.state import Ledger

Key = TypeVar("Key")
Value = TypeVar("Value")
# Kinds that are remembered. If there are more, all are forgotten.
KINDS = 4096
UNCONSTRAINED = Constraints()
# The one empty dict of all pods, charges and zones. Read only.
NOTHING: dict[Any, Any] = {}

_ENCODER = msgspec.msgpack.Encoder()


class Shared(Generic[Key, Value]):
    """Returns one dict for equal ones. Their values must be hashable."""

    def __init__(self) -> None:
        self._shared: dict[tuple[tuple[Key, Value], ...], dict[Key, Value]] = {}

    def one(self, values: dict[Key, Value]) -> dict[Key, Value]:
        """Return the shared dict with these values, in this order."""
        if not values:
            return NOTHING
        if len(self._shared) >= KINDS:
            self._shared.clear()
        return self._shared.setdefault(tuple(values.items()), values)


_labels = Shared[str, str]()
_amounts = Shared[str, int]()
_by_zone = Shared[int, int]()
_possible = Shared[str, tuple[int, ...]]()


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
    """Make equal parts of pods one object each. They are most of a pod's memory, and 300,000 pods
    may stay. The pods' values do not change."""
    for pod in pods:
        force_setattr(pod, "containers", kind_of(pod).containers)
        force_setattr(pod, "constraints", _shared(pod.constraints))
        force_setattr(pod, "labels", _labels.one(pod.labels))
        if not pod.annotations:  # others may be large
            force_setattr(pod, "annotations", NOTHING)
        if not pod.overhead:
            force_setattr(pod, "overhead", NOTHING)


def share_zones(report: Report) -> None:
    """Make parts of zones that many nodes have alike one object each. The report's values do not
    change."""
    for zone in report.zones:
        force_setattr(zone, "costs", _by_zone.one(zone.costs))
        force_setattr(zone, "bounds", _amounts.one(zone.bounds))
        force_setattr(zone, "offered", _amounts.one(zone.offered))
        if not zone.free:
            force_setattr(zone, "free", NOTHING)


def share_amounts(observed: NodeObserved) -> None:
    """Make amounts that nodes of one type have alike one object each."""
    force_setattr(observed, "allocatable", _amounts.one(observed.allocatable))
    force_setattr(observed, "unhealthy", _amounts.one(observed.unhealthy))


def share_ledger(ledger: Ledger) -> None:
    """Make equal parts of a ledger that was loaded one object each."""
    share(entry.pod for entry in ledger.pods.values())
    for entry in ledger.pods.values():
        entry.predicted = shared_zones(entry.predicted)
    for node in ledger.nodes.values():
        if node.observed is not None:
            share_amounts(node.observed)
        for report in (node.report, node.basis):
            if report is not None:
                share_zones(report)
        for charge in node.charges.values():
            charge.possible = shared_zones(charge.possible)
            demand = kind_of(ledger.pods[charge.uid].pod).demand_on(node.basis)
            if demand == charge.demand:
                charge.demand = demand
            charge.confirmed_zones = charge.confirmed_zones or NOTHING
            charge.zones = charge.zones or NOTHING


def shared_zones(zones: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shared dict of a container's or pod's zones."""
    return _possible.one(zones)


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
