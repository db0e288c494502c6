"""Scores from 0 to 100: of a mask of zones inside a node, and of a node.

Whole numbers, as Koordinator and kube-scheduler compute them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.domain.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from shared.owned.free import Free
from shared.owned.values import (
    MOST_ALLOCATED,
    Allocation,
    OwnedNode,
    OwnedRequest,
    Strategy,
)

MAX_SCORE = 100
# Resources that count even if the pod does not request them.
_ALWAYS_COUNTED = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))


def score_of_amounts(
    weights: Iterable[tuple[str, int]],
    strategy: Strategy,
    capacity: Mapping[str, int],
    used: Mapping[str, int],
    asked: Mapping[str, int],
    counts_all: bool = False,
) -> int:
    """Return the weighted mean of the used part with the pod (MostAllocated) or the free part.
    Resources other than CPU and memory count only if asked for, or with `counts_all`.
    """
    total = weight_sum = 0
    for resource, weight in weights:
        size, request = capacity.get(resource, 0), asked.get(resource, 0)
        if not (size and (request or counts_all or resource in _ALWAYS_COUNTED)):
            continue
        used_then = used.get(resource, 0) + request
        part = min(used_then, size) if strategy == MOST_ALLOCATED else max(0, size - used_then)
        total += part * MAX_SCORE // size * weight
        weight_sum += weight
    return total // weight_sum if weight_sum else 0


def score_of_zones(
    node: OwnedNode,
    zones: Iterable[int],
    capacity: Mapping[int, Mapping[str, int]],
    free: Mapping[int, Mapping[str, int]],
    request: OwnedRequest,
    strategy: Strategy,
) -> int:
    """Return the score of these zones together, with the pod in them."""
    sizes: dict[str, int] = {}
    used: dict[str, int] = {}
    for zone in zones:
        for resource, size in capacity[zone].items():
            sizes[resource] = sizes.get(resource, 0) + size
            used[resource] = used.get(resource, 0) + size - free[zone].get(resource, 0)
    return score_of_amounts(node.weights, strategy, sizes, used, request.amounts)


def node_score_by_zones(node: OwnedNode, free: Free, allocation: Allocation) -> int:
    """Return the score by the zones in use after the placement: used x 100 / all under
    MostAllocated, the other way round under LeastAllocated.

    With 4 zones, of which one is in use and another one is taken, the score is 50. Source:
    Koordinator's proposal 20230415, which its code does not follow.
    """
    if not free.zones:
        return 0
    used = {zone for zone, use in free.use.items() if use != "idle"}
    used |= zones_of(node, allocation)
    share = len(used) * MAX_SCORE // len(free.zones)
    return share if node.node_strategy == MOST_ALLOCATED else MAX_SCORE - share


def zones_of(node: OwnedNode, allocation: Allocation) -> set[int]:
    """Return the zones in which the pod holds an amount or a CPU."""
    zones = {record.zone for record in allocation.holding.zones}
    if node.cpus is not None:
        cpus = allocation.holding.cpus
        zones |= {zone for zone, every in node.cpus.in_zone.items() if every & cpus}
    return zones & {zone.zone for zone in node.zones}
