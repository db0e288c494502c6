"""Own reservations: what the ledger's fold will charge, subtracted from a node's facts ahead of it."""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.snapshot.node_info import NodeFacts, tied_zones
from services.scheduler.snapshot.pod_class import Shape
from shared.domain.pod import Pod
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.ledger.state import Charge
from shared.ledger.view import subtract
from shared.ledger.what_if import NOTHING, newcomer


def reserve(
    facts: NodeFacts, pod: Pod, shape: Shape, trusted: Mapping[str, tuple[int, ...]] = NOTHING
) -> Charge:
    """Charge the pod to the node's facts in place, only in the `trusted` zones where some are
    given.
    """
    report, own = facts.report, newcomer(pod, shape.kind, facts.report, facts.upper, trusted)
    charge = own.charge
    if report is not None and charge.demand:
        subtract(facts.lower, charge.zones)
        facts.unsettled = True
        facts.arriving |= {pod.uid}
        if facts.unaligned:
            facts.take_total(charge, facts.totals)
    for name, amount in shape.requested.items():
        facts.requested[name] = facts.requested.get(name, 0) + amount
    facts.overlay[pod.uid] = own
    if report is not None and charge.demand and report.policy != SINGLE_NUMA_NODE:
        facts.tied |= tied_zones(facts.ledger, (charge,))
    return charge
