"""Patience: what a pod may wait for on a node, as it may have room there already, or as nobody
could tell what an eviction frees.

The optimistic bound must refuse, and where amounts do not bound, the hint providers in every state:
pessimism is no reason to kill. Must not know victims, priorities or other nodes.
"""

from __future__ import annotations

from copy import copy

from services.scheduler.filter.topology.bounds import possible
from services.scheduler.filter.topology.fit import ADMITTED, searched
from services.scheduler.filter.topology.kubelet_search import outlook_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.demand import peak
from shared.ledger.kubelet_states import OTHER_KUBELET
from shared.ledger.view import subtract

MOST_STEPS = 256
"""Admissions that are looked at for one node."""
NAMED = 3
"""Pods that one obstacle names."""


def may_fit(node_info: NodeInfo, plan: Plan) -> bool:
    """Could some state that the bounds allow take the pod?"""
    if not plan.one_by_one and not possible(_hopeful(node_info), plan):
        return False
    return not is_known(node_info, plan) or searched(node_info, plan, MOST_STEPS) == ADMITTED


def leaves_open(node_info: NodeInfo, plan: Plan) -> bool:
    """Is more than one state possible, pods on their way left aside?"""
    return node_info.free_min != _hopeful(node_info).free_max or (
        plan.one_by_one and not is_known(node_info, plan)
    )


def is_known(node_info: NodeInfo, plan: Plan) -> bool:
    """By the providers' states; of a kubelet of another version as if it were of this one."""
    states = outlook_of(node_info, plan).states
    return states is not None and states.bounds <= {OTHER_KUBELET} and not states.pending


def obstacle(node_info: NodeInfo) -> str:
    """Why nobody is evicted from this node, whoever asks and whoever stands there; empty where
    somebody may be.
    """
    if not node_info.ledger.charges:
        return ""
    if node_info.ledger.report is None:
        return "it has not reported yet: what is free there is not known"
    if node_info.ledger.listed is None:
        return "its reports carry no placements: what an eviction frees there is not known"
    anywhere = sorted(
        c.key
        for c in node_info.ledger.charges.values()
        if len(c.zones) > 1 and not (c.confirmed or c.held)
    )
    if not anywhere:
        return ""
    more = f" and {len(anywhere) - NAMED} more" if len(anywhere) > NAMED else ""
    return f"no report shows the zone of {', '.join(anywhere[:NAMED])}{more} yet"


def _hopeful(node_info: NodeInfo) -> NodeInfo:
    """The node at best: what pods on their way will hold for sure is no room, nor are nominees'
    claims.
    """
    hopeful = copy(node_info)
    hopeful.free_max = {zone: dict(amounts) for zone, amounts in node_info.free_max.items()}
    for charge in node_info.ledger.charges.values():
        if len(charge.zones) == 1 and not charge.confirmed:
            surely = peak([part for part in charge.demand if part.kind != "init"])
            subtract(hopeful.free_max, dict.fromkeys(charge.zones, surely))
    for claim in node_info.claims.values():
        subtract(hopeful.free_max, claim)
    return hopeful
