"""Own reservations: what the ledger's fold will charge, subtracted from a node's facts ahead of it."""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.snapshot.node_info import NodeInfo, tied_zones
from services.scheduler.snapshot.pod_class import Shape
from shared.domain.pod import Pod
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.ledger.state import Charge
from shared.ledger.view import subtract
from shared.ledger.what_if import NOTHING, newcomer


def reserve(
    node_info: NodeInfo, pod: Pod, shape: Shape, trusted: Mapping[str, tuple[int, ...]] = NOTHING
) -> Charge:
    """Charge the pod to the node's facts in place, only in the `trusted` zones where some are
    given.
    """
    report, own = (
        node_info.report,
        newcomer(pod, shape.kind, node_info.report, node_info.free_max, trusted),
    )
    charge = own.charge
    if report is not None and charge.demand:
        subtract(node_info.free_min, charge.zones)
        node_info.unsettled = True
        node_info.arriving |= {pod.uid}
        if node_info.unaligned:
            node_info.take_total(charge, node_info.totals)
    for name, amount in shape.requested.items():
        node_info.requested[name] = node_info.requested.get(name, 0) + amount
    node_info.overlay[pod.uid] = own
    if report is not None and charge.demand and report.policy != SINGLE_NUMA_NODE:
        node_info.tied |= tied_zones(node_info.ledger, (charge,))
    return charge
