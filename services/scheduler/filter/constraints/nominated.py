"""Room that another scheduler keeps: a pending pod with `status.nominatedNodeName` counts on its
node as if it ran there, for pods of no higher priority.

Semantics: kube-scheduler's filtering with nominated pods (1.36), which nominates pods that it
evicts others for, and pods with a slow binding. By amounts of the node, as kube-scheduler does, and
also by the zone that the nominee needs if the node's kubelet aligns: kube-scheduler does not know
zones. Nominees of this scheduler hold zones in the ledger.

The zone test is cheap and sufficient: it uses the guaranteed free amounts once pods that are being
deleted ended, because they were evicted for that room. If no zone holds the nominee as it is, by
its containers' amounts together, its zone is not known, and none is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import PODS, Amounts
from shared.events.surroundings_events import NominationObserved
from shared.ledger.alike import kind_of
from shared.ledger.state import ZoneAmounts
from shared.ledger.view import subtract
from shared.ledger.what_if import most_without, newcomer

KEPT_FREE = RefusalReason(
    name=Reason.NOMINATED,
    phrase="node(s) were kept free for the nominated pod %s of another scheduler",
    remedy="wait until that pod is bound: its scheduler has chosen the node for it",
)
NOTHING: Amounts = {}


class Nominated(Constraint):
    name = "nominated"
    reasons = (KEPT_FREE,)
    depends_on = attrgetter("cluster_objects.nominations")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        nominees: dict[str, list[NominationObserved]] = {}
        for nominee in _ahead_of(pod, view):
            nominees.setdefault(nominee.node, []).append(nominee)
        if not nominees:
            return None
        request = {**effective_request(pod), PODS: 1}

        def check(node_info: NodeInfo) -> Refusal | None:
            on_node = nominees.get(node_info.name)
            if on_node is None:
                return None
            short = _too_little(node_info, request, on_node)
            return short or _without_a_zone(node_info, pod, on_node, view)

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        check = self.check(pod, kept, view)
        if check is None:
            return None
        nodes = view.columns.named(nominee.node for nominee in _ahead_of(pod, view))
        refused = [node_info.name for node_info in nodes if check(node_info) is not None]
        return view.columns.all_but(refused) if refused else None


def zones_kept(pod: Pod, view: ClusterView) -> dict[str, Refusal]:
    """Return the nodes, by name, where the pod might take a nominee's zone: kube-scheduler cannot
    judge that of its own nominees.
    """
    refusals: dict[str, Refusal] = {}
    for nominee in _ahead_of(pod, view):
        node_info = view.nodes.get(nominee.node)
        if node_info is not None and nominee.node not in refusals:
            refused = _without_a_zone(node_info, pod, [nominee], view)
            if refused is not None:
                refusals[nominee.node] = refused
    return refusals


def _ahead_of(pod: Pod, view: ClusterView) -> Iterator[NominationObserved]:
    """Nominees of one priority and one node wait neither for each other nor for themselves."""
    nominations = view.cluster_objects.nominations
    nomination = nominations.get(pod.uid)
    for nominee in nominations.values():
        same_node = nomination is not None and nomination.node == nominee.node
        if nominee.priority > pod.priority or (nominee.priority == pod.priority and not same_node):
            yield nominee


def _too_little(
    node_info: NodeInfo, request: Amounts, nominees: list[NominationObserved]
) -> Refusal | None:
    for name, asked in request.items():
        if name == PODS:
            kept = len(nominees)
        else:
            kept = sum(nominee.requests.get(name, 0) for nominee in nominees)
        if kept and 0 < asked > node_info.free(name) - kept:
            return KEPT_FREE.refusal(node_info.name, nominees[-1].key)
    return None


def _without_a_zone(
    node_info: NodeInfo, pod: Pod, nominees: list[NominationObserved], view: ClusterView
) -> Refusal | None:
    leaves = view.placed_pods.leaves
    for nominee in nominees:
        if nominee.zonal and not leaves_a_zone(node_info, pod, nominee.zonal, leaves):
            return KEPT_FREE.refusal(node_info.name, nominee.key)
    return None


def leaves_a_zone(
    node_info: NodeInfo, pod: Pod, nominee: Amounts, leaves: Callable[[str], bool]
) -> bool:
    """Return whether the pod leaves the nominee a zone.

    `nominee` is its request of one zone if all of that is tracked; `leaves` says whether a pod is
    being deleted.
    """
    report, policy = node_info.report, node_info.rule.policy
    if report is None or policy not in (SINGLE_NUMA_NODE, RESTRICTED):
        return True
    wanted = {name: amount for name, amount in nominee.items() if name in report.tracked}
    charge = newcomer(pod, kind_of(pod), report, node_info.free_max).charge
    if not wanted or not charge.zones:
        return True
    free = _once_leaving_pods_ended(node_info, leaves)
    fitting = [zone for zone, amounts in free.items() if _holds(amounts, wanted, NOTHING)]
    # Under restricted a container may take several zones.
    one_zone_each = policy == SINGLE_NUMA_NODE
    if not fitting or (one_zone_each and len(fitting) > len(charge.demand)):
        return True
    return any(_holds(free[zone], wanted, charge.zones.get(zone, NOTHING)) for zone in fitting)


def _once_leaving_pods_ended(node_info: NodeInfo, leaves: Callable[[str], bool]) -> ZoneAmounts:
    leaving = [uid for uid in node_info.ledger.charges if leaves(uid)]
    free = most_without(node_info.ledger, leaving)
    for assumed in node_info.assumed.values():
        subtract(free, assumed.charge.zones)
    return free


def _holds(zone: Amounts, wanted: Amounts, taken: Amounts) -> bool:
    return all(zone.get(name, 0) >= amount + taken.get(name, 0) for name, amount in wanted.items())
