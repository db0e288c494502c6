"""Assume a pod on a node: subtract its charge before the ledger's fold does."""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.snapshot.node_info import NodeInfo, is_wide
from services.scheduler.snapshot.owned_state import with_pod
from services.scheduler.snapshot.pod_class import PodClass
from shared.domain.pod import Pod
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.zone_allocation import ZoneAllocation
from shared.ledger.state import Charge
from shared.ledger.what_if import NOTHING, newcomer


def assume(
    node_info: NodeInfo,
    pod: Pod,
    pod_class: PodClass,
    trusted: Mapping[str, tuple[int, ...]] = NOTHING,
    one_zone: str = "",
    allocation: ZoneAllocation | None = None,
) -> Charge:
    """Charge the pod to the node in place and return the charge, only in the `trusted` zones if
    some are given.
    """
    report = node_info.report
    assumed = newcomer(
        pod, pod_class.kind, report, node_info.free_max, trusted, one_zone, allocation
    )
    charge = assumed.charge
    if report is not None and charge.demand:
        node_info.take(charge.zones)
        node_info.unconfirmed = True
        node_info.pending += (pod.uid,)
        if node_info.unaligned:
            node_info.take_total(charge, node_info.totals)
    for name, amount in pod_class.requested.items():
        node_info.requested[name] = node_info.requested.get(name, 0) + amount
    node_info.assumed[pod.uid] = assumed
    node_info.allocations[pod.uid] = allocation
    if node_info.owned is not None:
        node_info.owned = with_pod(node_info.owned, charge)
    if report is not None and charge.demand and report.policy != SINGLE_NUMA_NODE:
        sizes = node_info.machine.capacities
        if len(report.zones) > 1 and is_wide(charge, report.scope, sizes):
            node_info.grouped_zones = frozenset([zone.id for zone in report.zones])
    return charge
