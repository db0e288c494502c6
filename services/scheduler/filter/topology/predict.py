"""Where the kubelet will most likely put the pod's parts: hints and merge, as if all who are on
their way came in the order in which they were reserved. A prediction narrows nothing: charges stay
what they are.
"""

from __future__ import annotations

from services.scheduler.filter.topology.kubelet_search import outlook_of
from services.scheduler.filter.topology.lowest_zone import lowest_zones
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain import policies
from shared.hints.request import request_of
from shared.kubelet.masks import nodes_of

Predicted = dict[str, tuple[int, ...]]


def predict(node_info: NodeInfo, plan: Plan) -> Predicted:
    """Container -> zone ids, for the containers that pin something; empty where nothing can be
    said.
    """
    if plan.mode == "free" or plan.rule.policy == policies.NONE:
        return {}
    lowest = lowest_zones(node_info, plan)
    if lowest is not None:
        return {name: (zone,) for name, zone in zip(plan.names, lowest, strict=True)}
    return by_hints(node_info, plan)


def by_hints(node_info: NodeInfo, plan: Plan) -> Predicted:
    """The same for any node."""
    admitted = outlook_of(node_info, plan).likely(request_of(plan.demand))
    if admitted is None or not admitted.zones:
        return {}
    whole = node_info.zone_ids if len(node_info.zone_ids) == 1 else ()
    zones = [nodes_of(mask) or whole for mask in admitted.zones]
    return dict(zip(plan.names, zones, strict=True)) if all(zones) else {}
