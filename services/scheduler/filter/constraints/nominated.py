"""Room that another scheduler keeps: a pending pod with `status.nominatedNodeName` counts on its
node as if it stood there, for pods of no higher priority. Semantics: kube-scheduler's filtering
with nominated pods (1.36), which nominates pods that it evicts others for, and those whose binding
may take a while.

Not a field of our pod: what was seen of others' bars nodes. By amounts of the node, as
kube-scheduler does, and where the node's kubelet aligns by the zone that the nominee needs, of
which kube-scheduler knows nothing. Nominees of this scheduler hold zones in the ledger.

Does a newcomer leave the nominee of another scheduler a zone? Cheap and sufficient, by what is
surely free once those that are being deleted have ended: the room that they were evicted for.

Where no zone holds the nominee as it is, by its containers' amounts together, nobody can tell which
zone is meant for it, and none is kept. Must not know who nominates, nor priorities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from services.scheduler.filter.constraints.constraint import Check, ClusterView, KeepsNothing
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


class Nominated(KeepsNothing):
    name = "nominated"

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        nominees: dict[str, list[NominationObserved]] = {}
        for each in _ahead_of(pod, view):
            nominees.setdefault(each.node, []).append(each)
        if not nominees:
            return None
        request = {**effective_request(pod), PODS: 1}

        def check(node_info: NodeInfo) -> Refusal | None:
            here = nominees.get(node_info.name)
            if here is None:
                return None
            return _too_little(node_info, request, here) or _without_a_zone(
                node_info, pod, here, view
            )

        return check


def zones_kept(pod: Pod, view: ClusterView) -> dict[str, Refusal]:
    """The nodes that the pod may not go to, as it might take a nominee's zone, by name: what
    kube-scheduler cannot judge of the nominees that it has itself."""
    found: dict[str, Refusal] = {}
    for each in _ahead_of(pod, view):
        node_info = view.nodes.get(each.node)
        refusal = _without_a_zone(node_info, pod, [each], view) if node_info is not None else None
        if refusal is not None:
            found.setdefault(each.node, refusal)
    return found


def _ahead_of(pod: Pod, view: ClusterView) -> Iterator[NominationObserved]:
    """Nominees of one priority and one node wait neither for each other nor for themselves."""
    nominations = view.cluster_objects.nominations
    own = nominations.get(pod.uid)
    for each in nominations.values():
        if each.priority > pod.priority or (
            each.priority == pod.priority and (own is None or own.node != each.node)
        ):
            yield each


def _too_little(
    node_info: NodeInfo, request: Amounts, nominees: list[NominationObserved]
) -> Refusal | None:
    for name, asked in request.items():
        kept = sum(1 if name == PODS else each.requests.get(name, 0) for each in nominees)
        if kept and 0 < asked > node_info.free(name) - kept:
            return Refusal(node_info.name, Reason.NOMINATED, nominees[-1].key)
    return None


def _without_a_zone(
    node_info: NodeInfo, pod: Pod, nominees: list[NominationObserved], view: ClusterView
) -> Refusal | None:
    leaves = view.placed_pods.leaves
    for each in nominees:
        if each.zonal and not leaves_a_zone(node_info, pod, each.zonal, leaves):
            return Refusal(node_info.name, Reason.NOMINATED, each.key)
    return None


NONE_TAKEN: Amounts = {}


def leaves_a_zone(
    node_info: NodeInfo, pod: Pod, nominee: Amounts, leaves: Callable[[str], bool]
) -> bool:
    """`nominee` is what it takes of one zone where all of that is tracked; `leaves` says of a uid
    whether it is being deleted.
    """
    if node_info.report is None or node_info.rule.policy not in (SINGLE_NUMA_NODE, RESTRICTED):
        return True
    wanted = {name: amount for name, amount in nominee.items() if name in node_info.report.tracked}
    charge = newcomer(pod, kind_of(pod), node_info.report, node_info.free_max).charge
    if not wanted or not charge.zones:
        return True
    room = _once_they_ended(node_info, leaves)
    fitting = [zone for zone, held in room.items() if _holds(held, wanted, NONE_TAKEN)]
    one_each = (
        node_info.rule.policy == SINGLE_NUMA_NODE
    )  # under restricted a container may take several zones
    if not fitting or (one_each and len(fitting) > len(charge.demand)):
        return True
    return any(_holds(room[zone], wanted, charge.zones.get(zone, NONE_TAKEN)) for zone in fitting)


def _once_they_ended(node_info: NodeInfo, leaves: Callable[[str], bool]) -> ZoneAmounts:
    room = most_without(node_info.ledger, [uid for uid in node_info.ledger.charges if leaves(uid)])
    for own in node_info.assumed.values():
        subtract(room, own.charge.zones)
    return room


def _holds(zone: Amounts, wanted: Amounts, beside: Amounts) -> bool:
    return all(zone.get(name, 0) >= amount + beside.get(name, 0) for name, amount in wanted.items())
