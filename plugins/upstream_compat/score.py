"""Score: 0 to 100 for one node and one strategy, before any normalisation (the plugin has none).

The zone strategies run for single-numa-node only, LeastNUMANodes for every policy. Where the
original panics or leaves 0..100, the verdict given here is stated in the strategy's module and in
`zone_strategies`.
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
    """The node's score, held within 0..100, where the framework would refuse what negative requests
    can make of it.
    """
    return min(BEST, max(WORST, _raw_score(pod, view, strategy, weights)))


def _raw_score(pod: Pod, view: View, strategy: str, weights: Mapping[str, int]) -> int:
    """Pods that are not Guaranteed get 100 everywhere; a node without usable topology gets 0."""
    if qos_class(pod) != "Guaranteed":
        return BEST
    if not view.fresh or view.nrt is None:
        return WORST
    if strategy == "LeastNUMANodes":
        return score_least_numa_nodes.score(pod, view.nrt)
    if view.nrt.manager.policy != SINGLE_NUMA_NODE:
        return WORST
    return score_by_zone(pod, view.nrt, ZONE_STRATEGIES[strategy], weights)
