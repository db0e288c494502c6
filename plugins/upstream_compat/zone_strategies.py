"""From zone scores to a node score, for the three strategies that look at one zone at a time.

The worst zone that fits counts, and of several containers the mean. If the original gives no score:
- Zone ids that are not 0..n-1 (index out of range): zones are taken by their position in the list.
- A container that requests nothing (division by zero, or the variance of nothing) is left out of
  the mean. A pod of only such containers scores 100, as every pod does with which the strategy has
  nothing to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from plugins.upstream_compat.amounts import Quantities
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod, effective_request
from plugins.upstream_compat.zones import NumaZone, numa_zones
from shared.domain.quantity import Quantity


class ZoneScore(Protocol):
    """Return 0 to 100 for a non-empty request in one zone; `weights` below 1 or absent count as
    1.
    """

    def __call__(
        self, request: Quantities, available: Quantities, weights: Mapping[str, int]
    ) -> int: ...


class ResourceScore(Protocol):
    """Return 0 to 100 for one resource."""

    def __call__(self, request: Quantity, available: Quantity | None) -> int: ...


def score_by_zone(pod: Pod, nrt: Nrt, strategy: ZoneScore, weights: Mapping[str, int]) -> int:
    """Return the node score by scope: of the pod's effective request, or the truncated mean over
    its containers.
    """
    zones = numa_zones(nrt)
    requests = (
        [effective_request(pod)]
        if nrt.manager.scope == "pod"
        else [each.requests for each in pod.containers]
    )
    scores = [
        _worst_fitting(request, zones, strategy, weights)
        for request in requests
        if request or not zones
    ]
    return sum(scores) // len(scores) if scores else 100


def weighted(
    request: Quantities, available: Quantities, weights: Mapping[str, int], score: ResourceScore
) -> int:
    """Return the truncated weighted mean over all requested resources; a resource that the zone
    lacks still weighs.
    """
    total = sum(
        score(quantity, available.get(name)) * _weight(name, weights)
        for name, quantity in request.items()
    )
    return total // sum(_weight(name, weights) for name in request)


def _weight(name: str, weights: Mapping[str, int]) -> int:
    return max(1, weights.get(name, 1))


def _worst_fitting(
    request: Quantities, zones: Sequence[NumaZone], strategy: ZoneScore, weights: Mapping[str, int]
) -> int:
    """Return the smallest score above zero: upstream takes zero to mean "does not fit", even if it
    means "exactly full".
    """
    scores = [strategy(request, zone.available, weights) for zone in zones]
    return min((score for score in scores if score), default=0)
