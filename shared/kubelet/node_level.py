"""The node-level check after the Topology Manager: whether the node as a whole has enough (OutOfcpu
and similar).

kubelet 1.36, GeneralPredicates: runs after the Topology Manager admitted, under every policy.
Devices are not counted, because the Device Manager has checked them, and an extended resource that
no plugin offers is ignored, as in the kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Amounts,
    is_device,
    is_hugepages,
)

_ORDER = (PODS, CPU, MEMORY, EPHEMERAL_STORAGE)


class Shortage(msgspec.Struct, frozen=True):
    """The first resource that falls short, in Topolog's units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        """`OutOfcpu`, as the pod's status shows it."""
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        """The kubelet's message."""
        counts = (
            f"{self.resource}, requested: {self.requested}, used: {self.used}, capacity: "
            f"{self.capacity}"
        )
        return f"Node didn't have enough resource: {counts}"


def shortage(
    allocatable: Mapping[str, int], running_pods: Iterable[Pod], pod: Pod
) -> Shortage | None:
    """Return what the node lacks for `pod` in addition to the pods it runs; None if it has
    enough.
    """
    used: Amounts = {PODS: 0}
    for running_pod in running_pods:
        used[PODS] += 1
        for name, amount in effective_request(running_pod).items():
            used[name] = used.get(name, 0) + amount
    demand = {PODS: 1, **effective_request(pod)}
    for name in sorted(demand, key=_rank):
        # The kubelet ignores a missing extended resource, and only that: missing hugepages are 0.
        if is_device(name) or (name not in allocatable and not is_hugepages(name)):
            continue
        capacity = allocatable.get(name, 0)
        if used.get(name, 0) + demand[name] > capacity:
            return Shortage(name, demand[name], used.get(name, 0), capacity)
    return None


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER)), name
