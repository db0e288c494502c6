"""Pods come in few kinds: what pods of one kind demand and request is computed once and shared, and
so is what they say alike.

A bounded memo of pure functions: forgetting it changes nothing. What it returns is read only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import force_setattr

from shared.domain.demand import ContainerDemand, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.pod import Constraints, Pod
from shared.domain.resources import Amounts

KINDS = 4096
"""Kinds that are remembered; beyond them all are forgotten and learnt again."""
UNCONSTRAINED = Constraints()

_ENCODER = msgspec.msgpack.Encoder()


class Kind:
    """What a pod's `containers`, class of service, pod-level amounts and overhead decide."""

    __slots__ = ("_demands", "_pod", "containers", "request")

    def __init__(self, pod: Pod) -> None:
        self._pod, self.containers = pod, pod.containers
        self._demands: dict[tuple[str, ...], tuple[ContainerDemand, ...]] = {}
        self.request: Amounts = effective_request(pod)

    def demand(self, tracked: tuple[str, ...]) -> tuple[ContainerDemand, ...]:
        """What is pinned where these resources are tracked: the same value for every pod of the
        kind.
        """
        found = self._demands.get(tracked)
        if found is None:
            found = self._demands[tracked] = zonal_demand(self._pod, tracked)
        return found


_kinds: dict[bytes, Kind] = {}
_constraints: dict[bytes, Constraints] = {}


def kind_of(pod: Pod) -> Kind:
    """The pod's kind. Amounts beyond 64 bits make a kind of their own."""
    try:
        key = _ENCODER.encode((pod.containers, pod.qos, pod.pod_level, pod.overhead))
    except OverflowError:
        return Kind(pod)
    found = _kinds.get(key)
    if found is None:
        if len(_kinds) >= KINDS:
            _kinds.clear()
        found = _kinds[key] = Kind(pod)
    return found


def share(pods: Iterable[Pod]) -> None:
    """Let equal containers and equal constraints be one object each: they are most of what a pod
    takes, and 150,000 may stay. Each pod is the same value as before."""
    for pod in pods:
        force_setattr(pod, "containers", kind_of(pod).containers)
        if pod.constraints != UNCONSTRAINED:
            force_setattr(pod, "constraints", _shared(pod.constraints))


def _shared(constraints: Constraints) -> Constraints:
    try:
        key = _ENCODER.encode(constraints)
    except OverflowError:
        return constraints
    if len(_constraints) >= KINDS:
        _constraints.clear()
    found = _constraints.setdefault(key, constraints)
    return found if found == constraints else constraints  # a list and a tuple are written alike
