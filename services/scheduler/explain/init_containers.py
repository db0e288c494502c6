"""Refusals of a pod that a single init container keeps out of a node.

The kubelet places an init container first, and later containers must reuse its CPUs, so they must
contain its zones (kubelet 1.36). The remedy is confirmed by asking for the changed pod. This module
does not know amounts by zone.
"""

from __future__ import annotations

import msgspec

from services.scheduler.explain.provider_refusal import no_zone
from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.refusal import Refusal
from shared.domain.resources import CPU
from shared.hints.request import request_of


def pinned_by_init(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal that names the init container, None if no single one decides."""
    for part in plan.demand:
        if part.kind != "init" or CPU not in part.amounts:
            continue
        amounts = {name: amount for name, amount in part.amounts.items() if name != CPU}
        changed = [
            msgspec.structs.replace(demand, amounts=amounts) if demand is part else demand
            for demand in plan.demand
        ]
        request = request_of(tuple(demand for demand in changed if demand.amounts or demand.zeros))
        if kubelet_search_of(node_info, plan).result(request, steps) == "admitted":
            cpu = f"{part.amounts[CPU] - 1}m"
            remedy = (
                f"request a fraction of a CPU in init container {part.name} (for example {cpu}): "
                "the kubelet then pins no CPU for it, and later containers may use another zone"
            )
            subject = f"init container {part.name} pins the zone of later containers"
            return Refusal(
                node_info.name, no_zone(plan), subject, container=part.name, remedy=remedy
            )
    return None
