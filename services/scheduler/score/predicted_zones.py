"""The spread of a pod over a node's zones, by which nodes are ranked before their scores.

1. The spread counts the zones that the parts of a pod get beyond one zone each, times `FAR`, plus
   the mean distance within the farthest part (`nearness`). A part is a container, or the whole pod
   if the kubelet aligns pods (scope pod). Init containers count only there, because they end.
2. The kubelet model predicts the zones (`predicted_spread`): pending pods are admitted in the order
   of their reservations, then the pod. A pod that the report shows half admitted comes first, from
   the beginning of its admission. Under policy none, too, it takes CPUs and memory as the static
   managers do. If the kubelet may choose, the widest choice counts. Amounts of which the model does
   not know zones occur under policy none only: CPUs without ids come from the zones with the fewest
   free first, devices from as many zones outside the known ones as have some. Next to pending pods,
   whose order decides which zone has the fewest free CPUs, the spread is 1 more;
   a pod that is split anyway counts one zone more, because it could split the pending ones.
3. If the model cannot predict (no placements, too many states), the nearest of the smallest sets of
   zones counts whose guaranteed free amounts hold the part, and all zones if no set does. Under
   policy none the kubelet does not look for such a set, so all zones count first.
4. A prediction costs more than a score. `least_spread.py` has a bound of it. Only nodes that come
   out on top of the bound are predicted.
5. Where Topolog chooses the zones, they are known.
6. Between nodes of equal spread, those come first whose free devices lie nearer
   (`device_closeness`), if the kubelet chooses devices and a Device object shows where they are.
7. Spread is 0 where the kubelet aligns or rejects: under single-numa-node, and under restricted for
   parts that fit one empty zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.scheduler.filter.topology.bounds import each_finds_a_zone, one_zone_each
from services.scheduler.filter.topology.kubelet_search import likely_search_of
from services.scheduler.filter.topology.predict import lowest_zones
from services.scheduler.owned.admission import allocate, partitions_of
from services.scheduler.score.least_spread import (
    running_parts,
    spread,
    with_further_zones,
    with_pending_pods,
)
from services.scheduler.score.ranks import WIDEST, closeness_of, spread_of
from services.scheduler.score.strategies.least_numa_nodes import smallest_set
from services.scheduler.score.strategies.strategy import Distances, ZoneView
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.zone_distances import FAR, distances_of
from shared.domain.policies import BEST_EFFORT, NONE
from shared.domain.refusal import Refusal
from shared.domain.resources import Amounts, is_device
from shared.hints.admission import ContainerZones
from shared.hints.request import request_of
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.masks import mask_of
from shared.ledger.cards import (
    ONE_PARTITION,
    ONE_SWITCH,
    NearDevices,
    closeness,
    near_devices,
    preferred_gpus,
)

# Most sets of GPUs that a reservation names: more are no prediction.
MOST_PREDICTED = 4


# -- one node


def predicted_spread(node_info: NodeInfo, plan: Plan) -> int:
    """Return the spread if the node takes the pod."""
    report = node_info.report
    if report is None or len(node_info.zone_ids) < 2 or not plan.may_spread:
        return 0
    if plan.mode == "owned":
        return _spread_of_allocation(node_info, plan, distances_of(report))
    if one_zone_each(node_info, plan) or _each_surely_finds_a_zone(node_info, plan):
        return 0
    if lowest_zones(node_info, plan) is not None:
        return 0
    distances = distances_of(report)
    search = likely_search_of(node_info, plan)
    by_container = search.likely_zones(request_of(plan.demand))
    if by_container is not None:
        expected = spread(_masks_of_parts(node_info, plan, by_container), distances)
        is_open = plan.rule.policy == NONE and search.has_pending
        return min(WIDEST, with_pending_pods(expected) if is_open else expected)
    by_amounts = spread(_masks_by_amounts(node_info, plan, distances), distances)
    if plan.rule.policy != NONE:
        return by_amounts
    widest = [mask_of(node_info.zone_ids)] * len(running_parts(plan))
    return min(WIDEST, spread(widest, distances) + by_amounts)


def device_closeness(node_info: NodeInfo, plan: Plan) -> int:
    """Return how near to each other the devices surely lie that the kubelet may give the pod, in
    each zone that may hold the part; 0 for far or unknown.
    """
    near, levels = _near_devices(node_info), []
    for part, others in plan.near:
        zones = [
            zone
            for zone, free in node_info.free_max.items()
            if plan.rule.policy != NONE
            and all(free.get(name, 0) >= amount for name, amount in part.amounts.items())
        ]
        asked = {name: amount for name, amount in part.amounts.items() if is_device(name)}
        levels.append(closeness(near, asked, others, _taken(node_info, near), zones or None))
    return min(levels, default=0)


def _near_devices(node_info: NodeInfo) -> NearDevices:
    if node_info.near is None:
        node_info.near = near_devices(node_info.ledger, partitions_of(node_info)[0])
    near: NearDevices = node_info.near
    return near


def _taken(node_info: NodeInfo, near: NearDevices) -> dict[int, Amounts]:
    """Return what pods that no report lists may hold of the free devices, by zone."""
    return {
        zone: {
            name: max(0, amount - node_info.free_min.get(zone, {}).get(name, amount))
            for name, amount in free.items()
        }
        for zone, free in near.free.items()
    }


def predicted_gpus(
    node_info: NodeInfo, plan: Plan, zones: Mapping[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """Return the sets of GPUs, by number, one of which the kubelet will give the pod in these zones
    of its containers; empty if they are not known, or too many.
    """
    if len(plan.near) != 1:
        return ()
    ((part, others),), near = plan.near, _near_devices(node_info)
    scope = {zone for name, ids in zones.items() if part.name in (name, "") for zone in ids}
    if not scope and plan.rule.policy == NONE:
        scope = set(near.minors)
    chosen = preferred_gpus(near, part.amounts, others, _taken(node_info, near), scope)
    if not 0 < len(chosen) <= MOST_PREDICTED:
        return ()
    return tuple(sorted(format_cpus(gpus) for gpus in chosen))


def rank_words(rank: int) -> str:
    """Return what to add to a score: further zones, and near devices."""
    further = spread_of(rank) // FAR
    words = [f"counted as {further} further NUMA zone{'s' * (further > 1)}"] if further else []
    words += [_NEAR_WORDS[closeness_of(rank)]] if closeness_of(rank) else []
    return f" ({', '.join(words)})" if words else ""


_NEAR_WORDS = {
    ONE_SWITCH: "free devices on one PCIe switch",
    ONE_PARTITION: "free GPUs in one NVLink partition",
}


def _spread_of_allocation(node_info: NodeInfo, plan: Plan, distances: Distances) -> int:
    """Return the spread of the zones that Topolog would choose."""
    allocation = allocate(node_info, plan)
    if isinstance(allocation, Refusal) or not allocation.holding.zones:
        return 0
    return spread([mask_of(zone.zone for zone in allocation.holding.zones)], distances)


def _each_surely_finds_a_zone(node_info: NodeInfo, plan: Plan) -> bool:
    """Every manager prefers a single zone that surely holds the part, and the merge takes it."""
    is_plain = plan.rule.policy == BEST_EFFORT and not plan.needs_search
    return is_plain and not node_info.machine.overstated and each_finds_a_zone(node_info, plan)


def _masks_of_parts(
    node_info: NodeInfo, plan: Plan, by_container: Sequence[ContainerZones]
) -> list[int]:
    kinds = [part.kind for part in plan.demand]
    if _is_whole_pod(plan):
        mask, unknown = 0, list[tuple[str, int]]()
        for zones in by_container:
            mask |= zones.mask
            unknown += zones.unknown
        return [_widest(node_info, ContainerZones(mask, tuple(unknown)))]
    masks = [_widest(node_info, zones) for zones in by_container]
    running = [mask for mask, kind in zip(masks, kinds, strict=True) if kind != "init"]
    return running or masks


def _is_whole_pod(plan: Plan) -> bool:
    return len(plan.parts) == 1 and not plan.parts[0].name


def _widest(node_info: NodeInfo, zones: ContainerZones) -> int:
    """Return the mask with the further zones of the unknown amounts (paragraph 2)."""
    return with_further_zones(node_info, zones.mask, zones.unknown)


def _masks_by_amounts(node_info: NodeInfo, plan: Plan, distances: Distances) -> list[int]:
    free_min = node_info.for_single_zones(node_info.free_min)
    views = []
    for zone in node_info.zone_ids:
        available = {name: max(0, amount) for name, amount in free_min[zone].items()}
        views.append(ZoneView(zone, available, node_info.sizes.get(zone, {})))
    masks = []
    for part in running_parts(plan):
        amounts = {name: part[name] for name in part if name not in plan.placeless}
        smallest = smallest_set(amounts, views, distances, len(views))
        masks.append(mask_of(node_info.zone_ids if smallest is None else smallest.ids))
    return masks
