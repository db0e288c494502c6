"""Score: 0 to 100 for one node and one strategy, before normalisation (the plugin has none).

The zone strategies run for single-numa-node only, LeastNUMANodes for every policy. If the original
panics or leaves 0 to 100, the strategy's module and `zone_strategies` say what is returned instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from plugins.upstream_compat import (
    score_balanced_allocation,
    score_least_allocated,
    score_least_numa_nodes,
    score_most_allocated,
)
from plugins.upstream_compat.cache import View
from plugins.upstream_compat.pod import Pod, qos_class
from plugins.upstream_compat.zone_strategies import ZoneScore, score_by_zone
from shared.domain.policies import SINGLE_NUMA_NODE

BEST, WORST = 100, 0
ZONE_STRATEGIES: dict[str, ZoneScore] = {
    "LeastAllocated": score_least_allocated.zone_score,
    "MostAllocated": score_most_allocated.zone_score,
    "BalancedAllocation": score_balanced_allocation.zone_score,
}


def score_node(pod: Pod, view: View, strategy: str, weights: Mapping[str, int]) -> int:
    """Return the node's score. It is held within 0 to 100, because negative requests can leave that
    range, which the framework would refuse.
    """
    return min(BEST, max(WORST, _raw_score(pod, view, strategy, weights)))


def _raw_score(pod: Pod, view: View, strategy: str, weights: Mapping[str, int]) -> int:
    """Return 100 for pods that are not Guaranteed, 0 for a node without usable topology."""
    if qos_class(pod) != "Guaranteed":
        return BEST
    if not view.fresh or view.nrt is None:
        return WORST
    if strategy == "LeastNUMANodes":
        return score_least_numa_nodes.score(pod, view.nrt)
    if view.nrt.manager.policy != SINGLE_NUMA_NODE:
        return WORST
    return score_by_zone(pod, view.nrt, ZONE_STRATEGIES[strategy], weights)
