"""Room that another scheduler keeps: a pending pod with `status.nominatedNodeName` counts on its
node as if it stood there, for pods of no higher priority. Semantics: kube-scheduler's filtering
with nominated pods (1.36), which nominates pods that it evicts others for, and those whose binding
may take a while.

Not a field of our pod: what was seen of others' bars nodes. By amounts of the node, as
kube-scheduler does, and where the node's kubelet aligns by the zone that the nominee needs, of
which kube-scheduler knows nothing. Nominees of this scheduler hold zones in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.scheduler.filter.constraints.constraint import Around, Check, KeepsNothing
from services.scheduler.filter.constraints.nominee_zone import leaves_a_zone
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import PODS, Amounts
from shared.events.surroundings_events import NominationObserved


class Nominated(KeepsNothing):
    name = "nominated"

    def check(self, pod: Pod, kept: Any, around: Around) -> Check | None:
        nominees: dict[str, list[NominationObserved]] = {}
        for each in _ahead_of(pod, around):
            nominees.setdefault(each.node, []).append(each)
        if not nominees:
            return None
        request = {**effective_request(pod), PODS: 1}

        def check(node_info: NodeInfo) -> Refusal | None:
            here = nominees.get(node_info.name)
            if here is None:
                return None
            return _too_little(node_info, request, here) or _without_a_zone(
                node_info, pod, here, around
            )

        return check


def zones_kept(pod: Pod, around: Around) -> dict[str, Refusal]:
    """The nodes that the pod may not go to, as it might take a nominee's zone, by name: what
    kube-scheduler cannot judge of the nominees that it has itself."""
    found: dict[str, Refusal] = {}
    for each in _ahead_of(pod, around):
        node_info = around.nodes.get(each.node)
        refusal = _without_a_zone(node_info, pod, [each], around) if node_info is not None else None
        if refusal is not None:
            found.setdefault(each.node, refusal)
    return found


def _ahead_of(pod: Pod, around: Around) -> Iterator[NominationObserved]:
    """Nominees of one priority and one node wait neither for each other nor for themselves."""
    nominations = around.cluster_objects.nominations
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
    node_info: NodeInfo, pod: Pod, nominees: list[NominationObserved], around: Around
) -> Refusal | None:
    leaves = around.neighbours.leaves
    for each in nominees:
        if each.zonal and not leaves_a_zone(node_info, pod, each.zonal, leaves):
            return Refusal(node_info.name, Reason.NOMINATED, each.key)
    return None
