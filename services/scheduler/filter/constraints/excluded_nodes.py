"""Excluded nodes: a node is not used for pods of a class after its kubelet rejected one, a policy
denied one, or races for it were lost in a row.

Exclusions are no field of Kubernetes: they follow from events (`state/exclusions.py`).
"""

from __future__ import annotations

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
from services.scheduler.state.exclusions import Exclusion
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal

_BY_CAUSE = {
    "rejected": "see why its kubelet rejected the pod; the exclusion ends with a changed report",
    "denied": "change the admission policy or the pod; the node is tried again later",
    "contested": "the node is tried again in a moment",
}
_AFTER = {
    "rejected": "a kubelet rejection",
    "denied": "a denied binding",
    "contested": "lost races with other schedulers",
}
EXCLUDED = RefusalReason(
    name=Reason.SET_ASIDE,
    phrase="node(s) excluded for pods that request %s",
    remedy=_BY_CAUSE["rejected"],
)


def excluded(pod: Pod, exclusion: Exclusion, node: str) -> Refusal:
    """Return the refusal of an excluded node, for example `node(s) excluded for pods that request
    cpu 8, memory 128Mi after a kubelet rejection`."""
    requests = effective_request(pod)
    amounts = [f"{name} {format_amount(name, requests[name])}" for name in sorted(requests)]
    return EXCLUDED.refusal(
        node,
        f"{exclusion.cause}: {exclusion.detail}",
        remedy=f"{_BY_CAUSE[exclusion.cause]}. Override: topolog node readmit {node}",
        shown=f"{', '.join(amounts)} after {_AFTER[exclusion.cause]}",
    )


class ExcludedNodes(Constraint):
    name = "excludedNodes"
    reasons = (EXCLUDED,)
    depends_on = attrgetter("exclusions.nodes")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        exclusions = view.exclusions.of(pod)

        def check(node_info: NodeInfo) -> Refusal | None:
            exclusion = exclusions.get(node_info.name)
            if exclusion is None:
                return None
            return excluded(pod, exclusion, node_info.name)

        return check if exclusions else None

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        exclusions = view.exclusions.of(pod)
        return view.columns.all_but(exclusions) if exclusions else None
