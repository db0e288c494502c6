"""Patience: may a pod already have room on a node, so that waiting helps and an eviction would be for nothing?

Where the report and the ledger tell the kubelet's state, the kubelet model answers exactly, as long as the pod asks for nothing
that a provider of one's own hands out. Elsewhere the optimistic bound must refuse, and where amounts do not bound, the hint
providers in every state: pessimism is no reason to kill. Must not know victims, priorities or other nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy

import msgspec

from services.scheduler.deciding.feasibility.bounds import possible
from services.scheduler.deciding.feasibility.outlook import outlook_of
from services.scheduler.deciding.feasibility.verdict import ADMITTED, searched
from services.scheduler.deciding.node_facts import NodeFacts
from services.scheduler.deciding.policy import is_reported
from services.scheduler.deciding.shape import Plan
from services.scheduler.preemption.picks import admitted_whatever_it_picks
from shared.domain.demand import peak
from shared.domain.pod import Pod
from shared.domain.report import Placement
from shared.hints.registry import kubelets_own
from shared.kubelet.admission import drop_stale, remove
from shared.kubelet.machine import KubeletState
from shared.kubelet.observed import Open, observed
from shared.ledger.kubelet_states import OTHER_KUBELET
from shared.ledger.proof import is_seen
from shared.ledger.state import LedgerNode
from shared.ledger.view import subtract

MOST_STEPS = 256
"""Admissions that are looked at for one node."""


def known_state(node: LedgerNode, pods: Collection[Pod]) -> KubeletState | None:
    """The kubelet's state where every pod is proven and the report leaves nothing open, else None. `pods` are the node's."""
    if node.report is None or node.basis is not node.report or node.listed is None or node.claims:
        return None
    listed, charges = node.listed, node.charges.values()
    if any(not charge.proven or charge.alias is not None for charge in charges):
        return None
    if not all(is_seen(charge, listed.get(charge.key, ()), node.report) for charge in charges):
        return None  # it runs, and the report is older: what it keeps is told by nobody
    placements: list[Placement] = [placement for key in sorted(listed) for placement in listed[key]]
    state = observed(msgspec.structs.replace(node.report, placements=tuple(placements)), pods)
    return None if isinstance(state, Open) else state


def kubelet_decides(facts: NodeFacts, plan: Plan) -> bool:
    """Does the kubelet model answer as the filter does? Not where a provider of one's own is asked, nor where a label or an
    annotation aligns what the kubelet does not."""
    report = facts.report
    if report is None or not kubelets_own(name for part in plan.demand for name in part.amounts):
        return False
    return is_reported(plan.rule, report) and set(facts.profile[2]) == set(report.tracked)


def admits(state: KubeletState, pod: Pod, gone: Collection[str] = ()) -> bool:
    """Would this kubelet surely admit the pod once these have ended?"""
    for uid in sorted(gone):
        state = remove(state, uid)
    return admitted_whatever_it_picks(drop_stale(state), pod)


def may_fit(facts: NodeFacts, plan: Plan) -> bool:
    """Could some state that the bounds allow take the pod?"""
    if not plan.one_by_one and not possible(_hopeful(facts), plan):
        return False
    return not is_known(facts, plan) or searched(facts, plan, MOST_STEPS) == ADMITTED


def leaves_open(facts: NodeFacts, plan: Plan) -> bool:
    """Is more than one state possible, pods on their way left aside?"""
    return facts.lower != _hopeful(facts).upper or (plan.one_by_one and not is_known(facts, plan))


def is_known(facts: NodeFacts, plan: Plan) -> bool:
    """By the providers' states; of a kubelet of another version as if it were of this one."""
    states = outlook_of(facts, plan).states
    return states is not None and states.bounds <= {OTHER_KUBELET} and not states.coming


def _hopeful(facts: NodeFacts) -> NodeFacts:
    """The node at best: what pods on their way will hold for sure is no room, nor are nominees' claims."""
    hopeful = copy(facts)
    hopeful.upper = {zone: dict(amounts) for zone, amounts in facts.upper.items()}
    for charge in facts.ledger.charges.values():
        if len(charge.zones) == 1 and not charge.proven:
            surely = peak([part for part in charge.demand if part.kind != "init"])
            subtract(hopeful.upper, dict.fromkeys(charge.zones, surely))
    for claim in facts.claims.values():
        subtract(hopeful.upper, claim)
    return hopeful
