"""The kubelet's own state, where report and ledger tell it: the kubelet model then answers exactly
who fits once others are gone.

As long as the pod asks for nothing that a provider of one's own hands out. Must not know victims,
priorities or other nodes.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from services.scheduler.preempt.picks import admitted_whatever_it_picks
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.topology_policy import is_reported
from shared.domain.pod import Pod
from shared.domain.report import Placement
from shared.hints.registry import kubelets_own
from shared.kubelet.admission import drop_stale, remove
from shared.kubelet.machine import KubeletState
from shared.kubelet.observed import Open, observed
from shared.ledger.device_views import in_doubt
from shared.ledger.proof import is_seen
from shared.ledger.state import LedgerNode


def known_state(node: LedgerNode, pods: Collection[Pod]) -> KubeletState | None:
    """The kubelet's state where every pod is proven and the report leaves nothing open, else None.
    `pods` are the node's.
    """
    if node.report is None or node.basis is not node.report or node.listed is None or node.claims:
        return None
    listed, charges = node.listed, node.charges.values()
    if any(not charge.confirmed or charge.alias is not None for charge in charges):
        return None
    if not all(is_seen(charge, listed.get(charge.key, ()), node.report) for charge in charges):
        return None  # it runs, and the report is older: what it keeps is told by nobody
    placements: list[Placement] = [placement for key in sorted(listed) for placement in listed[key]]
    state = observed(msgspec.structs.replace(node.report, placements=tuple(placements)), pods)
    return None if isinstance(state, Open) else state


def kubelet_decides(node_info: NodeInfo, plan: Plan) -> bool:
    """Does the kubelet model answer as the filter does? Not where a provider of one's own is asked,
    nor where a label or an annotation aligns what the kubelet does not, nor where its preference
    hangs on devices that nobody lists or on its version."""
    report, asked = node_info.report, {name for part in plan.demand for name in part.amounts}
    if report is None or not kubelets_own(asked):
        return False
    if not in_doubt(node_info.ledger, plan.rule.policy).isdisjoint(asked):
        return False
    return is_reported(plan.rule, report) and set(node_info.profile[2]) == set(report.tracked)


def admits(state: KubeletState, pod: Pod, gone: Collection[str] = ()) -> bool:
    """Would this kubelet surely admit the pod once these have ended?"""
    for uid in sorted(gone):
        state = remove(state, uid)
    return admitted_whatever_it_picks(drop_stale(state), pod)
